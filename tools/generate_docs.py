"""Generates `docs/fidelity.md` from the code.

Usage: `python tools/generate_docs.py` writes the page, `--check` fails when it is out of date. A unit test calls
`render_fidelity` for the same comparison.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainmaster.api.declaring.catalogue import build
from trainmaster.api.declaring.fidelity_tables import SHARED
from trainmaster.api.declaring.kinds import Fidelity, FidelityTable

DOCS = Path(__file__).resolve().parent.parent / "docs"

HEAD = """# How each field is handled on one machine

Generated from the declarations of the kinds by `tools/generate_docs.py`; do not edit by hand.

On one machine there is no container runtime, no cloud and no second node. Every field of every kind that the server
accepts has one of these classes; a test fails when a field has none. `trainmaster check -f FILE` shows the classes for
the fields of one manifest.

| class | meaning |
|---|---|
| honoured | works as on a cluster |
| approximated | works similarly; the note describes the difference, and an event reports it where it matters |
| refused | is refused with its name, never ignored |
| inert | has no meaning on one machine and no effect on the program |

A class covers all fields below it. On a real cluster this table does not apply.
"""


def render_fidelity() -> str:
    parts = [HEAD]
    for kind in build().kinds:
        group = f" ({kind.group})" if kind.group else ""
        parts.append(f"## {kind.kind}{group}\n\n" + _render_table(kind.fidelity))
    for name, table in SHARED.items():
        parts.append(f"## {name}\n\n" + _render_table(table))
    return "\n".join(parts)


def _render_table(table: FidelityTable) -> str:
    rows = ["| field | class | note |", "|---|---|---|"]
    rows += [f"| `{path}` | {word} | {note} |" for path, word, note in _rows(table, "")]
    return "\n".join(rows) + "\n"


def _rows(table: FidelityTable, path: str) -> Iterator[tuple[str, str, str]]:
    shared = {id(body): name for name, body in SHARED.items()}
    for name, entry in sorted(table.items()):
        where = f"{path}.{name}" if path and name else path + name
        if isinstance(entry, Mapping):
            if id(entry) in shared:
                title = shared[id(entry)]
                yield where, "see", f"[{title}](#{title.lower().replace(' ', '-')})"
            else:
                yield from _rows(entry, where)
            continue
        fidelity, note = _split(entry)
        yield where, fidelity.value, note


def _split(entry: Any) -> tuple[Fidelity, str]:
    return entry if isinstance(entry, tuple) else (entry, "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    page, text = DOCS / "fidelity.md", render_fidelity()
    if arguments.check:
        if page.read_text() == text:
            return 0
        print(f"{page.name} is out of date; run tools/generate_docs.py", file=sys.stderr)
        return 1
    page.write_text(text)
    print(f"wrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
