"""What the server and people have noted about the checkpoints of a job, beside the directories that programs write to.

    <results>/<TrainJob uid>/resume.<JobSet>.<n>   which checkpoint attempt n resumed from, since when it runs
    <results>/<TrainJob uid>/pins.json             checkpoints that are never removed by a policy

The node writes the former (`node.disk.results`), `pin` the latter.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.shim.protocol import write_whole

PINS = "pins.json"
RESUMED = "resume."
"""Prefix of the notes of attempts."""


@dataclass(frozen=True, slots=True)
class ResumeNote:
    """Of one attempt."""

    checkpoint: str
    """"" if it began without one."""
    seats: Mapping[str, str]
    """The uid of the Pod at each place that has started."""
    began: float | None = None
    """None for a new one: the time of the file."""


@dataclass(frozen=True, slots=True)
class Attempts:
    began: Sequence[tuple[float, int]] = ()
    """Sorted: when an attempt began to run, and its number."""
    resumed: str = ""
    """The name of the checkpoint that the last attempt resumed from."""

    def find(self, moment: float) -> int | None:
        """The attempt that ran then. One that is older than all attempts is of the first."""
        if not self.began:
            return None
        return self.began[max(0, bisect_right(self.began, (moment, 1 << 62)) - 1)][1]


def read_attempts(folder: Path) -> Attempts:
    """`folder`: the results of a job."""
    began: list[tuple[float, int]] = []
    resumed: dict[int, str] = {}
    try:
        names = [name for name in os.listdir(folder) if name.startswith(RESUMED)]
    except OSError:
        return Attempts()
    for name in names:
        number = name.rpartition(".")[2]
        note = find_resume_note(folder / name)
        if note is None or note.began is None or not number.isdigit():
            continue
        began.append((note.began, int(number)))
        resumed[int(number)] = note.checkpoint
    return Attempts(sorted(began), resumed[max(resumed)] if resumed else "")


def find_resume_note(path: Path) -> ResumeNote | None:
    """None if there is none, or it is damaged."""
    try:
        modified = path.stat().st_mtime
        note = json.loads(path.read_bytes())
        # Earlier versions did not write when the attempt began: it is the time of the file.
        return ResumeNote(str(note["checkpoint"]), dict(note["seats"]), float(note.get("began", modified)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def write_resume_note(path: Path, note: ResumeNote) -> None:
    """Raises OSError."""
    began = {} if note.began is None else {"began": note.began}
    content = {"checkpoint": note.checkpoint, "seats": note.seats, **began}
    write_whole(os.fspath(path), json.dumps(content).encode())


def read_pins(folder: Path) -> frozenset[str]:
    """Paths in the checkpoint directory, as the file system has them."""
    try:
        content = json.loads((folder / PINS).read_bytes())
        return frozenset(map(str, content["pinned"]))
    except (OSError, ValueError, LookupError, TypeError):
        return frozenset()


def write_pins(folder: Path, pins: Collection[str]) -> None:
    """Raises OSError."""
    write_whole(os.fspath(folder / PINS), json.dumps({"pinned": sorted(pins)}).encode())
