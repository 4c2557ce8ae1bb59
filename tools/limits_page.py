"""Writes the tables of docs/limits.md from the docstrings of the limits; the text around them is written by hand.

A test compares the two. Run `.venv/bin/python tools/limits_page.py` after changing a limit.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tools.settings_page import read_docs, show
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.edge.limits import EdgeLimits

PAGE = Path(__file__).resolve().parent.parent / "docs" / "limits.md"
_BEGIN, _END = "<!-- limits: made by tools/limits_page.py -->\n", "<!-- end of limits -->\n"


def build_table(cls: type, without: frozenset[str] = frozenset()) -> str:
    docs = read_docs(cls)
    rows = [
        f"| `limits.{item.name}` | `{show(item.default)}` | {docs[item.name]} |\n"
        for item in dataclasses.fields(cls)
        if item.name not in without
    ]
    return "| setting | default | what it limits, and what happens above it |\n|---|---|---|\n" + "".join(rows)


def build_tables() -> str:
    every = frozenset(item.name for item in dataclasses.fields(EdgeLimits))
    return f"{build_table(EdgeLimits)}\nFor the API server only:\n\n{build_table(ApiLimits, every)}"


def build_page(text: str) -> str:
    """The page with regenerated tables."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{build_tables()}{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(build_page(PAGE.read_text()))
