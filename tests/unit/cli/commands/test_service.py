"""`trainmaster service`: the unit, what systemd is asked, and machines without it. systemctl is a stand-in."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trainmaster.app.home.folder import Home, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.commands import service
from trainmaster.cli.context import CommandContext
from trainmaster.cli.installation.service_unit import Unit, quote, render
from trainmaster.cli.main import main

pytestmark = pytest.mark.unit

STAND_IN = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$*" in
  *is-active*) [ -e "$STATE/active" ] ;;
  *is-enabled*) [ -e "$STATE/enabled" ] ;;
  *enable*--now*) touch "$STATE/active" "$STATE/enabled" ;;
  *disable*) rm -f "$STATE/active" "$STATE/enabled" ;;
  *enable*) touch "$STATE/enabled" ;;
  *verify*) if [ -e "$STATE/refuse" ]; then echo "trainmaster.service:3: Unknown key"; exit 1; fi ;;
esac
"""


class Machine:
    """With a systemd that only takes notes."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.state = root / "state"
        self.home = root / "my home"
        tools = root / "bin"
        for folder in (self.state, tools, self.home):
            folder.mkdir()
        for name in ("systemctl", "systemd-analyze", "loginctl"):
            (tools / name).write_text(STAND_IN)
            (tools / name).chmod(0o755)
        self.environ = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(root / "person"),
            "CALLS": str(root / "calls"),
            "STATE": str(self.state),
            "TRAINMASTER_HOME": str(self.home),
        }
        self.unit = root / "person" / ".config" / "systemd" / "user" / "trainmaster.service"
        monkeypatch.setattr(service, "RUNNING_MARK", self.state)
        self.out = self.err = ""

    def __call__(self, *argv: str) -> int:
        out, err = io.StringIO(), io.StringIO()
        code = main(("service", *argv), CommandContext(self.environ, out, err))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def list_calls(self) -> list[str]:
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_installing_writes_shows_and_starts_the_unit(machine: Machine) -> None:
    assert machine("install", "--user") == exits.OK
    text = machine.unit.read_text()
    assert text in machine.out and f"wrote {machine.unit}" in machine.out
    assert "KillMode=process\n" in text and "Delegate=yes\n" in text and "WantedBy=default.target\n" in text
    assert f'up --home "{machine.home}"\n' in text, "a home with a space"
    calls = machine.list_calls()
    assert calls[-3:] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now trainmaster.service",
        "loginctl enable-linger",
    ]
    assert any(call.startswith("systemd-analyze --user verify ") for call in calls)


def test_installing_twice_is_the_same_and_status_tells(machine: Machine) -> None:
    assert machine("status", "--user") == exits.NOT_RUNNING
    assert "trainmaster service install" in machine.out
    machine("install", "--user")
    before = machine.unit.read_text()
    assert machine("install", "--user") == exits.OK
    assert machine.unit.read_text() == before
    assert machine("status", "--user") == exits.OK
    assert "trainmaster.service: active, enabled" in machine.out
    (machine.state / "active").unlink()
    assert machine("status", "--user") == exits.NOT_READY
    assert "journalctl --user -u trainmaster.service" in machine.out
    assert machine("status", "--user", "-o", "json") == exits.NOT_READY
    assert json.loads(machine.out)["enabled"] is True


def test_uninstalling_removes_it_and_may_be_repeated(machine: Machine) -> None:
    machine("install", "--user", "--no-start")
    assert not (machine.state / "active").exists()
    assert machine("uninstall", "--user") == exits.OK
    assert not machine.unit.exists()
    assert machine.list_calls()[-2:] == [
        "systemctl --user disable --now trainmaster.service",
        "systemctl --user daemon-reload",
    ]
    assert machine("uninstall", "--user") == exits.OK
    assert "there is no" in machine.out


def test_a_dry_run_writes_and_asks_nothing(machine: Machine) -> None:
    assert machine("install", "--user", "--dry-run") == exits.OK
    assert "ExecStart=" in machine.out and "# systemctl --user enable --now trainmaster.service" in machine.out
    assert not machine.unit.exists() and machine.list_calls() == []


def test_without_systemd_the_command_for_boot_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RUNNING_MARK", machine.root / "none")
    assert machine("install", "--user") == exits.FAILED
    assert "systemd does not run on this machine" in machine.err
    assert "@reboot" in machine.err and "up --detach --home" in machine.err
    assert not machine.unit.exists()


def test_a_unit_that_systemd_refuses_is_not_put_in_place(machine: Machine) -> None:
    (machine.state / "refuse").touch()
    assert machine("install", "--user") == exits.FAILED
    assert "nothing was written" in machine.err and "Unknown key" in machine.err
    assert not machine.unit.exists()


def test_a_server_that_somebody_started_by_hand_is_not_disturbed(machine: Machine) -> None:
    home = Home(machine.home)
    with home.hold(ServerInfo(os.getpid(), "1", str(home.root))):
        assert machine("install", "--user") == exits.ALREADY_RUNNING
        assert "`trainmaster down` first" in machine.err
        assert not machine.unit.exists()
        assert machine("install", "--user", "--no-start") == exits.OK


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("install", "--user", "--name", "../evil"), exits.USAGE, "is no name for a unit"),
        (("install", "--user", "--run-as", "root"), exits.USAGE, "add --system"),
        (
            ("install", "--system", "--run-as", "no-such-user", "--dry-run"),
            exits.USAGE,
            "there is no user no-such-user",
        ),
        (("install", "--user", "--home", "/tmp/a\nb"), exits.USAGE, "control character"),
    ],
)
def test_bad_input_is_told(machine: Machine, argv: tuple[str, ...], code: int, words: str) -> None:
    assert machine(*argv) == code
    assert words in machine.err
    assert not machine.unit.exists()


def test_a_system_unit_says_who_it_runs_as(machine: Machine) -> None:
    assert machine("install", "--system", "--run-as", "root", "--dry-run") == exits.OK
    assert "User=root\n" in machine.out and "WantedBy=multi-user.target\n" in machine.out
    assert "# systemctl enable --now trainmaster.service" in machine.out


def test_words_with_special_meaning_are_quoted() -> None:
    assert quote("plain") == "plain"
    assert quote("a b") == '"a b"'
    assert quote('50%"$HOME\\') == '"50%%\\"$$HOME\\\\"'
    assert quote("") == '""'
    assert quote("A=$B c", in_command=False) == '"A=$B c"'


def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    unit = tmp_path / "trainmaster.service"
    program_of_unit = ["/bin/sh", "-c", "exit 0"]
    home = tmp_path / "50% of $HOME"
    unit.write_text(render(Unit(home, program_of_unit, "/usr/bin:/bin", stopping=[*program_of_unit, "$HOME"])))
    if program is None:
        assert "[Service]\nType=simple\n" in unit.read_text()  # no systemd here: at least the sections are there
        return
    done = subprocess.run([program, "--user", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert [line for line in (done.stdout + done.stderr).splitlines() if "trainmaster.service" in line] == []


def test_before_a_shutdown_the_unit_lets_jobs_save_and_has_time_for_it(machine: Machine) -> None:
    assert machine("install", "--user", "--save-seconds", "300", "--dry-run") == exits.OK
    stop = next(line for line in machine.out.splitlines() if line.startswith("ExecStop="))
    assert stop.startswith("ExecStop=-"), "a job that does not stop must not make the unit fail"
    assert stop.endswith(f'service stopping --user --save-seconds 300 --home "{machine.home}"')
    assert "TimeoutStopSec=330\n" in machine.out
    assert machine("install", "--system", "--dry-run") == exits.OK
    assert "After=network.target dbus.socket dbus.service\n" in machine.out and "TimeoutStopSec=120\n" in machine.out
    assert machine("install", "--user", "--save-seconds", "0") == exits.USAGE


def test_without_a_server_there_is_nothing_to_save(machine: Machine) -> None:
    (machine.root / "bin" / "systemctl").write_text("#!/bin/sh\necho stopping\nexit 1\n")
    assert machine("stopping", "--user") == exits.OK
    assert "no server runs" in machine.out
