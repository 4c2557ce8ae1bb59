"""The stores that the contract suite runs against, and a reader for watches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from trainmaster.store.contract import Event, Watch
from trainmaster.store.memory import MemoryStore
from trainmaster.store.sqlite import SqliteOptions, SqliteStore
from trainmaster.store.state import StoreState, WindowLimits
from trainmaster.testing.virtual import VirtualClock

Opener = Callable[..., AbstractAsyncContextManager[StoreState]]

SMALL = WindowLimits(events=8, bytes=1_000_000)


def memory_opener(_: Path) -> Opener:
    @asynccontextmanager
    async def open_store(limits: WindowLimits = WindowLimits()) -> AsyncIterator[StoreState]:  # noqa: B008 - immutable
        store = MemoryStore(limits)
        try:
            yield store
        finally:
            store.close()

    return open_store


def sqlite_opener(directory: Path, commit: str) -> Opener:
    @asynccontextmanager
    async def open_store(limits: WindowLimits = WindowLimits()) -> AsyncIterator[StoreState]:  # noqa: B008 - immutable
        options = SqliteOptions(limits=limits, commit=commit, compact_rows=4, checkpoint_pages=16)
        async with SqliteStore.open(directory / "store", VirtualClock(), options) as store:
            yield store

    return open_store


async def read(watch: Watch, count: int) -> list[Event]:
    """Exactly that many events, waited for if need be."""
    return [await anext(watch) for _ in range(count)]


def summary(event: Event) -> tuple[int, str, str, bytes, int | None]:
    previous = event.previous.revision if event.previous is not None else None
    return event.revision, event.type.value, event.record.name, event.record.value, previous
