"""Order, no gap, no duplicate, bounds."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.store.stores import SMALL, Opener, read, summary
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import Compacted, Lagging
from trainmaster.store.state import WindowLimits
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.contract


def test_a_watch_replays_and_then_follows(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            store.put("a", "x", b"1")
            store.put("b", "other", b"")
            store.put("a", "x", b"2")
            watch = store.watch("a", 0)
            store.delete("a", "x", b"3")
            got = [summary(event) for event in await read(watch, 3)]
            assert got == [(1, "put", "x", b"1", None), (3, "put", "x", b"2", 1), (4, "delete", "x", b"3", 3)]

    run_virtual(main())


def test_a_watch_from_the_middle_gets_only_what_came_after(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number in range(5):
                store.put("a", f"n{number}", b"")
            assert [event.revision for event in await read(store.watch("a", 3), 2)] == [4, 5]
            assert store.watch("a", 5).take() == []

    run_virtual(main())


def test_a_waiting_reader_is_woken(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store, Scope("readers") as scope:
            inside = scope.spawn(read(store.watch("a", 0, durable=False), 2), name="inside")
            outside = scope.spawn(read(store.watch("a", 0), 2), name="outside")
            await asyncio.sleep(1)
            store.put("a", "x", b"1")
            await asyncio.sleep(1)
            store.put("a", "y", b"2")
            assert [event.revision for event in await inside] == [1, 2]
            assert [event.revision for event in await outside] == [1, 2]

    run_virtual(main())


def test_a_listener_takes_what_comes_until_it_refuses(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store, Scope("readers") as scope:
            watch = store.watch("a", 0)
            heard: list[int] = []

            def listen() -> bool:
                if len(heard) == 2:
                    return False
                heard.extend(event.revision for event in watch.take())
                return True

            watch.listen(listen)
            waiting = scope.spawn(watch.ready(), name="reader")
            await asyncio.sleep(1)
            for name in ("x", "y", "z", "last"):
                assert not waiting.done() or name == "last"
                store.put("a", name, b"")
                await asyncio.sleep(1)
            assert heard == [1, 2] and waiting.done()
            assert [event.revision for event in watch.take()] == [3, 4]

    run_virtual(main())


def test_a_watch_that_asks_too_far_back_is_told_so(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store(SMALL) as store:
            for number in range(20):
                store.put("a", "x", b"%d" % number)
                await store.durable(store.revision)
            oldest = next(store.history("a")).revision
            assert oldest > 1
            with pytest.raises(Compacted) as caught:
                store.watch("a", oldest - 2)
            assert caught.value.oldest == oldest - 1
            revisions = [event.revision for event in store.watch("a", oldest - 1).take()]
            assert revisions == list(range(oldest, 21))

    run_virtual(main())


def test_a_revision_from_the_future_is_refused(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            store.put("a", "x", b"")
            with pytest.raises(Compacted):
                store.watch("a", 2)

    run_virtual(main())


def test_a_busy_bucket_does_not_shorten_the_history_of_a_quiet_one(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store(SMALL) as store:
            store.put("quiet", "x", b"")
            for _ in range(100):
                store.put("busy", "x", b"")
                await store.durable(store.revision)
            assert [event.revision for event in store.watch("quiet", 0).take()] == [1]
            with pytest.raises(Compacted):
                store.watch("busy", 50)

    run_virtual(main())


def test_a_window_is_bounded_by_bytes_too(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store(WindowLimits(events=1000, bytes=10_000)) as store:
            for _ in range(100):
                store.put("a", "x", bytes(1000))
                await store.durable(store.revision)
            assert sum(len(event.record.value) for event in store.history("a")) <= 11_000

    run_virtual(main())


def test_a_watcher_that_does_not_read_is_dropped_and_others_are_not(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store(SMALL) as store:
            slow, fast = store.watch("a", 0), store.watch("a", 0)
            got: list[int] = []
            for _ in range(50):
                store.put("a", "x", b"")
                await store.durable(store.revision)
                got += [event.revision for event in fast.take()]
            assert got == list(range(1, 51))
            with pytest.raises(Lagging):
                slow.take()
            with pytest.raises(Lagging):
                await anext(slow)

    run_virtual(main())


def test_a_transaction_larger_than_the_window_reaches_watchers_that_read(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store(SMALL) as store:
            watch = store.watch("a", 0)
            with store.transaction():
                for number in range(100):
                    store.put("a", f"n{number}", b"")
            await store.durable(100)
            assert [event.revision for event in watch.take()] == list(range(1, 101))

    run_virtual(main())


def test_the_position_never_runs_ahead_of_events_still_to_come(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            watch = store.watch("a", 0)
            assert watch.position == 0
            store.put("b", "x", b"")
            store.put("b", "y", b"")
            store.put("a", "x", b"")
            await store.durable(3)
            assert watch.position == 2
            watch.take()
            assert watch.position == 3
            store.put("b", "z", b"")
            await store.durable(4)
            assert watch.position == 4

    run_virtual(main())


def test_a_closed_watch_ends_its_iteration(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store, Scope("reader") as scope:
            watch = store.watch("a", 0)

            async def drain() -> list[int]:
                return [event.revision async for event in watch]

            reader = scope.spawn(drain(), name="drain")
            store.put("a", "x", b"")
            await asyncio.sleep(1)
            watch.close()
            watch.close()
            assert await reader == [1]
            store.put("a", "y", b"")
            assert watch.take() == []

    run_virtual(main())


def test_a_cancelled_reader_loses_no_event(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            watch = store.watch("a", 0)
            for number in range(1, 6):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await anext(watch)
                store.put("a", "x", b"")
                assert (await anext(watch)).revision == number

    run_virtual(main())
