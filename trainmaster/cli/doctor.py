"""Say what this machine gives to jobs, and what is wrong with it. Changes nothing; no server need run.

Exit codes: 0 no problem was found, 1 there is one.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict

from trainmaster.app.doctor import examine
from trainmaster.cli import exits
from trainmaster.cli.context import Context, add_home, add_output
from trainmaster.cli.flags import add_settings, load_settings
from trainmaster.cli.output import print_data, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_settings(parser)
    add_output(parser)


def run(options: argparse.Namespace, context: Context) -> int:
    home = context.home(options)
    found = asyncio.run(examine(home, load_settings(options, context, home).settings))
    problems = [line for line in found if line.state == "problem"]
    if options.output == "table":
        print_table(context, ("CHECK", "STATE", "SEEN"), [(line.check, line.state, line.seen) for line in found])
        advised = [line for line in found if line.advice]
        if advised:
            context.say()
        for line in advised:
            context.say(f"{line.check}: {line.advice}")
    else:
        print_data(context, {"healthy": not problems, "checks": [asdict(line) for line in found]}, options.output)
    return exits.FAILED if problems else exits.OK
