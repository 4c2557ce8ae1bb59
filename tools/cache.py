"""Slow builds, kept outside the checkout: `$XDG_CACHE_HOME/trainmaster/<tool>/<content hash>/`.

An entry appears whole or not at all: it is made in a folder of its own and renamed, under a lock, so that two checkouts
that build at the same time do not disturb each other and a killed build leaves nothing that looks finished. The hash
covers all that decides about the content, so a changed pin is a new entry and an old one can simply be deleted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trainmaster"


def content_hash(parts: Iterable[bytes | str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock file for the time of the block; waits for whoever has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Cache:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, tool: str, key: str) -> Path:
        return self.root / tool / key

    def find(self, tool: str, key: str) -> Path | None:
        path = self.path(tool, key)
        return path if path.is_dir() else None

    def ensure(self, tool: str, key: str, make: Callable[[Path], None]) -> Path:
        """The entry; `make(folder)` fills it when it is not there yet."""
        path = self.path(tool, key)
        if path.is_dir():
            return path
        with exclusive(self.root / tool / ".lock"):
            if path.is_dir():
                return path
            draft = path.with_name(f".making-{key}")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            try:
                make(draft)
                draft.rename(path)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        return path
