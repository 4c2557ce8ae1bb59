"""Prints a result as the reader asked: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from trainmaster.cli.context import Context


def print_data(context: Context, data: Any, form: str) -> None:
    if form == "json":
        context.say(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        # Loaded by name and on demand: most commands never print YAML, and start-up counts.
        yaml = importlib.import_module("yaml")
        context.say(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip())


def print_table(context: Context, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        context.say("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
