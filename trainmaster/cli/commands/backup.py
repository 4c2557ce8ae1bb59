"""Write a consistent copy of all objects to a new file, with or without a running server.

It contains everything that was acknowledged before the command. The file is one SQLite database, readable only by its
owner, because it contains Secrets. Restore it with `trainmaster restore`.
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
