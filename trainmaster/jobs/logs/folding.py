"""Folds what torchrun prints about a failed worker, some forty lines per node, into one line. For people; `logs --raw`
and the APIs show everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from trainmaster.jobs.logs.contract import Entry, Line
from trainmaster.shim.output.launcher import LauncherFilter

_HINT = "`trainmaster logs --raw` shows its whole report"
REPORT_LINES = 200
"""More than torchrun prints about a worker."""


class LauncherFold:
    def __init__(self) -> None:
        self._filters: dict[tuple[str, str, int], LauncherFilter[Line]] = {}
        """One for each run of a container."""

    def feed(self, line: Line) -> list[Line]:
        """The lines to show now. A few may be held back until the next one of the same container."""
        key = (line.pod or f"{line.attempt}/{line.job}/{line.rank}", line.container, line.restart)
        if key not in self._filters:
            self._filters[key] = LauncherFilter[Line]()
        launcher = self._filters[key]
        if launcher.is_idle and not line.raw.startswith((b"Traceback ", b"  File ")) and b"torch" not in line.raw:
            return [line]  # most lines, without decoding them
        shown = launcher.feed(line.text, line)
        if news := launcher.take_news():
            shown.append(replace(line, raw=f"torchrun: {news} ({_HINT})".encode()))
        return shown

    def flush(self) -> list[Line]:
        """The lines that were held back, at the end."""
        return [line for launcher in self._filters.values() for line in launcher.flush()]


async def fold_entries(entries: AsyncGenerator[Entry, None], tail: int | None = None) -> AsyncGenerator[Entry, None]:
    """The folded stream. `tail`: at its end, the last lines of each rank; it must contain `REPORT_LINES` more."""
    fold, shown = LauncherFold(), list[Entry]()
    async with aclosing(entries):
        async for entry in entries:
            for one in fold.feed(entry) if isinstance(entry, Line) else (entry,):
                if tail is None:
                    yield one
                else:
                    shown.append(one)
    counts: Counter[tuple[str, int]] = Counter()
    last: list[Entry] = []
    for entry in reversed([*shown, *fold.flush()]):
        if isinstance(entry, Line):
            counts[entry.job, entry.rank] += 1
        if tail is None or not isinstance(entry, Line) or counts[entry.job, entry.rank] <= tail:
            last.append(entry)
    for entry in reversed(last):
        yield entry
