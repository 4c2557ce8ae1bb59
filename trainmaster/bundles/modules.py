"""The names of the Python modules in a directory of code."""

from __future__ import annotations

import os
from pathlib import Path

_MOST = 50_000
"""Directory entries to look at; programs are far smaller."""
_ENDS = (".py", ".so", ".pyd")


def list_modules(tree: Path) -> frozenset[str] | None:
    """Every name that the code can import, wherever its search path begins: files and directories at any depth. None
    if there are too many to look at, or the directory does not exist."""
    names, seen = set[str](), 0
    for _, directories, files in os.walk(tree):
        seen += len(directories) + len(files)
        if seen > _MOST:
            return None
        names.update(directories)
        names.update(name.partition(".")[0] for name in files if name.endswith(_ENDS))
    return frozenset(names) if seen else None
