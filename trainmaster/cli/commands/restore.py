"""Replace all objects of this home with those of a backup. The server must be stopped.

The whole backup is checked first, and the previous store is kept under another name. Revisions continue far above the
old ones, so that clients list again and do not mistake an old state for a new one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.app.home import maintenance
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    parser.add_argument("file", metavar="FILE", help="a file that `trainmaster backup` wrote")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    revision, aside = maintenance.restore(home, Path(options.file).expanduser().absolute())
    context.say(f"restored {home.root} from {options.file} (continues at revision {revision})")
    if aside is not None:
        context.say(f"what was there before lies in {aside}: delete it when you no longer need it")
    return exits.OK
