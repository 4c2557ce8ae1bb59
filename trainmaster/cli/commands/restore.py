"""Replace all objects of this home with those of a backup. The server must be stopped.

The whole backup is checked first, and the previous store is kept under another name. Revisions continue far above the
old ones, so that clients list again and do not mistake an old state for a new one.

Running Pods that the backup contains continue. The next server ends those that it does not contain; the command names
them and asks first, and without a terminal it needs --yes.

Exit codes: 0 success, 1 refused, or the file is no backup, 5 a server is running.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.app.home import maintenance
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.cli.terminal import confirm

_MOST_NAMES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    parser.add_argument("file", metavar="FILE", help="a file that `trainmaster backup` wrote")

    parser.add_argument("--yes", action="store_true", help="do not ask whether running Pods may be ended")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home, path = context.home(options), Path(options.file).expanduser().absolute()
    if ending := maintenance.list_ending(home, path):
        more = f" and {len(ending) - _MOST_NAMES} more" if len(ending) > _MOST_NAMES else ""
        pods = "1 running Pod" if len(ending) == 1 else f"{len(ending)} running Pods"
        context.note(f"the next server ends {pods} not in the backup: {', '.join(ending[:_MOST_NAMES])}{more}")
        context.note("to let them finish first: `trainmaster up --detach`, then `trainmaster wait JOB --for finished`")
        if not confirm(context, "restore, and end them?", yes=options.yes):
            return exits.FAILED
    revision, aside = maintenance.restore(home, path)
    context.say(f"restored {home.root} from {options.file} (continues at revision {revision})")
    if aside is not None:
        context.say(f"what was there before lies in {aside}: delete it when you no longer need it")
    return exits.OK
