"""Concurrent writers and outside watchers on one store, reporting to a `Report` what they do."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from tests.crash.history import BUCKETS, Key
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import EventType, Store
from trainmaster.store.state import WindowLimits

KEYS_PER_WRITER = 25
# Small enough that compaction runs all the time, large enough to resume from the last delivered event.
LIMITS = WindowLimits(events=100, bytes=10_000_000)


class Report(Protocol):
    def attempt(self, key: Key, value: str | None) -> None: ...

    def ack(self, key: Key, revision: int) -> None: ...

    def deliver(self, key: Key, revision: int) -> None: ...


async def run_load(store: Store, report: Report, *, writers: int, seed: int, life: int) -> None:
    """Writes until it is cancelled or the store fails."""
    async with Scope("load") as scope:
        for bucket in BUCKETS:
            scope.spawn(_watch(store, bucket, report), name=f"watch {bucket}")
        async with asyncio.TaskGroup() as group:
            group.create_task(_settle(store))
            for number in range(writers):
                rng = random.Random(seed * 1_000_003 + life * 1_009 + number)
                group.create_task(_write(store, report, number, rng, life))


async def _settle(store: Store) -> None:
    """Packs what is there, again and again."""
    while True:
        await asyncio.sleep(0.01)
        found = [record for bucket in BUCKETS for record in store.scan(bucket) if not record.is_packed]
        await store.settle(store.revision, [(record, record.name.encode()) for record in found[:10]])


async def _write(store: Store, report: Report, writer: int, rng: random.Random, life: int) -> None:
    """One write at a time on keys of its own; now and then a transaction over two of them."""
    turn = 0
    while True:
        turn += 1
        keys = [(rng.choice(BUCKETS), f"w{writer}-{rng.randrange(KEYS_PER_WRITER)}")]
        if rng.random() < 0.2:
            other = (rng.choice(BUCKETS), f"w{writer}-{rng.randrange(KEYS_PER_WRITER)}")
            keys += [other] if other not in keys else []
        done: list[tuple[Key, int]] = []
        with store.transaction():
            for key in keys:
                done.append((key, _write_one(store, report, key, f"{life}.{writer}.{turn}", rng)))
        await asyncio.sleep(0)  # a store with a planted bug may not wait at all below
        await store.durable(done[-1][1])
        for key, revision in done:
            report.ack(key, revision)


def _write_one(store: Store, report: Report, key: Key, text: str, rng: random.Random) -> int:
    if store.get(*key) is not None and rng.random() < 0.3:
        report.attempt(key, None)
        return store.delete(*key, b"gone").revision
    report.attempt(key, text)
    return store.put(*key, text.encode().ljust(rng.choice((40, 900, 6000)))).revision


async def _watch(store: Store, bucket: str, report: Report) -> None:
    async for event in store.watch(bucket, store.revision):
        assert event.type is EventType.PUT or event.previous is not None
        report.deliver((bucket, event.record.name), event.revision)
