"""Print the effective settings and the source of each: default, file, environment or flag.

An unknown key in the file or in the environment is an error. docs/settings.md describes each setting.
"""

from __future__ import annotations

import argparse

from trainmaster.app.settings import list_values
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.flags import add_settings, load_settings
from trainmaster.cli.output import print_data, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_settings(parser)
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    values = list_values(load_settings(options, context, context.home(options)))
    if options.output == "table":
        print_table(context, ("SETTING", "VALUE", "FROM"), [(one.key, _show(one.value), one.source) for one in values])
    else:
        data = {one.key: {"value": one.value, "from": one.source} for one in values}
        print_data(context, data, options.output)
    return exits.OK


def _show(value: object) -> str:
    if isinstance(value, list):
        return ",".join(value) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
