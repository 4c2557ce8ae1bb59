"""All writes of a transaction, or none."""

from __future__ import annotations

import pytest

from tests.contract.store.stores import Opener
from trainmaster.store.contract import Event
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.contract


class Abandon(Exception):
    pass


def test_an_exception_undoes_all_writes_and_frees_their_revisions(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            kept = store.put("a", "old", b"1")
            watch = store.watch("a", 1, durable=False)
            with pytest.raises(Abandon), store.transaction():
                store.put("a", "new", b"2")
                store.put("a", "old", b"3")
                store.delete("a", "old", b"4")
                store.put("a", "old", b"5")
                assert store.revision == 5
                raise Abandon
            assert store.revision == 1
            assert store.get("a", "old") is kept
            assert [record.name for record in store.scan("a")] == ["old"]
            assert watch.take() == []
            assert store.put("a", "next", b"").revision == 2
            assert [event.revision for event in watch.take()] == [2]

    run_virtual(main())


def test_reads_inside_see_the_writes_made_so_far(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            with store.transaction():
                record = store.put("a", "x", b"1")
                assert store.get("a", "x") is record
                store.delete("a", "x", b"2", expect=record.revision)
                assert store.get("a", "x") is None
                assert store.count("a") == 0

    run_virtual(main())


def test_watchers_and_subscribers_see_nothing_before_the_end(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            seen: list[list[int]] = []
            store.subscribe(lambda events: seen.append([event.revision for event in events]))
            watch = store.watch("a", 0, durable=False)
            with store.transaction():
                store.put("a", "x", b"1")
                store.put("b", "x", b"1")
                assert watch.take() == [] and seen == []
            assert [event.revision for event in watch.take()] == [1]
            assert seen == [[1, 2]]

    run_virtual(main())


def test_a_nested_transaction_joins_the_outer_one(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            seen: list[int] = []
            store.subscribe(lambda events: seen.append(len(events)))
            with store.transaction():
                store.put("a", "x", b"1")
                with store.transaction():
                    store.put("a", "y", b"2")
                assert seen == []
            assert seen == [2]
            with pytest.raises(Abandon), store.transaction():
                with store.transaction():
                    store.put("a", "z", b"3")
                raise Abandon
            assert store.get("a", "z") is None and store.revision == 2

    run_virtual(main())


def test_a_nested_transaction_that_fails_takes_back_only_its_own_writes(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            with store.transaction():
                store.put("a", "x", b"1")
                with pytest.raises(Abandon), store.transaction():
                    store.put("a", "y", b"2")
                    raise Abandon
                store.put("a", "z", b"3")
            assert [(record.name, record.revision) for record in store.scan("a")] == [("x", 1), ("z", 2)]

    run_virtual(main())


def test_writes_of_a_subscriber_are_seen_by_all_after_those_that_caused_them(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            order: list[tuple[str, int]] = []

            def cascade(events: object) -> None:
                if store.get("a", "child") is not None:
                    store.delete("a", "child", b"")

            store.put("a", "owner", b"")
            store.put("a", "child", b"")
            store.subscribe(cascade)
            store.subscribe(lambda events: order.extend(("second", event.revision) for event in events))
            store.delete("a", "owner", b"")
            assert order == [("second", 3), ("second", 4)]
            assert [event.revision for event in store.watch("a", 0, durable=False).take()] == [1, 2, 3, 4]

    run_virtual(main())


def test_a_subscriber_that_fails_does_not_hide_the_write_from_others(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            seen: list[Event] = []

            def broken(events: object) -> None:
                raise Abandon

            store.subscribe(broken)
            end = store.subscribe(seen.extend)
            with pytest.raises(Abandon):
                store.put("a", "x", b"1")
            assert [event.revision for event in seen] == [1]
            await store.durable(1)
            end()
            with pytest.raises(Abandon):
                store.put("a", "x", b"2")
            assert len(seen) == 1

    run_virtual(main())
