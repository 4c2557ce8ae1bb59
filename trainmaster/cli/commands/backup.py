"""Write a consistent copy of all objects to a new file, also while the server runs.

Everything acknowledged before the command is in it. The file is one SQLite database, readable by its owner only; it
holds Secrets. Put it back with `trainmaster restore`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.app.home import maintenance
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    parser.add_argument("file", metavar="FILE", help="the file to write; it must not exist")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    path = Path(options.file).expanduser().absolute()
    revision = maintenance.backup(context.home(options), path)
    context.say(f"wrote {path} (revision {revision}, {path.stat().st_size / 1e6:.1f} MB)")
    return exits.OK
