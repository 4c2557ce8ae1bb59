"""A checkpoint, as it is listed. Pure data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Format = Literal["torch", "torch-distributed", "hugging-face", "safetensors", "file", "directory"]
Place = Literal["checkpoints", "outputs"]
"""TRAINMASTER_CHECKPOINT_DIR, or one of the directories whose files are outputs."""
Reason = Literal["newest", "resumed", "pinned", "last", "every"]
"""Why a checkpoint is kept while others are removed."""


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    path: str
    """Inside the checkpoint; "" for a checkpoint that is one file."""
    bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointSource:
    """Where a checkpoint is on the disk."""

    root: Path
    """The directory that was searched, which jobs cannot replace."""
    path: str
    """Below it, in the file system's own bytes (`os.fsdecode`)."""
    is_file: bool
    files: Sequence[CheckpointFile]
    """Regular files, sorted by path, without the marker."""
    others: Sequence[str] = ()
    """Paths of what is neither file nor directory: links, pipes, devices."""

    def locate(self, file: str) -> str:
        """The path of one of its files below the root."""
        return f"{self.path}/{file}" if file else self.path

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    name: str
    """Printable. Of one in the checkpoint directory its path there, else `outputs/` and the path of the output."""
    place: Place
    format: Format
    source: CheckpointSource
    step: int | None
    attempt: int | None
    """Which attempt wrote it: by its marker, else by its time."""
    committed: bool
    """Whether it has a marker. An attempt resumes only from those that have one."""
    problem: str
    """Why it is not complete; "" if it is, as far as can be told without reading everything."""
    modified: float
    """Seconds since the epoch: when it was completed, else of its newest file."""
    origin: str = ""
    """The checkpoint of another job that it was copied from."""
    pinned: bool = False
    kept: tuple[Reason, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.problem

    @property
    def bytes(self) -> int:
        return self.source.bytes

    @property
    def is_resumable(self) -> bool:
        return self.place == "checkpoints" and self.committed and self.complete


@dataclass(frozen=True, slots=True)
class Resumable:
    """What an attempt resumes from."""

    name: str = ""
    """"" if there is no complete checkpoint."""
    passed_over: Sequence[Checkpoint] = ()
    """Newer ones, which were committed and are damaged."""


@dataclass(frozen=True, slots=True)
class Policy:
    last: int = 0
    """How many of the newest complete ones are kept; 0: all, unless `every` is given."""
    every: int = 0
    """Those are kept, too, whose step is a multiple of this; 0: no others."""

    @property
    def is_given(self) -> bool:
        return bool(self.last or self.every)


NO_POLICY = Policy()


def to_printable(path: str) -> str:
    """A path of the file system as text for people: other bytes and control characters are written as escapes."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
