"""External synchrony: what waits for the commit, and what a restart brings back."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.store.stores import SMALL, Opener, read, summary
from trainmaster.store.contract import Compacted, Watch
from trainmaster.store.memory import MemoryStore
from trainmaster.store.state import StoreState
from trainmaster.testing.virtual import run_virtual, settle

pytestmark = pytest.mark.contract


def test_durable_returns_at_once_for_what_is_committed(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.durable(0)
            revision = store.put("a", "x", b"").revision
            await store.durable(revision)
            assert store.durable_revision >= revision
            await store.durable(revision)

    run_virtual(main())


def test_waiting_for_a_revision_that_was_never_given_out_is_an_error(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            with pytest.raises(ValueError, match="not given out"):
                await store.durable(1)

    run_virtual(main())


def test_many_writers_share_commits_and_each_is_told(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:

            async def write(number: int) -> None:
                for turn in range(5):
                    record = store.put("a", f"w{number}", b"%d" % turn)
                    await store.durable(record.revision)
                    assert store.durable_revision >= record.revision

            await asyncio.gather(*(write(number) for number in range(40)))
            assert store.revision == store.durable_revision == 200

    run_virtual(main())


def test_a_writer_that_is_cancelled_while_it_waits_disturbs_nobody(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            revision = store.put("a", "x", b"").revision
            waiting = [asyncio.ensure_future(store.durable(revision)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert results[1:] == [None, None]
            await store.durable(store.put("a", "y", b"").revision)

    run_virtual(main())


def test_outside_watchers_wait_for_the_commit_and_inside_ones_do_not() -> None:
    async def main() -> None:
        store = MemoryStore(manual=True)
        inside, outside = store.watch("a", 0, durable=False), store.watch("a", 0)
        store.put("a", "x", b"")
        waiting = asyncio.ensure_future(store.durable(1))
        reading = asyncio.ensure_future(anext(store.watch("a", 0)))
        await settle()
        assert not reading.done()
        assert [event.revision for event in inside.take()] == [1]
        assert outside.take() == [] and outside.position == 0 and not waiting.done()
        store.commit()
        assert [event.revision for event in outside.take()] == [1] and outside.position == 1
        await waiting
        assert (await reading).revision == 1

    run_virtual(main())


async def _write_some(store: StoreState, count: int) -> None:
    for number in range(count):
        name = f"n{number % 7}"
        if number % 11 == 10 and store.get("a", name) is not None:
            store.delete("a", name, b"gone %d" % number)
        else:
            store.put("a", name, b"value %d" % number)
        if number % 3 == 0:
            await store.durable(store.revision)


def _state(store: StoreState) -> list[tuple[str, int, int, bytes]]:
    return [(record.name, record.revision, record.created, record.value) for record in store.scan("a")]


def test_a_restart_brings_back_records_and_revisions(open_durable: Opener) -> None:
    async def main() -> None:
        async with open_durable() as store:
            await _write_some(store, 200)
            before = _state(store), store.revision
        async with open_durable() as store:
            assert (_state(store), store.revision) == before
            assert store.durable_revision == store.revision
            assert store.put("a", "x", b"").revision == before[1] + 1

    run_virtual(main())


@pytest.mark.parametrize("count", [5, 40, 300])
def test_a_watch_resumes_across_a_restart_without_gap_or_duplicate(open_durable: Opener, count: int) -> None:
    async def main() -> None:
        async with open_durable(SMALL) as store:
            await _write_some(store, count)
            watch = store.watch("a", max(0, store.revision - 5))
            await store.durable(store.revision)
            want = [summary(event) for event in watch.take()]
            last = store.revision
        for _ in range(2):
            async with open_durable(SMALL) as store:
                resumed = store.watch("a", last - 5)
                assert [summary(event) for event in resumed.take()] == want
                store.put("other", "x", b"")
                store.put("a", "x", b"")
                assert [event.revision for event in await read(resumed, 1)] == [store.revision]
                store.delete("a", "x", b"")
                want = [summary(event) for event in store.history("a") if event.revision > store.revision - 5]
                last = store.revision
                await store.durable(last)

    run_virtual(main())


def test_history_that_was_dropped_stays_dropped_after_a_restart(open_durable: Opener) -> None:
    async def main() -> None:
        async with open_durable(SMALL) as store:
            for _ in range(30):
                await _write_some(store, 10)
            await asyncio.sleep(10)
        async with open_durable() as store:
            floor = next(store.history("a")).revision - 1
            assert floor > 200
            with pytest.raises(Compacted):
                store.watch("a", floor - 1)
            _assert_is_complete(store, store.watch("a", floor), floor)

    run_virtual(main())


def _assert_is_complete(store: StoreState, watch: Watch, floor: int) -> None:
    events = watch.take()
    assert [event.revision for event in events] == list(range(floor + 1, store.revision + 1))
    for event in events:
        assert (event.previous is None) == (event.record.created == event.revision)


def test_a_window_that_is_loaded_shorter_says_what_it_lacks(open_durable: Opener) -> None:
    async def main() -> None:
        async with open_durable() as store:
            for number in range(20):
                store.put("a", f"n{number}", b"")
            assert len(store.watch("a", 0, durable=False).take()) == 20
        async with open_durable(SMALL) as store:
            with pytest.raises(Compacted):
                store.watch("a", 20 - SMALL.events - 1)
            _assert_is_complete(store, store.watch("a", 20 - SMALL.events), 20 - SMALL.events)

    run_virtual(main())


def test_deleted_keys_stay_deleted_after_compaction_and_restart(open_durable: Opener) -> None:
    async def main() -> None:
        async with open_durable(SMALL) as store:
            for number in range(100):
                store.put("a", f"n{number}", b"")
                store.put("a", f"n{number}", b"again")
                store.delete("a", f"n{number}", b"")
                await store.durable(store.revision)
        for _ in range(3):
            async with open_durable(SMALL) as store:
                assert store.count("a") == 0
                assert store.revision == 300
                await asyncio.sleep(10)

    run_virtual(main())


def test_packed_records_read_and_change_like_others(open_store: Opener) -> None:
    values = {f"n{number}": b'{"text":"%s","number":%d}' % (b"the same " * 20, number) for number in range(8)}

    async def main() -> None:
        async with open_store() as store:
            for name, value in values.items():
                store.put("a", name, value)
            await store.settle(store.revision, [(record, b"note") for record in store.scan("a")])
            size = store.measure("a")
            assert {record.name: record.value for record in store.scan("a")} == values
            assert all(record.is_packed and record.note == b"note" for record in store.scan("a"))
            assert [record.size for record in store.scan("a")] == list(map(len, values.values()))
            watch = store.watch("a", 0)
            assert [event.record.value for event in await read(watch, 8)] == list(values.values())
            packed = store.get("a", "n0")
            assert packed is not None and packed.revision == packed.created == 1
            changed = store.put("a", "n0", b"new", expect=1)
            assert (changed.created, changed.note, changed.is_packed) == (1, None, False)
            (event,) = await read(watch, 1)
            assert event.previous is packed and packed.value == values["n0"]
            store.delete("a", "n1", b"gone")
            assert store.measure("a") == size

    run_virtual(main())


def test_what_was_packed_and_settled_is_so_after_a_restart(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number in range(4):
                store.put("a", f"n{number}", b"value %d" % number)
            await store.settle(store.revision, [(record, record.name.encode()) for record in store.scan("a")[:3]])
            store.put("a", "n1", b"new")
            await store.durable(store.revision)
            if isinstance(store, MemoryStore):
                return
        async with open_store() as store:
            assert store.settled_revision == 4
            found = [(record.value, record.note) for record in store.scan("a")]
            assert found == [(b"value 0", b"n0"), (b"new", None), (b"value 2", b"n2"), (b"value 3", None)]

    run_virtual(main())
