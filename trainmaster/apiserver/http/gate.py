"""Holds answers until the writes they report are on disk (external synchrony).

One task serves all waiting answers: it waits for the highest revision and releases everything that the commit covered,
so that a group commit costs one task switch for any number of writers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainmaster.store.contract import Store


class DurableGate:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def send_when_durable(self, revision: int, send: Callable[[], None]) -> None:
        """Calls `send` once the revision is durable: immediately if it already is, otherwise from the gate's task."""
        if revision <= self._store.durable_revision:
            send()
            return
        self._waiting.append((revision, send))
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._store.durable(max(revision for revision, _ in self._waiting))
                self._release()

    def _release(self) -> None:
        durable = self._store.durable_revision
        ready = [send for revision, send in self._waiting if revision <= durable]
        self._waiting = [entry for entry in self._waiting if entry[0] > durable]
        for send in ready:
            send()
