"""Any sequence of operations does what a simple model does, restarts and compaction included.

The model is a dict and a list of all writes ever made. It knows nothing of windows, commits and files.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.store.stores import Opener, memory_opener, sqlite_opener
from trainmaster.store.contract import ABSENT, Compacted, Event, EventType, Mismatch
from trainmaster.store.state import StoreState, WindowLimits
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.contract

BUCKETS = ("a", "b")
_bucket = st.sampled_from(BUCKETS)
_name = st.sampled_from(["x", "y", "ns/x", "ns/y", "ns0/x", "é"])
_value = st.binary(max_size=40)
_expect = st.sampled_from(["any", "absent", "current", "stale"])
_put = st.tuples(st.just("put"), _bucket, _name, _value, _expect)
_delete = st.tuples(st.just("delete"), _bucket, _name, _value, st.sampled_from(["any", "current", "stale"]))
_write = st.one_of(_put, _put, _delete)
_operation = st.one_of(
    _write,
    _write,
    _write,
    st.tuples(st.just("transaction"), st.lists(_write, max_size=6), st.booleans()),
    st.tuples(st.just("durable")),
    st.tuples(st.just("quiet")),
    st.tuples(st.just("reopen")),
)
_operations = st.lists(_operation, min_size=12, max_size=50)


class Undo(Exception):
    pass


@dataclass
class Model:
    writes: list[tuple[str, str, str, bytes, int]] = field(default_factory=list)
    """(bucket, type, name, value, revision that created the key), one per revision."""
    current: dict[tuple[str, str], tuple[int, int, bytes]] = field(default_factory=dict)
    """(bucket, name) -> (revision, created, value)"""

    def copy(self) -> Model:
        return Model(list(self.writes), dict(self.current))

    def apply(self, store: StoreState, kind: str, bucket: str, name: str, value: bytes, expect: str) -> None:
        held = self.current.get((bucket, name))
        fits = {"any": True, "absent": held is None, "current": held is not None, "stale": False}[expect]
        fits = fits and (kind == "put" or held is not None)
        wanted: Any = {
            "any": None,
            "absent": ABSENT,
            "current": held[0] if held else 10**9,
            "stale": held[0] - 1 if held else 0,
        }[expect]
        try:
            record = getattr(store, kind)(bucket, name, value, expect=wanted)
        except Mismatch as error:
            assert not fits
            assert (error.current.revision if error.current else None) == (held[0] if held else None)
            return
        assert fits
        revision = len(self.writes) + 1
        created = held[1] if held else revision
        assert (record.revision, record.created, record.value) == (revision, created, value)
        self.writes.append((bucket, kind, name, value, created))
        if kind == "put":
            self.current[bucket, name] = (revision, created, value)
        else:
            del self.current[bucket, name]

    def check(self, store: StoreState) -> None:
        assert store.revision == len(self.writes)
        for bucket in BUCKETS:
            want = sorted((name, *held) for (place, name), held in self.current.items() if place == bucket)
            got = [(record.name, record.revision, record.created, record.value) for record in store.scan(bucket)]
            assert got == want
            assert [record.name for record in store.scan(bucket, "ns/")] == [
                name for name, *_ in want if name.startswith("ns/")
            ]
            self.check_history(bucket, list(store.history(bucket)))

    def check_history(self, bucket: str, events: list[Event]) -> None:
        """The window is the end of what happened in the bucket, without a hole."""
        all_writes = [(number + 1, *write[1:]) for number, write in enumerate(self.writes) if write[0] == bucket]
        got = [
            (event.revision, event.type.value, event.record.name, event.record.value, event.record.created)
            for event in events
        ]
        assert got == (all_writes[-len(got) :] if got else [])
        for event in events:
            assert (event.previous is None) == (event.record.created == event.revision)
            assert event.previous is not None or event.type is EventType.PUT
            if event.previous is not None:
                want = max(row[0] for row in all_writes if row[2] == event.record.name and row[0] < event.revision)
                assert event.previous.revision == want


async def _run(opener: Opener, operations: list[Any], limits: WindowLimits, durable: bool) -> None:
    model = Model()
    manager = opener(limits)
    store = await manager.__aenter__()
    try:
        for operation in operations:
            match operation:
                case ("put" | "delete", *_):
                    model.apply(store, *operation)
                case ("transaction", writes, fails):
                    model = _transact(store, model, writes, fails)
                case ("durable",):
                    await store.durable(store.revision)
                case ("quiet",):
                    await asyncio.sleep(60)
                case ("reopen",) if durable:
                    await manager.__aexit__(None, None, None)
                    manager = opener(limits)
                    store = await manager.__aenter__()
            model.check(store)
            _check_watches(store, model)
    finally:
        await manager.__aexit__(None, None, None)


def _transact(store: StoreState, model: Model, writes: list[Any], fails: bool) -> Model:
    changed = model.copy()
    try:
        with store.transaction():
            for write in writes:
                changed.apply(store, *write)
            if fails:
                raise Undo
    except Undo:
        return model
    return changed


def _check_watches(store: StoreState, model: Model) -> None:
    """From every revision a watch either replays exactly what follows or is refused."""
    for bucket in BUCKETS:
        floor = None
        for after in range(store.revision + 1):
            try:
                watch = store.watch(bucket, after, durable=False)
            except Compacted:
                assert floor is None, "what is served from some revision is served from every later one"
                continue
            floor = after
            want = [n + 1 for n, write in enumerate(model.writes) if write[0] == bucket and n + 1 > after]
            assert [event.revision for event in watch.take()] == want
            watch.close()


_limits = st.sampled_from([WindowLimits(events=3, bytes=10_000), WindowLimits(events=100, bytes=60), WindowLimits()])


@settings(max_examples=150, deadline=None)
@given(operations=_operations, limits=_limits)
def test_the_memory_store_does_what_the_model_does(operations: list[Any], limits: WindowLimits) -> None:
    run_virtual(_run(memory_opener(Path()), operations, limits, durable=False))


@settings(max_examples=60, deadline=None)
@given(operations=_operations, limits=_limits, commit=st.sampled_from(["inline", "thread"]))
def test_the_sqlite_store_does_what_the_model_does(operations: list[Any], limits: WindowLimits, commit: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run_virtual(_run(sqlite_opener(Path(directory), commit), operations, limits, durable=True))
