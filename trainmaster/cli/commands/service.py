"""Run the server with systemd: at boot, again after a crash, with jobs that survive restarts and upgrades.

  trainmaster service install      write the unit, show it, start it now and at every boot
  trainmaster service status       show whether it is installed, enabled and active
  trainmaster service uninstall    stop the server (Pods continue) and remove the unit
  trainmaster service stopping     called by the unit before it stops the server: if the machine shuts down, jobs are
                                   asked to save and stop, and continue at the next start

An ordinary user gets a user unit (--user), root a system unit (--system). --dry-run shows what would be written and
run. After an upgrade, run `systemctl --user restart trainmaster` (without --user for a system unit).

Exit codes: 0 success, 1 systemd refused or is missing, 3 (status) not installed, 4 (status) not active, 6 (stopping)
not all jobs have stopped in time.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import print_data

RUNNING_MARK = Path("/run/systemd/system")
"""Exists where systemd is the init system."""
SYSTEM_FOLDER = Path("/etc/systemd/system")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,200}")
_SECONDS = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = commands.add_parser("install", help="write the unit and start it, now and at every boot")
    install.add_argument("--no-start", action="store_true", help="do not start it now, only at the next boot")
    install.add_argument("--dry-run", action="store_true", help="only show what would be written and run")
    install.add_argument("--run-as", default="", metavar="USER", help="user that runs the server (--system)")
    stopping = commands.add_parser("stopping", help="let jobs save if the machine shuts down; called by the unit")
    for one in (install, stopping):
        text = "how long jobs have to save and stop when the machine shuts down (default: 90)"
        one.add_argument("--save-seconds", type=_read_seconds, default=90, metavar="SECONDS", help=text)
    uninstall = commands.add_parser("uninstall", help="stop the server and remove the unit; Pods continue")
    status = commands.add_parser("status", help="show whether it is installed, enabled and active")
    add_output(status)
    for one in (install, uninstall, status, stopping):
        add_home(one)
        group = one.add_mutually_exclusive_group()
        group.add_argument("--user", action="store_true", help="a unit of your user (default, unless root)")
        group.add_argument("--system", action="store_true", help="a unit of the system (default of root)")
        one.add_argument(
            "--name", default="trainmaster", metavar="NAME", help="name of the unit (default: trainmaster)"
        )


def _read_seconds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1 to 86400")
    return int(text)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if not _NAME.fullmatch(options.name):
        raise exits.Failure(f"{options.name!r} is no name for a unit: letters, digits and _.@-", exits.USAGE)
    place = _choose_place(options, context)
    if options.action == "install":
        return _install(options, context, place)
    if options.action == "uninstall":
        return _uninstall(options, context, place)
    if options.action == "stopping":
        # Imported here because only this needs an API client.
        from trainmaster.cli.maintenance import shutting_down

        return shutting_down.run(options, context, place.ask("is-system-running")[1])
    return _report(options, context, place)


@dataclass(frozen=True, slots=True)
class _Place:
    """The path of the unit, and how to call systemctl for it."""

    unit: str
    folder: Path
    system: bool
    environ: dict[str, str]

    @property
    def file(self) -> Path:
        return self.folder / self.unit

    def describe(self, *arguments: str) -> list[str]:
        return ["systemctl", *([] if self.system else ["--user"]), *arguments]

    def ask(self, *arguments: str) -> tuple[int, str]:
        """The exit code and output of systemctl."""
        return self.call(self.describe(*arguments))

    def call(self, command: list[str]) -> tuple[int, str]:
        program = shutil.which(command[0], path=self.environ.get("PATH"))
        if program is None:
            return 127, f"{command[0]} is not installed"
        done = subprocess.run(
            [program, *command[1:]],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        return done.returncode, (done.stdout + done.stderr).strip()


def _choose_place(options: argparse.Namespace, context: CommandContext) -> _Place:
    system = options.system or (os.geteuid() == 0 and not options.user)
    environ = dict(context.environ)
    if system:
        return _Place(f"{options.name}.service", SYSTEM_FOLDER, True, environ)
    base = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    if not base:
        raise exits.Failure("HOME is not set, so there is no place for a unit of yours", exits.USAGE)
    return _Place(f"{options.name}.service", Path(base) / "systemd" / "user", False, environ)


def _install(options: argparse.Namespace, context: CommandContext, place: _Place) -> int:
    text = _render(options, context, place)
    steps = _list_steps(options, place)
    if options.dry_run:
        context.say(f"# {place.file}")
        context.say(text.removesuffix("\n"))
        for step in steps:
            context.say(f"# {shlex.join(step)}")
        return exits.OK
    _require_systemd(options, context, place)
    if place.system and os.geteuid() != 0:
        raise exits.Failure("a unit of the system needs root: use sudo, or --user for a unit of yours")
    _verify(context, place, text)
    home = context.home(options)
    running = home.find_running()
    managed = place.ask("is-active", place.unit)[0] == 0
    if running is not None and not managed and not options.no_start:
        text = f"process {running.pid} serves {home.root} already"
        raise exits.Failure(f"{text}: `trainmaster down` first (Pods live on), or --no-start", exits.ALREADY_RUNNING)
    _write(place.file, text)
    context.say(f"wrote {place.file}:")
    context.say(text.removesuffix("\n"))
    for step in steps:
        code, said = place.call(step)
        context.say(f"{shlex.join(step)}: {'done' if code == 0 else said}")
        if code != 0 and step[0] == "systemctl":
            raise exits.Failure(f"{shlex.join(step)} failed: {said}; the unit is there, `journalctl` may say more")
    return exits.OK


def _list_steps(options: argparse.Namespace, place: _Place) -> list[list[str]]:
    start = [] if options.no_start else ["--now"]
    steps = [place.describe("daemon-reload"), place.describe("enable", *start, place.unit)]
    if not place.system:
        # Without lingering, the units of a user run only while the user is logged in.
        steps.append(["loginctl", "enable-linger"])
    return steps


def _render(options: argparse.Namespace, context: CommandContext, place: _Place) -> str:
    home = context.home(options)
    if options.run_as:
        if not place.system:
            raise exits.Failure("--run-as is for units of the system: add --system", exits.USAGE)
        try:
            pwd.getpwnam(options.run_as)
        except KeyError:
            raise exits.Failure(f"there is no user {options.run_as}", exits.USAGE) from None
    from trainmaster.cli.installation import service_unit as units

    program = [sys.executable, "-P", "-m", "trainmaster.cli"]
    where = ["--home", str(home.root)]
    save = ["--save-seconds", str(options.save_seconds)]
    stopping = [*program, "service", "stopping", "--system" if place.system else "--user", *save, *where]
    path = place.environ.get("PATH", os.defpath)
    unit = units.Unit(
        home.root, [*program, "up", *where], path, place.system, options.run_as, stopping, options.save_seconds
    )
    try:
        text: str = units.render(unit)
    except ValueError as error:
        raise exits.Failure(f"no unit can be written: {error}", exits.USAGE) from None
    return text


def _require_systemd(options: argparse.Namespace, context: CommandContext, place: _Place) -> None:
    if RUNNING_MARK.is_dir() and shutil.which("systemctl", path=place.environ.get("PATH")):
        return
    home = context.home(options)
    command = shlex.join([sys.executable, "-m", "trainmaster.cli", "up", "--detach", "--home", str(home.root)])
    raise exits.Failure(
        f"systemd does not run on this machine, so nothing was installed. Let what starts programs here run\n"
        f"  {command}\n"
        f'at boot, for example with `crontab -e` and the line "@reboot {command}"; it goes to the background itself'
    )


def _verify(context: CommandContext, place: _Place, text: str) -> None:
    """Checks the unit with systemd before it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / place.unit
        draft.write_text(text)
        scope = [] if place.system else ["--user"]
        code, said = place.call(["systemd-analyze", *scope, "verify", str(draft)])
    ours = [line for line in said.splitlines() if place.unit in line]
    if code not in (0, 127) and ours:
        raise exits.Failure(f"systemd refuses the unit, nothing was written: {'; '.join(ours)}")
    if code == 127:
        context.note("systemd-analyze is not installed: the unit was not checked beforehand")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _uninstall(options: argparse.Namespace, context: CommandContext, place: _Place) -> int:
    if not place.file.exists():
        context.say(f"there is no {place.file}")
        return exits.OK
    code, said = place.ask("disable", "--now", place.unit)
    if code == 0:
        context.say(
            f"stopped {place.unit}; Pods that were running live on, and the next `trainmaster up` takes them over"
        )
    else:
        context.note(f"{shlex.join(place.describe('disable', '--now', place.unit))}: {said}")
    place.file.unlink()
    context.say(f"removed {place.file}")
    place.ask("daemon-reload")
    return exits.OK


def _report(options: argparse.Namespace, context: CommandContext, place: _Place) -> int:
    installed = place.file.exists()
    enabled = installed and place.ask("is-enabled", place.unit)[0] == 0
    active = installed and place.ask("is-active", place.unit)[0] == 0
    running = context.home(options).find_running()
    data = {
        "unit": str(place.file),
        "installed": installed,
        "enabled": enabled,
        "active": active,
        "server": running.server if running is not None else "",
    }
    if options.output != "table":
        print_data(context, data, options.output)
    elif not installed:
        context.say(f"not installed: there is no {place.file}; `trainmaster service install` makes it")
    else:
        context.say(f"{place.unit}: {'active' if active else 'not active'}, {'enabled' if enabled else 'not enabled'}")
        context.say(f"unit: {place.file}")
        if not active:
            context.say(f"see why: journalctl {'' if place.system else '--user '}-u {place.unit} -n 20")
    return exits.NOT_RUNNING if not installed else exits.OK if active else exits.NOT_READY
