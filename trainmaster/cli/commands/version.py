"""Print the version of Trainmaster."""

from __future__ import annotations

import argparse
import platform

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_output
from trainmaster.cli.output import print_data
from trainmaster.version import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.output == "table":
        context.say(f"trainmaster {__version__}")
    else:
        data = {"version": __version__, "python": platform.python_version()}
        print_data(context, data, options.output)
    return exits.OK
