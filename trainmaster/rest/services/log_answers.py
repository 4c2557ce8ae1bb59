"""The output of a job's workers as one answer: merged by time, attempt by attempt, limited to its end.

For an existing job it comes from its Pods and kept logs of earlier ones; for a deleted one from history. Streams are in
`streams`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from trainmaster.jobs.logs.contract import Entry, Line

BYTES = 8 * 1024 * 1024
"""The size of the log's end that one answer contains."""
LINES = 100_000


@dataclass(frozen=True, slots=True)
class Printed:
    lines: list[dict[str, Any]]
    truncated: bool


async def read_end(entries: AsyncGenerator[Entry, None], most: int | None) -> Printed:
    """The last lines, at most `most`; closes the generator."""
    limit = LINES if most is None else min(most, LINES)
    kept: deque[Line] = deque()
    size, truncated = 0, False
    async with aclosing(entries):
        async for entry in entries:
            if not isinstance(entry, Line):
                continue
            kept.append(entry)
            size += len(entry.raw)
            while kept and (len(kept) > limit or size > BYTES):
                size -= len(kept.popleft().raw)
                truncated = True
    return Printed([build_line(line) for line in kept], truncated)


def build_line(line: Line) -> dict[str, Any]:
    return {
        "attempt": line.attempt,
        "job": line.job,
        "worker": line.rank,
        "container": line.container,
        "time": line.time,
        "text": line.text,
    }
