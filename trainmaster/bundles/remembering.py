"""Caches file hashes of packed directories, valid while a file's timestamps are unchanged.

A file that was written at the moment of packing may be written again with the same timestamps, whose resolution is that
of the kernel's tick, or a second on some file systems. So it is not cached until it is a little older. If the cache is
lost or broken, the files are simply read again.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.bundles.store import CACHE
from trainmaster.bundles.walking import FileMark

_VERSION = 1
_SLACK_NS = 50_000_000
_COARSE_SLACK_NS = 2_500_000_000
_SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Memory:
    digest: str = ""
    """Digest of the last bundle, which contains every cached file."""
    known: dict[str, tuple[FileMark, str]] = field(default_factory=dict)
    """Path -> its status when it was read, and the hash of its content."""

    def find_hash(self, path: str, mark: FileMark) -> str | None:
        before = self.known.get(path)
        return before[1] if before is not None and before[0] == mark else None


def get_path(root: Path, directory: Path) -> Path:
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:24]
    return root / CACHE / f"{name}.json"


def load(path: Path) -> Memory:
    try:
        raw = json.loads(path.read_bytes())
        if raw["version"] != _VERSION:
            return Memory()
        known = {name: (FileMark(*entry[:-1]), entry[-1]) for name, entry in raw["files"].items()}
        return Memory(raw["digest"], known)
    except (OSError, ValueError, KeyError, TypeError):
        return Memory()


def save(path: Path, memory: Memory, began_ns: int) -> None:
    """`began_ns`: the file system's time before the first file was checked."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {name: [*mark, known] for name, (mark, known) in memory.known.items() if is_settled(mark, began_ns)}
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    draft.write_text(json.dumps({"version": _VERSION, "digest": memory.digest, "files": files}, separators=(",", ":")))
    draft.rename(path)


def is_settled(mark: FileMark, began_ns: int) -> bool:
    newest = max(mark.mtime_ns, mark.ctime_ns)
    is_coarse = mark.ctime_ns % _SECOND_NS == 0
    return newest + (_COARSE_SLACK_NS if is_coarse else _SLACK_NS) < began_ns


def read_time_ns(folder: Path) -> int:
    """The current time as the file system records it."""
    os.utime(folder)
    return os.stat(folder).st_mtime_ns
