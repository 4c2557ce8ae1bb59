"""Entries of a log stream in batches: they are handed on together, and their number and size is limited."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from trainmaster.jobs.logs.contract import Entry, Line

_ENTRIES = 1000
_BYTES = 1 << 16


class BatchBuilder:
    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._size = 0

    def add(self, entry: Entry) -> list[Entry]:
        """The batch if it is full now, else nothing."""
        self._entries.append(entry)
        self._size += len(entry.raw) if isinstance(entry, Line) else 0
        return self.take() if len(self._entries) >= _ENTRIES or self._size >= _BYTES else []

    def take(self) -> list[Entry]:
        batch, self._entries, self._size = self._entries, [], 0
        return batch


async def gather_batches(entries: AsyncGenerator[Entry, None]) -> AsyncGenerator[list[Entry], None]:
    """For entries that exist already. If reading them fails, those before the failure are returned."""
    batch = BatchBuilder()
    try:
        async with aclosing(entries):
            async for entry in entries:
                if full := batch.add(entry):
                    yield full
    except Exception:
        if rest := batch.take():
            yield rest
        raise
    if rest := batch.take():
        yield rest
