"""Makes the picture of the live view in README: a real run on a pseudo-terminal, its screen as an SVG.

    python tools/picture.py                       writes docs/pictures/run.svg
    python tools/picture.py --columns 120 -o FILE

It trains examples/run on two nodes, on a server in a home of its own, until some reports have made a curve, and takes
the screen as it is then. Nothing in the picture is drawn by hand.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.screen import Terminal
from tests.support.server import clean_environ, command

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "pictures" / "run.svg"
_COLOURS = {
    "default": "#d0d0d0", "red": "#ff6b6b", "green": "#69db7c", "brown": "#ffd43b", "blue": "#74c0fc",
    "magenta": "#e599f7", "cyan": "#66d9e8", "white": "#f8f9fa", "black": "#868e96",
}  # fmt: skip
_CELL, _ROW, _FONT, _EDGE, _BAR = 8.4, 18.0, 14, 14, 30
_PERCENT = re.compile(r" (\d+) %")


def build_svg(screen: Any, title: str) -> str:
    """The screen as text in rectangles of the same width; every run of cells in one style is one element."""
    last = max((number for number in range(screen.lines) if screen.display[number].strip()), default=0)
    width, height = screen.columns * _CELL + 2 * _EDGE, (last + 1) * _ROW + 2 * _EDGE + _BAR
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">',
        '<rect width="100%" height="100%" rx="8" fill="#16191d"/>',
        *(f'<circle cx="{_EDGE + 8 + 20 * n}" cy="17" r="6" fill="{c}"/>' for n, c in enumerate(_LIGHTS)),
        f'<text x="{width / 2:.0f}" y="21" fill="#868e96" text-anchor="middle" {_STYLE}>{html.escape(title)}</text>',
        f'<g {_STYLE} xml:space="preserve">',
    ]
    for row in range(last + 1):
        y = _BAR + _EDGE + (row + 0.75) * _ROW
        for column, text, colour, bold in _list_runs(screen, row):
            weight = ' font-weight="bold"' if bold else ""
            size = f'textLength="{len(text) * _CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
            x = _EDGE + column * _CELL
            # Browsers fold runs of spaces, also where they are asked not to, and then stretch what is left.
            shown = html.escape(text).replace(" ", "\u00a0")
            parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{weight} {size}>{shown}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


_LIGHTS = ("#ff5f57", "#febc2e", "#28c840")
_STYLE = f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{_FONT}"'


def _list_runs(screen: Any, row: int) -> Iterator[tuple[int, str, str, bool]]:
    """(column, text, colour, bold) of stretches in one style, without blank ones."""
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    start = 0
    for column in range(1, screen.columns + 1):
        if column < screen.columns and _look(cells[column]) == _look(cells[start]):
            continue
        text = "".join(cell.data for cell in cells[start:column])
        if text.strip():
            colour, bold = _look(cells[start])
            stripped = text.rstrip()
            yield start, stripped, colour, bold
        start = column


def _look(cell: Any) -> tuple[str, bool]:
    return _COLOURS.get(cell.fg, f"#{cell.fg}" if len(cell.fg) == 6 else _COLOURS["default"]), cell.bold


def take(columns: int, rows: int, percent: int) -> str:
    with tempfile.TemporaryDirectory(prefix="trainmaster-picture-") as folder:
        home = Path(folder) / "home"
        environ = clean_environ({"TRAINMASTER_HOME": str(home), "TERM": "xterm-256color"})
        environ = {name: text for name, text in environ.items() if name not in ("CI", "NO_COLOR")}
        arguments = ["run", "--name", "line", "--nodes", "2", "train.py", "--steps", "400", "--lr", "0.02"]
        try:
            with Terminal(
                command(*arguments), environ, columns=columns, rows=rows, directory=ROOT / "examples" / "run"
            ) as terminal:

                def is_far() -> bool:
                    found = _PERCENT.search("\n".join(terminal.lines))
                    return found is not None and int(found[1]) >= percent

                terminal.wait_until(is_far, f"{percent} %", limit=180)
                return build_svg(terminal.screen, "trainmaster " + " ".join(arguments))
        finally:
            subprocess.run(command("down", "--stop-jobs"), env=environ, stdout=sys.stderr, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=TARGET)
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--rows", type=int, default=18)
    parser.add_argument("--percent", type=int, default=70, help="how far the job should be")
    options = parser.parse_args()
    svg = take(options.columns, options.rows, options.percent)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(svg)
    print(f"{options.output}: {os.path.getsize(options.output)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
