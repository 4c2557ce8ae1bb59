"""Print the effective settings and the source of each: default, file, environment or flag.

An unknown key in the file or in the environment is an error. docs/settings.md describes each setting.
"""

from __future__ import annotations

import argparse

from trainmaster.app.settings import list_settings
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.flags import add_settings, load_settings
from trainmaster.cli.output import print_data, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_settings(parser)
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    effective = load_settings(options, context, context.home(options))
    values: dict[str, object] = {}
    for key in list_settings():
        group, _, name = key.partition(".")
        value = getattr(getattr(effective.settings, group), name)
        values[key] = list(value) if isinstance(value, tuple) else value
    if options.output == "table":
        rows = [(key, _show(value), effective.sources[key]) for key, value in values.items()]
        print_table(context, ("SETTING", "VALUE", "FROM"), rows)
    else:
        data = {key: {"value": value, "from": effective.sources[key]} for key, value in values.items()}
        print_data(context, data, options.output)
    return exits.OK


def _show(value: object) -> str:
    if isinstance(value, list):
        return ",".join(value) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
