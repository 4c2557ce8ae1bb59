from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from trainmaster.kit.scopes import Scope
from trainmaster.store import database
from trainmaster.store.backup import backup, read_bucket, restore
from trainmaster.store.contract import Compacted, Locked, Mismatch, NewerSchema, StoreError
from trainmaster.store.salvage import REVISION_JUMP
from trainmaster.store.sqlite import SqliteOptions, SqliteStore
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def _records(store: SqliteStore) -> dict[str, tuple[int, bytes]]:
    return {record.name: (record.revision, record.value) for record in store.scan("a")}


async def _make_backup(home: Path, file: Path) -> dict[str, tuple[int, bytes]]:
    async with SqliteStore.open(home, VirtualClock()) as store:
        for number in range(100):
            store.put("a", f"n{number % 10}", b"%d" % number)
        store.delete("a", "n3", b"")
        await store.settle(store.revision, [(record, b"") for record in store.scan("a")[:4]])
        await backup(store, file)
        return _records(store)


def test_a_restored_backup_holds_the_same_objects(tmp_path: Path) -> None:
    async def main() -> None:
        want = await _make_backup(tmp_path / "old", tmp_path / "copy")
        assert restore(tmp_path / "copy", tmp_path / "new") == 101 + REVISION_JUMP
        async with SqliteStore.open(tmp_path / "new", VirtualClock()) as store:
            assert _records(store) == want
            assert len(want) == 9
            assert sum(record.is_packed for record in store.scan("a")) == 4
        assert sorted(read_bucket(tmp_path / "copy", "a")) == sorted(value for _, value in want.values())

    run_virtual(main())


def test_no_revision_from_before_a_restore_means_anything_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        await _make_backup(tmp_path / "old", tmp_path / "copy")
        async with SqliteStore.open(tmp_path / "old", VirtualClock()) as store:
            later = store.put("a", "n1", b"after the backup").revision
        jumped = restore(tmp_path / "copy", tmp_path / "new")
        for _ in range(2):
            async with SqliteStore.open(tmp_path / "new", VirtualClock()) as store:
                assert store.revision >= jumped > later
                for bucket in ("a", "never seen"):
                    for after in (0, 50, later):
                        with pytest.raises(Compacted):
                            store.watch(bucket, after)
                with pytest.raises(Mismatch):
                    store.put("a", "n1", b"", expect=later)
                watch = store.watch("a", store.revision)
                written = store.put("a", "n2", b"").revision
                assert written > jumped
                assert (await anext(watch)).revision == written

    run_virtual(main())


def test_a_backup_taken_under_load_is_consistent_and_has_every_earlier_write(tmp_path: Path) -> None:
    async def main() -> None:
        options = SqliteOptions(checkpoint_pages=64, compact_rows=16)
        async with SqliteStore.open(tmp_path / "old", VirtualClock(), options) as store, Scope("load") as scope:

            async def write() -> None:
                number = 0
                while True:
                    with store.transaction():
                        store.put("a", f"left{number % 50}", b"%d" % number * 300)
                        store.put("a", f"right{number % 50}", b"%d" % number * 300)
                    await store.durable(store.revision)
                    number += 1

            for number in range(3000):
                store.put("b", f"n{number}", bytes(2000))
            load = scope.spawn(write(), name="load")
            await asyncio.sleep(0)
            revision = await backup(store, tmp_path / "copy")
            assert store.revision > revision, "writes went on meanwhile"
            load.cancel()
        restore(tmp_path / "copy", tmp_path / "new")
        async with SqliteStore.open(tmp_path / "new", VirtualClock()) as store:
            assert store.count("b") == 3000
            records = _records(store)
            for name, (_, value) in records.items():
                if name.startswith("left"):
                    assert records[name.replace("left", "right")][1] == value, "a transaction is there as a whole"

    run_virtual(main())


def test_a_backup_overwrites_nothing_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "copy").write_text("precious")
        with pytest.raises(StoreError, match="exists"):
            await _make_backup(tmp_path / "old", tmp_path / "copy")
        assert (tmp_path / "copy").read_text() == "precious"
        with pytest.raises(FileNotFoundError):
            await _make_backup(tmp_path / "old", tmp_path / "missing" / "copy")

    run_virtual(main())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "old"]


def test_a_backup_is_one_private_file(tmp_path: Path) -> None:
    run_virtual(_make_backup(tmp_path / "old", tmp_path / "copy"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "old"]
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


def test_restore_refuses_a_directory_that_has_a_store(tmp_path: Path) -> None:
    run_virtual(_make_backup(tmp_path / "old", tmp_path / "copy"))
    with pytest.raises(StoreError, match="has a store already"):
        restore(tmp_path / "copy", tmp_path / "old")


def test_restore_refuses_a_store_in_use(tmp_path: Path) -> None:
    run_virtual(_make_backup(tmp_path / "old", tmp_path / "copy"))
    with database.hold_lock(tmp_path / "new"), pytest.raises(Locked, match="in use by process"):
        restore(tmp_path / "copy", tmp_path / "new")


def _damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    page = database.PAGE_BYTES
    content[page : 3 * page] = bytes(2 * page)
    file.write_bytes(content)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:3000])


def _replace(file: Path) -> None:
    file.write_text("not a database at all, but long enough to have a header" * 20)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("spoil", [_damage, _cut, _replace, _empty])
def test_restore_refuses_a_damaged_backup_and_leaves_nothing(tmp_path: Path, spoil: object) -> None:
    run_virtual(_make_backup(tmp_path / "old", tmp_path / "copy"))
    assert callable(spoil)
    spoil(tmp_path / "copy")
    with pytest.raises(StoreError):
        restore(tmp_path / "copy", tmp_path / "new")
    assert not (tmp_path / "new" / database.FILE).exists()
    assert not list((tmp_path / "new").glob("*.partial"))


def test_restore_refuses_a_backup_of_a_newer_version(tmp_path: Path) -> None:
    run_virtual(_make_backup(tmp_path / "old", tmp_path / "copy"))
    connection = apsw.Connection(str(tmp_path / "copy"))
    connection.pragma("user_version", database.SCHEMA_VERSION + 1)
    connection.close()
    with pytest.raises(NewerSchema, match="newer version"):
        restore(tmp_path / "copy", tmp_path / "new")


def test_restore_names_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        restore(tmp_path / "nothing", tmp_path / "new")
