"""Reads everything in a checkpoint and says which of its files are damaged. Blocks, possibly for long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.history.checkpoints.checks import MarkerNote, list_problems, read_note
from trainmaster.history.checkpoints.grouping import MARKER
from trainmaster.history.checkpoints.model import Checkpoint
from trainmaster.history.checkpoints.opening import ReadingBudget

_MOST_SAID = 20


@dataclass(frozen=True, slots=True)
class Verification:
    problems: Sequence[str]
    """One sentence for each damaged file."""
    digests: int
    """How many files were compared with the SHA-256 of when they were committed."""


def verify(item: Checkpoint) -> Verification:
    budget = ReadingBudget(files=1 << 62, bytes=1 << 62)
    source = item.source
    note = MarkerNote()
    if item.committed:
        note = read_note(source, source.path + MARKER if source.is_file else f"{source.path}/{MARKER}", budget)
    problems = [item.problem] if item.problem and not item.committed else []
    for text in list_problems(source, item.format, note, budget, whole=True):
        if len(problems) == _MOST_SAID:
            problems.append("and more")
            break
        problems.append(text)
    digests = sum(1 for _, digest in (note.files or {}).values() if digest)
    return Verification(tuple(dict.fromkeys(problems)), digests)
