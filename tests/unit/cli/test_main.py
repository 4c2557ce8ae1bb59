"""The command line without a server: parsing, texts, exit codes, output forms."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
from pathlib import Path

import pytest
import yaml

import trainmaster
from trainmaster.app.home.folder import Home, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.commands import COMMANDS, load_command
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main

pytestmark = pytest.mark.unit


class Shell:
    """Runs commands in-process and keeps what they print."""

    def __init__(self, home: Path) -> None:
        self.environ = {"TRAINMASTER_HOME": str(home)}
        self.out = ""
        self.err = ""

    def __call__(self, *argv: str) -> int:
        out, err = io.StringIO(), io.StringIO()
        code = main(argv, CommandContext(self.environ, out, err))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


def test_without_a_command_the_overview_lists_all_commands(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell() == exits.OK
    printed = capsys.readouterr().out
    for name, text in COMMANDS.items():
        assert f"{name} " in printed
        assert text in printed


def test_a_current_directory_that_was_removed_is_said_in_a_sentence(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert shell("run", "train.py") == exits.FAILED
    assert shell.err == "trainmaster: the current directory was removed: change to another one, and try again\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(shell: Shell, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(command, "--help") == exits.OK
    assert f"usage: trainmaster {command}" in capsys.readouterr().out


def test_a_mistyped_command_is_refused_with_the_one_that_was_meant(shell: Shell) -> None:
    assert shell("statsu") == exits.USAGE
    assert "did you mean `trainmaster status`" in shell.err
    assert shell("zzz") == exits.USAGE
    assert shell.err == "trainmaster: 'zzz' is no command; `trainmaster --help` lists all\n"


@pytest.mark.parametrize(
    "argv", [("up", "--prot", "1"), ("status", "-o", "xml"), ("up", "--port", "many"), ("backup",)]
)
def test_a_wrong_command_line_ends_with_2(
    shell: Shell, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell(*argv) == exits.USAGE
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("status", "--hom", "x"), "unrecognized arguments: --hom x (did you mean --home?)"),
        (("history", "list", "--lim", "1"), "trainmaster history list: error: unrecognized arguments: --lim 1"),
        (("exec", "job", "--ran", "1", "--", "ls"), "unrecognized arguments: --ran 1"),
    ],
)
def test_an_abbreviated_flag_is_refused_with_the_whole_one(
    shell: Shell, argv: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell(*argv) == exits.USAGE
    assert words in capsys.readouterr().err + shell.err


@pytest.mark.parametrize(
    "argv", [("history", "list"), ("history", "purge", "--all"), ("cleanup",), ("delete", "-l", "a")]
)
def test_all_namespaces_or_one(shell: Shell, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(*argv, "-A") in (exits.OK, exits.NOT_RUNNING)
    assert shell(*argv, "-A", "-n", "team") == exits.USAGE
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ("outputs", "list", "nosuch"),
        ("outputs", "get", "nosuch"),
        ("evidence", "nosuch"),
        ("history", "get", "nosuch"),
        ("history", "logs", "nosuch"),
        ("history", "rerun", "nosuch"),
        ("history", "export", "nosuch", "file.tar.gz"),
        ("history", "purge", "nosuch"),
    ],
)
def test_a_job_that_was_never_there_ends_with_7(shell: Shell, argv: tuple[str, ...]) -> None:
    assert shell(*argv) == exits.NOT_FOUND
    assert shell.err


def test_a_wrong_setting_ends_with_2_before_anything_is_started(shell: Shell, tmp_path: Path) -> None:
    shell.environ["TRAINMASTER_SERVER_PROT"] = "1"
    assert shell("up") == exits.USAGE
    assert "did you mean TRAINMASTER_SERVER_PORT?" in shell.err
    assert not (tmp_path / "home").exists()


@pytest.mark.skipif(not hasattr(dataclasses, "_create_fn"), reason="this Python compiles all methods at once")
@pytest.mark.parametrize(("command", "is_late"), [("version", True), ("up", False)])
def test_what_a_command_imports_while_it_runs_is_compiled_late(
    shell: Shell, command: str, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for servers: web frameworks inspect the methods of classes."""
    before = vars(dataclasses)["_create_fn"]
    seen: list[object] = []

    def note(*_: object) -> int:
        seen.append(vars(dataclasses)["_create_fn"])
        return exits.OK

    monkeypatch.setattr(load_command(command), "run", note)
    assert shell(command) == exits.OK
    assert (seen != [before]) is is_late


