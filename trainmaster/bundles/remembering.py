"""What is known of a directory that was packed before: the hash of each file, while the file looks as it did then.

A file that was written in the very moment of the pack may be written again without its time stamps moving (they are as
coarse as the kernel's tick, on some file systems a second), so it is not remembered until it is a little older. A cache
that is lost or broken costs reading the files again, nothing else.
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
    """Of the last pack: its tree has every remembered file."""
    known: dict[str, tuple[FileMark, str]] = field(default_factory=dict)
    """Path to what it looked like, and the hash of its content."""

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
    """`began_ns`: the file system's own time before the first file was looked at."""
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
    """The time as the file system stamps it now."""
    os.utime(folder)
    return os.stat(folder).st_mtime_ns
