"""Keys, revisions and compare-and-set."""

from __future__ import annotations

import contextlib

import pytest

from tests.contract.store.stores import Opener
from trainmaster.store.contract import ABSENT, Mismatch, StoreError
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.contract


def test_every_write_takes_the_next_revision(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            assert store.revision == 0
            assert store.put("a", "x", b"1").revision == 1
            assert store.put("b", "x", b"2").revision == 2
            assert store.delete("a", "x", b"3").revision == 3
            assert store.revision == 3

    run_virtual(main())


def test_a_record_remembers_the_revision_that_created_it(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            store.put("a", "x", b"1")
            assert store.put("a", "x", b"2").created == 1
            store.delete("a", "x", b"3")
            assert store.put("a", "x", b"4").created == 4

    run_virtual(main())


def test_create_refuses_an_existing_key_and_shows_it(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            first = store.put("a", "x", b"1", expect=ABSENT)
            with pytest.raises(Mismatch) as caught:
                store.put("a", "x", b"2", expect=ABSENT)
            assert caught.value.current is first
            assert store.revision == 1

    run_virtual(main())


@pytest.mark.parametrize("expect", [1, 3])
def test_update_refuses_any_other_revision(open_store: Opener, expect: int) -> None:
    async def main() -> None:
        async with open_store() as store:
            store.put("a", "x", b"1")
            second = store.put("a", "x", b"2", expect=1)
            with pytest.raises(Mismatch) as caught:
                store.put("a", "x", b"3", expect=expect)
            assert caught.value.current is second
            with pytest.raises(Mismatch):
                store.delete("a", "x", b"3", expect=expect)
            assert store.get("a", "x") is second

    run_virtual(main())


def test_update_and_delete_of_a_missing_key_are_refused(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            with pytest.raises(Mismatch) as caught:
                store.put("a", "x", b"", expect=7)
            assert caught.value.current is None
            with pytest.raises(Mismatch):
                store.delete("a", "x", b"")
            assert store.revision == 0

    run_virtual(main())


def test_a_scan_is_in_byte_order_and_pages_by_name(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            names = ["a/b", "a-b/c", "a/é", "a/z", "b/a", "a/\U0001f600", "a/\uffff"]
            for name in names:
                store.put("x", name, name.encode())
            ordered = sorted(names, key=lambda name: name.encode())
            assert [record.name for record in store.scan("x")] == ordered
            inside = [name for name in ordered if name.startswith("a/")]
            assert [record.name for record in store.scan("x", "a/")] == inside
            assert store.count("x", "a/") == len(inside)
            assert [record.name for record in store.scan("x", "a/", after=inside[1], limit=2)] == inside[2:4]
            assert [record.name for record in store.scan("x", "b/", after="a/z")] == ["b/a"]
            assert store.scan("x", "c/") == [] and store.count("x", "c/") == 0

    run_virtual(main())


def test_an_unknown_bucket_is_empty(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            assert store.get("nothing", "x") is None
            assert store.scan("nothing") == []
            assert store.count("nothing") == 0
            assert list(store.history("nothing")) == []
            assert list(store.buckets()) == []

    run_virtual(main())


def test_buckets_are_those_with_records(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            store.put("b", "x", b"")
            store.put("a", "x", b"")
            store.delete("a", "x", b"")
            assert list(store.buckets()) == ["b"]

    run_virtual(main())


def test_a_name_that_utf8_cannot_hold_is_refused_at_once(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            with pytest.raises(ValueError, match="surrogates"):
                store.put("a", "bad\ud800", b"")
            assert store.revision == 0 and store.count("a") == 0
            await store.durable(store.put("a", "good", b"").revision)

    run_virtual(main())


def test_many_names_stay_sorted_while_they_come_and_go(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            names = [f"n/{(number * 7919) % 5000:05d}" for number in range(5000)]
            with store.transaction():
                for name in names:
                    store.put("a", name, b"")
                for name in names[::3]:
                    store.delete("a", name, b"")
            kept = sorted(set(names) - set(names[::3]))
            assert [record.name for record in store.scan("a")] == kept
            assert store.count("a", "n/01") == sum(name.startswith("n/01") for name in kept)

    run_virtual(main())


def test_a_closed_store_refuses_writes_and_ends_watches(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            store.put("a", "x", b"1")
            watch = store.watch("a", 1)
        with pytest.raises(StoreError, match="closed"):
            store.put("a", "x", b"2")
        assert [event async for event in watch] == []

    run_virtual(main())


def test_bytes_are_counted_by_namespace(open_store: Opener) -> None:
    async def main() -> None:
        async with open_store() as store:
            store.put("a", "ann/x", b"12345")
            store.put("a", "anna/x", b"1")
            store.put("b", "ann/x", b"123")
            store.put("c", "ann", b"of nobody")
            assert [store.measure(name) for name in ("ann", "anna", "bob")] == [8, 1, 0]
            store.put("a", "ann/x", b"1")
            store.put("b", "ann/y", b"12")
            assert store.measure("ann") == 6
            with contextlib.suppress(ZeroDivisionError), store.transaction():
                store.delete("a", "ann/x", b"last words do not count")
                store.put("b", "ann/x", b"1" * 100)
                store.put("b", "ann/z", b"1" * 100)
                assert store.measure("ann") == 202
                1 / 0  # noqa: B018
            assert store.measure("ann") == 6
            for bucket, name in (("a", "x"), ("b", "x"), ("b", "y")):
                store.delete(bucket, f"ann/{name}", b"gone")
            assert store.measure("ann") == 0

    run_virtual(main())
