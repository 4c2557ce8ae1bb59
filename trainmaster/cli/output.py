"""Prints results as a table, or as JSON, YAML or names.

Tables fit the terminal: the widest columns are shortened, then the last ones are left out, but never the first, which
users copy. In a pipe nothing is shortened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from trainmaster.api.meta import GVR, Fields
from trainmaster.cli import terminal
from trainmaster.cli.context import CommandContext

Styles = Mapping[str, Callable[[str], str]]
"""Column name -> (cell -> style of `terminal`, "" for none)."""
_GAP = "   "
_LEAST = 8
"""Minimum width of a column; if that is not enough, the last column is left out."""


def print_data(context: CommandContext, data: object, form: str) -> None:
    if form == "json":
        context.say(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        # Imported on demand, because few commands print YAML.
        import yaml

        context.say(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip())


def print_objects(
    context: CommandContext, objects: Sequence[tuple[GVR, Fields]], form: str, *, single: bool = False
) -> None:
    """Prints (collection, object) pairs. `form` is json, yaml or name. Objects are printed as a List, as kubectl does;
    `single` prints the only object by itself."""
    if form == "name":
        for gvr, obj in objects:
            context.say(name_object(gvr, obj["metadata"]["name"]))
        return
    bare = [_drop_managed(obj) for _, obj in objects]
    print_data(context, bare[0] if single else {"apiVersion": "v1", "kind": "List", "items": bare}, form)


def name_object(gvr: GVR, name: str) -> str:
    """The name as kubectl prints it: trainjob.trainer.kubeflow.org/NAME."""
    kind = gvr.plural.removesuffix("s")
    return f"{kind}.{gvr.group}/{name}" if gvr.group else f"{kind}/{name}"


def _drop_managed(obj: Fields) -> Fields:
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}


def print_table(
    context: CommandContext, header: Sequence[str], rows: Sequence[Sequence[str]], *, styles: Styles | None = None
) -> None:
    for line in build_table(context, header, rows, styles=styles):
        context.say(line)


def build_table(
    context: CommandContext,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    styles: Styles | None = None,
    indent: int = 0,
    most_lines: int = 1,
    least: Mapping[str, int] | None = None,
) -> list[str]:
    """The rows of a table, header first. `indent`: width that the caller needs before each line. `most_lines`: on a
    terminal, the last column is wrapped into so many lines before it is shortened. `least`: minimum widths of
    columns."""
    table = [list(header), *([terminal.clean(cell) for cell in row] for row in rows)]
    widths = [max(terminal.measure(row[column]) for row in table) for column in range(len(header))]
    if least:
        widths = [max(width, least.get(name, 0)) for name, width in zip(header, widths, strict=True)]
    room = terminal.find_width(context)
    if room is not None:
        widths = _fit(widths, [terminal.measure(name) for name in header], room - indent)
    colours = styles if styles and terminal.has_colours(context) else {}
    lines = []
    for number, row in enumerate(table):
        cells = []
        last = _wrap(row[-1], widths[-1], most_lines) if len(widths) == len(row) else row[-1:]
        for name, cell, width in zip(header, [*row[:-1], last[0]], widths, strict=False):
            text = terminal.shorten(cell, width)
            padding = " " * (width - terminal.measure(text))
            style = colours[name](cell) if number and name in colours else ""
            cells.append((terminal.paint(text, style) if style else text) + padding)
        margin = " " * (sum(widths[:-1]) + len(_GAP) * (len(widths) - 1))
        lines.append("\n".join([_GAP.join(cells).rstrip(), *(margin + text for text in last[1:])]))
    return lines


def _wrap(cell: str, width: int, most_lines: int) -> list[str]:
    """The lines of a cell; the last one is shortened if there are too many."""
    if most_lines == 1 or terminal.measure(cell) <= width:
        return [cell]
    import textwrap

    lines = textwrap.wrap(cell, width)
    kept = [*lines[: most_lines - 1], *filter(None, (" ".join(lines[most_lines - 1 :]),))]
    return [terminal.shorten(text, width) for text in kept]


def _fit(widths: list[int], least: list[int], room: int) -> list[int]:
    """Shortens the widest column but the first until a row fits; if that is not enough, drops the last column."""
    fitted = list(widths)
    while len(fitted) > 1 and sum(fitted) + len(_GAP) * (len(fitted) - 1) > room:
        able = [column for column in range(1, len(fitted)) if fitted[column] > max(_LEAST, least[column])]
        if able:
            fitted[max(able, key=lambda column: fitted[column])] -= 1
        else:
            fitted.pop()
    return fitted
