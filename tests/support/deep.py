"""Directory trees deeper than the path limit and Python's recursion limit, as a hostile program could create."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainmaster.shim.trees import remove_tree


def _make_deep(root: Path, depth: int) -> None:
    """`d/d/d/...` below the root, with a file in each."""
    handle = os.open(root, os.O_RDONLY)
    for number in range(depth):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(handle)
        handle = below
    os.close(handle)


@contextmanager
def deep_tree(root: Path, depth: int, *others: Path) -> Iterator[None]:
    """Removes the tree and `others` afterwards, which the test runner cannot do."""
    try:
        _make_deep(root, depth)
        yield
    finally:
        for place in (root, *others):
            remove_tree(place)
