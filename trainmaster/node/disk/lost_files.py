"""Finds files that a Pod wrote where nothing is kept, and that its author would miss. Nothing is opened or changed.

    /tmp and /var/tmp                            of every rank, in a sandbox
    a working directory that the node created    of every rank
    the home and the code's view                 of ranks other than 0, whose files are not kept

By-products are left out: hidden files, caches, what `tempfile` and frameworks name by themselves, and small files,
unless their name says that they are a result.
"""

from __future__ import annotations

import heapq
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from trainmaster.bundles.views import LEFT_OUT
from trainmaster.history.lost_files import LostFile, LostFiles
from trainmaster.shim.trees import TreeEntry, TreeWalk

_LARGE = 64 * 1024
_RESULTS = frozenset(
    {".bin", ".ckpt", ".csv", ".feather", ".gguf", ".h5", ".jpg", ".json", ".jsonl", ".keras", ".model", ".npy", ".npz"}
    | {".onnx", ".parquet", ".pdf", ".pickle", ".pkl", ".png", ".pt", ".pth", ".safetensors", ".svg", ".tsv", ".txt"}
)
"""Endings of files that a program writes to be read later; these count at any size."""
_TEMPORARY = re.compile(
    r"tmp[a-z0-9_]{8}(\..*)?|(torchinductor_|torchelastic_|pymp-|pip-|hsperfdata_|systemd-).*|ray|__.*"
)
"""Names at the top of /tmp that programs do not choose themselves."""
_BY_PRODUCTS = (".pyc", ".so", ".o", ".lock", ".sock", ".pid")
_NAMED = 20
_MOST_ENTRIES = 20_000
"""A walk stops there: what was found until then is enough to say."""
_LONGEST = 300


def list_scratch(directory: Path) -> list[tuple[Path, str]]:
    """(directory, how the program names it) of everything that is deleted with any Pod."""
    found = []
    for place in _list_directories(directory / "scratch"):
        found += [(place / "tmp1", "/tmp/"), (place / "tmp2", "/var/tmp/")]
    return [*found, *((place, "") for place in _list_directories(directory / "made"))]


def find_lost(attempt: int, rank: int, entries: Iterable[tuple[TreeEntry, str]]) -> LostFiles | None:
    """`entries`: what may be lost, with how the program names its directory. None if nothing is worth mentioning."""
    first = itertools.islice(entries, _MOST_ENTRIES)
    found = [(entry.status.st_size, prefix + _show(entry.path)) for entry, prefix in first if _is_missed(entry)]
    if not found:
        return None
    largest = heapq.nlargest(_NAMED, found)
    return LostFiles(attempt, rank, tuple(LostFile(path, size) for size, path in largest), len(found))


def walk_scratch(places: Sequence[tuple[Path, str]]) -> Iterator[tuple[TreeEntry, str]]:
    """The files in these directories that are no by-products of libraries, up to a limit."""
    left = _MOST_ENTRIES
    for place, prefix in places:
        try:
            walk = TreeWalk(os.fspath(place))
        except OSError:
            continue
        for entry in walk:
            left -= 1
            if left < 0:
                walk.close()
                return
            if _is_by_product(entry, prefix):
                walk.skip()
            elif stat.S_ISREG(entry.status.st_mode):
                yield entry, prefix


def _list_directories(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_by_product(entry: TreeEntry, prefix: str) -> bool:
    name = entry.name
    if name.startswith(".") or name in LEFT_OUT:
        return True
    return bool(prefix) and "/" not in entry.path and _TEMPORARY.fullmatch(name) is not None


def _is_missed(entry: TreeEntry) -> bool:
    size, ending = entry.status.st_size, os.path.splitext(entry.name)[1].lower()
    if not size or ending in _BY_PRODUCTS:
        return False
    return size >= _LARGE or ending in _RESULTS


def _show(path: str) -> str:
    """Printable: the name comes from a program and is shown on a terminal."""
    text = os.fsencode(path).decode(errors="backslashreplace")[:_LONGEST]
    return text if text.isprintable() else text.encode("unicode_escape").decode()
