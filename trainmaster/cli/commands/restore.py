"""Replace all objects of this home with those of a backup. The server must be stopped.

The whole backup is checked first, and the previous store is kept under another name. Revisions continue far above the
old ones, so that clients list again and do not mistake an old state for a new one.

Running Pods that the backup contains continue. The next server ends those that it does not contain; the command names
them and asks first, and without a terminal it needs --yes. With --keep-running, their jobs are kept as they are now, or
nothing is changed if that is not possible.

Exit codes: 0 success, 1 refused, or the file is no backup, 5 a server is running.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from trainmaster.app.home import maintenance
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.cli.terminal import confirm

_MOST_NAMES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    parser.add_argument("file", metavar="FILE", help="a file that `trainmaster backup` wrote")

    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--keep-running", action="store_true", help="keep jobs with running Pods that are not in the backup"
    )
    group.add_argument("--yes", action="store_true", help="do not ask whether running Pods may be ended")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home, path = context.home(options), Path(options.file).expanduser().absolute()
    running = maintenance.list_ending(home, path)
    if running and not options.keep_running:
        context.note(f"the next server ends {_name_pods(running)}; --keep-running keeps their jobs as they are")
        if not confirm(context, "restore, and end them?", yes=options.yes):
            return exits.FAILED
    revision, aside = maintenance.restore(home, path, running if options.keep_running else ())
    if running and options.keep_running:
        context.say(f"kept the jobs of {_name_pods(running)}")
    context.say(f"restored {home.root} from {options.file} (continues at revision {revision})")
    if aside is not None:
        context.say(f"what was there before lies in {aside}: delete it when you no longer need it")
    return exits.OK


def _name_pods(running: Mapping[str, str]) -> str:
    names = sorted(running.values())
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    pods = "1 running Pod" if len(names) == 1 else f"{len(names)} running Pods"
    return f"{pods} not in the backup: {', '.join(names[:_MOST_NAMES])}{more}"
