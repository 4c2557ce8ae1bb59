"""Finds source directories that an environment refers to instead of containing a copy: editable installs and `.pth`
lines.

A Pod with its own root must see these too, wherever they are: otherwise a checkout in /tmp or in somebody's home would
be hidden, and `import` would fail in the job only.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_MAPPING = re.compile(r"^MAPPING(?::[^=]*)?= *(\{.*?\})", re.MULTILINE | re.DOTALL)


def list_sources(packages: Iterable[str]) -> tuple[str, ...]:
    """Existing directories outside the given ones, without duplicates."""
    places = list(packages)
    found = dict.fromkeys(path for place in places for path in (*_read_paths(place), *_read_finders(place)))
    return tuple(path for path in found if os.path.isdir(path) and not _lies_in(path, places))


def _read_paths(place: str) -> Iterator[str]:
    for file in sorted(Path(place).glob("*.pth")):
        for line in _read(file).splitlines():
            if line.startswith("/"):
                yield line.strip()


def _read_finders(place: str) -> Iterator[str]:
    """The finder that setuptools writes for editable installs: package -> its directory, or its file without the
    suffix."""
    for file in sorted(Path(place).glob("__editable__*_finder.py")):
        match = _MAPPING.search(_read(file))
        if match is None:
            continue
        try:
            mapping = ast.literal_eval(match.group(1))
        except (ValueError, SyntaxError):
            continue
        for path in mapping.values():
            yield path if os.path.isdir(path) else os.path.dirname(path)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _lies_in(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)