def test_version_prints_the_version(shell: Shell) -> None:
    assert shell("version") == exits.OK
    assert shell.out == f"trainmaster {trainmaster.__version__}\n"
    assert shell("version", "-o", "json") == exits.OK
    assert json.loads(shell.out)["version"] == trainmaster.__version__


def test_config_shows_value_and_origin_in_each_form(shell: Shell) -> None:
    assert shell("config", "--port", "7000") == exits.OK
    assert ["server.port", "7000", "flag", "--port"] in [line.split() for line in shell.out.splitlines()]
    assert shell("config", "--port", "7000", "-o", "json") == exits.OK
    data = json.loads(shell.out)
    assert data["server.port"] == {"value": 7000, "from": "flag --port"}
    assert shell("config", "--port", "7000", "-o", "yaml") == exits.OK
    assert yaml.safe_load(shell.out) == data


def test_config_reads_the_file_of_the_home_and_a_named_one(shell: Shell, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    home.config.write_text("[server]\nport = 7001\n")
    assert shell("config", "-o", "json") == exits.OK
    assert json.loads(shell.out)["server.port"] == {"value": 7001, "from": f"file {home.config}"}
    other = tmp_path / "other.toml"
    other.write_text("[server]\nport = 7002\n")
    assert shell("config", "-o", "json", "--config", str(other)) == exits.OK
    assert json.loads(shell.out)["server.port"]["value"] == 7002
    assert shell("config", "--config", str(tmp_path / "absent.toml")) == exits.USAGE


def test_status_of_an_empty_home_ends_with_3(shell: Shell, tmp_path: Path) -> None:
    assert shell("status") == exits.NOT_RUNNING
    assert "start it with `trainmaster up --detach" in shell.out
    assert shell("status", "-o", "json") == exits.NOT_RUNNING
    assert json.loads(shell.out) == {"running": False, "ready": False, "home": str(tmp_path / "home")}


def test_status_of_a_server_that_is_still_starting_ends_with_4(shell: Shell, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with home.hold(ServerInfo(4711, "1.0", str(home.root))):
        assert shell("status", "-o", "json") == exits.NOT_READY
    data = json.loads(shell.out)
    assert (data["running"], data["ready"], data["pid"]) == (True, False, 4711)
    assert data["problem"] == "it is still starting"


def test_down_without_a_server_says_so_and_is_content(shell: Shell) -> None:
    assert shell("down") == exits.OK
    assert "no server runs" in shell.out


def test_down_does_not_signal_a_process_that_only_has_the_pid(shell: Shell, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    home.write_info(ServerInfo(1, "1.0", str(home.root)))
    assert shell("down") == exits.OK
    assert "no server runs" in shell.out


def test_kubeconfig_prints_the_path_or_the_content(shell: Shell, tmp_path: Path) -> None:
    assert shell("kubeconfig") == exits.NOT_RUNNING
    assert "`trainmaster up` writes it" in shell.err
    home = Home(tmp_path / "home")
    home.prepare()
    home.write_private(home.kubeconfig, "kind: Config\n")
    assert shell("kubeconfig") == exits.OK
    assert shell.out == f"{home.kubeconfig}\n"
    assert shell("kubeconfig", "--raw") == exits.OK
    assert shell.out == "kind: Config\n"


def test_a_home_that_is_no_folder_costs_one_line_and_no_traceback(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    for command in (["up"], ["up", "-d"], ["status"], ["down"], ["kubeconfig"], ["backup", "x"]):
        assert shell(*command) in (exits.FAILED, exits.NOT_RUNNING), command
        assert shell.err.startswith("trainmaster: ") and shell.err.count("\n") == 1


def test_a_full_disk_is_told_in_one_line(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    assert shell("up") == exits.FAILED
    problem = "cannot be written: No space left on device: free some and try again"
    assert shell.err == f"trainmaster: the home {tmp_path / 'home'} {problem}\n"
    assert not [path for path in (tmp_path / "home").iterdir() if path.name.startswith(".")]


def test_up_in_the_background_is_refused_when_the_home_is_taken(shell: Shell, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with home.hold(ServerInfo(4711, "1.0", str(home.root), "https://127.0.0.1:1")):
        assert shell("up", "--detach") == exits.ALREADY_RUNNING
    assert "process 4711 (trainmaster 1.0) already runs" in shell.err
