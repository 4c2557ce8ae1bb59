"""The newest complete checkpoint of a job in its results: which step it is of, and when it was saved.

The directory belongs to the job's program, so nothing in it is trusted: links are not followed, and a marker that is no
small regular file, or says no step, counts as one without a step.
"""

from __future__ import annotations

import itertools
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from trainmaster.checkpoint import MARKER, choose_newest
from trainmaster.history.results import RESULTS

CHECKPOINTS = "checkpoints"
_MOST_NAMES = 20_000
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    name: str
    step: int | None
    """As the program said when it committed it."""
    saved_at: float
    """Seconds since the epoch."""


def find_newest_checkpoint(archive: Path, uid: str) -> SavedCheckpoint | None:
    """None if there is none, or the directory cannot be read. Blocking."""
    folder = archive / RESULTS / uid / CHECKPOINTS
    try:
        with os.scandir(folder) as scan:
            names = [entry.name for entry in itertools.islice(scan, _MOST_NAMES) if entry.name.isprintable()]
        found = choose_newest(folder, names)
        if found is None:
            return None
        marker = found / MARKER if found.is_dir() else found.with_name(found.name + MARKER)
        saved_at, text = _read(marker)
    except OSError:
        return None
    return SavedCheckpoint(found.name, _read_step(text), saved_at)


def _read(marker: Path) -> tuple[float, bytes]:
    handle = os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        return found.st_mtime, os.read(handle, _MOST_BYTES) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(handle)


def _read_step(text: bytes) -> int | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    step = content.get("step") if isinstance(content, dict) else None
    return step if isinstance(step, int) and not isinstance(step, bool) else None
