"""The file and its life: locks, versions, size, failures."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from trainmaster.kit import failpoints
from trainmaster.store import database
from trainmaster.store.compaction import Slice, remove_rows
from trainmaster.store.contract import Locked, NewerSchema, NoSpace, StoreError
from trainmaster.store.disk import SyncGauge, measure_sync
from trainmaster.store.sqlite import SqliteOptions, SqliteStore
from trainmaster.store.state import WindowLimits
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

SMALL = WindowLimits(events=50, bytes=1_000_000)


def _file_size(home: Path) -> int:
    return sum((home / name).stat().st_size for name in os.listdir(home))


async def _touch(home: Path) -> None:
    async with SqliteStore.open(home, VirtualClock()) as store:
        store.put("a", "x", b"1")


def test_a_second_opener_is_told_which_process_has_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock()):
            with pytest.raises(Locked, match=f"in use by process {os.getpid()}"):
                await _touch(tmp_path)
        await _touch(tmp_path)

    run_virtual(main())


def test_another_program_cannot_write_to_an_open_store(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            await store.durable(store.put("a", "x", b"1").revision)
            stranger = apsw.Connection(str(tmp_path / database.FILE))
            with pytest.raises(apsw.BusyError):
                stranger.execute("DELETE FROM log")
            stranger.close()

    run_virtual(main())


def test_a_store_open_in_another_program_is_refused(tmp_path: Path) -> None:
    run_virtual(_touch(tmp_path))
    stranger = apsw.Connection(str(tmp_path / database.FILE))
    stranger.execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE").fetchall()
    with pytest.raises(Locked, match="another program"):
        run_virtual(_touch(tmp_path))
    stranger.close()


def test_a_file_of_a_newer_version_is_refused_with_advice_and_left_alone(tmp_path: Path) -> None:
    run_virtual(_touch(tmp_path))
    connection = apsw.Connection(str(tmp_path / database.FILE))
    connection.pragma("user_version", database.SCHEMA_VERSION + 1)
    connection.close()
    before = (tmp_path / database.FILE).read_bytes()
    with pytest.raises(NewerSchema, match=r"newer version.*Install that version again, or restore a backup"):
        run_virtual(_touch(tmp_path))
    assert (tmp_path / database.FILE).read_bytes() == before


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / database.FILE))
    connection.execute("CREATE TABLE precious (x)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        run_virtual(_touch(tmp_path))


def test_a_damaged_file_is_refused_with_advice(tmp_path: Path) -> None:
    async def fill() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            for number in range(500):
                store.put("a", f"n{number}", bytes(500))

    run_virtual(fill())
    content = bytearray((tmp_path / database.FILE).read_bytes())
    content[8192 : len(content) // 2] = b"\xa5" * (len(content) // 2 - 8192)
    (tmp_path / database.FILE).write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged.*Restore a backup"):
        run_virtual(_touch(tmp_path))


def test_the_files_are_private(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteStore.open(tmp_path / "home", VirtualClock()) as store:
            await store.durable(store.put("a", "x", b"1").revision)
            modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir()}
            assert set(modes.values()) == {0o600} and "store.db-wal" in modes
            assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700

    run_virtual(main())


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_overwriting_forever_keeps_the_files_bounded(tmp_path: Path, commit: str) -> None:
    async def main() -> None:
        options = SqliteOptions(limits=SMALL, commit=commit, checkpoint_pages=50)
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            sizes = []
            for _ in range(8):
                for number in range(600):
                    store.put("a", f"n{number % 20}", os.urandom(3000))
                    if number % 4 == 0:
                        await store.durable(store.revision)
                sizes.append(_file_size(tmp_path))
            # 14 MB were written in all; live: 20 values, 50 in the window, the garbage of a slice, and the log.
            assert max(sizes) < 3_000_000
            assert sizes[-1] <= sizes[2] * 1.1

    run_virtual(main())


def test_creating_and_deleting_forever_keeps_the_files_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        options = SqliteOptions(limits=SMALL, commit="inline", checkpoint_pages=50)
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            for number in range(3000):
                store.put("a", f"n{number}", os.urandom(3000))
                store.delete("a", f"n{number}", b"")
                await store.durable(store.revision)
            assert _file_size(tmp_path) < 3_000_000
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            assert store.count("a") == 0 and store.revision == 6000

    run_virtual(main())


def test_when_it_is_quiet_only_what_is_needed_stays_in_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        options = SqliteOptions(limits=SMALL, compact_rows=10_000)
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            for number in range(2000):
                store.put("a", f"n{number % 10}", b"%d" % number)
                await store.durable(store.revision)
            await asyncio.sleep(10)
            assert (tmp_path / "store.db-wal").stat().st_size > 0
        connection = apsw.Connection(str(tmp_path / database.FILE))
        rows = connection.execute("SELECT count(*) FROM log").get
        connection.close()
        assert 50 <= rows <= 75, "the window, and what its events need to know about before"

    run_virtual(main())


def test_the_newest_revision_survives_the_removal_of_its_row(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            store.put("a", "x", b"")
            store.delete("a", "x", b"")
            await store.durable(2)
            part = Slice([1, 2], {"a": 2}, 2)
            assert await store.run_exclusive(lambda file: remove_rows(file, part, VirtualClock(), None)) == 2
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            assert store.put("a", "x", b"").revision == 3

    run_virtual(main())


def test_a_slice_ends_when_its_time_is_over(tmp_path: Path) -> None:
    class Ticking(VirtualClock):
        def monotonic(self) -> float:
            self.advance(0.001)
            return super().monotonic()

    async def main() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            part = Slice(range(1, 1000), {}, 0)
            removed = await store.run_exclusive(lambda file: remove_rows(file, part, Ticking(), 0.002))
            assert 0 < removed < 100

    run_virtual(main())


def test_a_cancelled_job_keeps_the_connection_until_its_thread_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock(), SqliteOptions(commit="inline")) as store:
            begun, go_on = threading.Event(), threading.Event()

            def wait_for_the_test(_: object) -> bool:
                begun.set()
                return go_on.wait(10)

            job = asyncio.ensure_future(store.run_exclusive(wait_for_the_test))
            assert await asyncio.to_thread(begun.wait, 10)
            job.cancel()
            await settle()
            revision = store.put("a", "x", b"").revision
            await settle()
            assert job.cancelled() and store.durable_revision == 0
            go_on.set()
            await store.durable(revision)

    run_virtual(main())


@pytest.mark.parametrize("commit", ["inline", "thread"])
def test_a_failed_commit_is_fatal_and_acknowledges_nothing(tmp_path: Path, commit: str) -> None:
    calls: list[str] = []

    async def main() -> None:
        options = SqliteOptions(commit=commit, fatal=lambda what, error: calls.append(f"{what}: {error}"))
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            watch = store.watch("a", 0)
            await store.durable(store.put("a", "before", b"").revision)
            failpoints.arm("store.before_commit=error(no space left on device)")
            revision = store.put("a", "lost", b"").revision
            with pytest.raises(StoreError, match="no space left"):
                await store.durable(revision)
            assert [event.record.name for event in watch.take()] == ["before"]
            assert store.durable_revision == 1
            with pytest.raises(StoreError, match="no space left"):
                store.put("a", "more", b"")
        failpoints.disarm_all()
        assert len(calls) == 1
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            assert [record.name for record in store.scan("a")] == ["before"]

    run_virtual(main())


@pytest.mark.parametrize("point", ["store.checkpoint", "store.compact"])
def test_a_failed_clean_up_of_the_file_is_fatal_too(tmp_path: Path, point: str) -> None:
    calls: list[str] = []

    async def main() -> None:
        options = SqliteOptions(limits=SMALL, fatal=lambda what, error: calls.append(f"{what}: {error}"))
        failpoints.arm(f"{point}=error(input/output error)")
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            for _ in range(100):
                await store.durable(store.put("a", "x", b"").revision)
            await asyncio.sleep(10)

    with pytest.raises((StoreError, failpoints.Failpoint)):
        run_virtual(main())
    assert len(calls) == 1 and "input/output error" in calls[0]


def test_a_full_disk_is_no_reason_to_end_when_records_are_packed(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            for number in range(50):
                store.put("a", f"n{number}", os.urandom(2000))
            await store.durable(store.revision)
            most = await store.run_exclusive(lambda connection: connection.pragma("max_page_count", 1))
            with pytest.raises(NoSpace, match="no space left"):
                await store.settle(store.revision, [(record, bytes(9000)) for record in store.scan("a")])
            assert store.settled_revision == 0 and not any(record.is_packed for record in store.scan("a"))
            await store.run_exclusive(lambda connection: connection.pragma("max_page_count", most + 1000))
            await store.settle(store.revision, [(record, b"") for record in store.scan("a")])
            assert all(record.is_packed for record in store.scan("a"))

    run_virtual(main())


def test_what_another_version_has_settled_is_looked_at_again(tmp_path: Path) -> None:
    async def main() -> None:
        for version, settled, note in (("1", 0, None), ("1", 2, b"1"), ("2", 0, None), ("2", 2, b"2"), ("1", 0, None)):
            async with SqliteStore.open(tmp_path, VirtualClock(), SqliteOptions(version=version)) as store:
                if not store.revision:
                    store.put("a", "n", b"value" * 100)
                    store.put("a", "m", b"value" * 100)
                found = [(record.value, record.note) for record in store.scan("a")]
                assert (store.settled_revision, found) == (settled, [(b"value" * 100, note)] * 2)
                await store.settle(2, [(record, version.encode()) for record in store.scan("a")])

    run_virtual(main())


@pytest.mark.parametrize("value", [b"", b"\xff" * 40], ids=["empty", "unknown dictionary"])
def test_a_damaged_packed_value_is_refused_with_advice(tmp_path: Path, value: bytes) -> None:
    async def fill() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            store.put("a", "n", b"value")
            await store.settle(store.revision, [(record, b"") for record in store.scan("a")])

    run_virtual(fill())
    connection = apsw.Connection(str(tmp_path / database.FILE))
    connection.execute("UPDATE log SET value = ?", (value,))
    connection.close()
    with pytest.raises(StoreError, match=r"is damaged.*Restore a backup"):
        run_virtual(_touch(tmp_path))


def test_a_transaction_left_open_across_an_await_is_reported(tmp_path: Path) -> None:
    reports: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
        async with SqliteStore.open(tmp_path, VirtualClock(), SqliteOptions(commit="inline")) as store:
            await store.durable(store.put("a", "w", b"").revision)
            store.put("a", "x", b"")
            with store.transaction():
                store.put("a", "y", b"")
                await settle(3)
            await store.durable(3)

    run_virtual(main())
    assert reports == ["a store transaction was open across an await"]


class _SlowDisk:
    """A clock on which every sync seems to take that long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reads = 0

    def monotonic(self) -> float:
        self._reads += 1
        return self._reads * self._seconds


@pytest.mark.parametrize(("seconds", "want_most"), [(0.0001, 0.001), (0.01, 0.1)])
def test_measuring_the_disk_ends_early_on_a_slow_one(tmp_path: Path, seconds: float, want_most: float) -> None:
    clock = _SlowDisk(seconds)
    assert measure_sync(tmp_path, clock) == pytest.approx(seconds)  # type: ignore[arg-type]  # it only reads monotonic
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("seconds", "want"), [(0.0, True), (1.0, False)])
def test_auto_commits_inline_on_a_fast_disk_and_in_a_thread_on_a_slow_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, want: bool
) -> None:
    measured: Callable[..., float] = lambda *_: seconds  # noqa: E731 - one value
    monkeypatch.setattr("trainmaster.store.sqlite.measure_sync", measured)

    async def main() -> None:
        async with SqliteStore.open(tmp_path, VirtualClock()) as store:
            assert store.commits_inline is want
            await store.durable(store.put("a", "x", b"").revision)

    run_virtual(main())


def test_auto_follows_what_commits_really_take() -> None:
    gauge = SyncGauge(0.010, 0.001)

    def is_fast_after(*seconds: float) -> bool:
        for number in range(201):
            gauge.note(seconds[number % len(seconds)])
        return gauge.is_fast

    assert not gauge.is_fast
    assert is_fast_after(0.0002)
    assert is_fast_after(0.0002, 0.005, 0.0002), "outliers do not count"
    gauge.note(0.050)
    assert not gauge.is_fast, "but what stops everybody is not waited for again"
    assert is_fast_after(0.0002)
    assert not is_fast_after(0.004)
    assert not is_fast_after(0.0009), "there is some distance between the two thresholds"


def test_large_batches_leave_the_event_loop(tmp_path: Path) -> None:
    async def main() -> None:
        options = SqliteOptions(commit="inline", inline_bytes=1000)
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            store.put("a", "x", bytes(2000))
            await asyncio.sleep(0)
            store.put("a", "y", b"")
            assert store.durable_revision == 0
            await store.durable(2)

    run_virtual(main())


@pytest.mark.parametrize("count", [64, 150])
def test_all_of_a_large_batch_is_found_again(tmp_path: Path, count: int) -> None:
    async def main() -> None:
        options = SqliteOptions(inline_bytes=1000)
        written = {f"n-{number:03d}": bytes([number]) * 100 for number in range(count)}
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            for name, value in written.items():
                store.put("a", name, value)
            await store.durable(count)
        async with SqliteStore.open(tmp_path, VirtualClock(), options) as store:
            assert {record.name: record.value for record in store.scan("a")} == written
            assert [record.revision for record in store.scan("a")] == list(range(1, count + 1))

    run_virtual(main())


def test_the_cycle_collector_does_not_see_stored_records(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(2):
            async with SqliteStore.open(tmp_path, VirtualClock()) as store:
                store.put("a", "new", b"")
                store.put("a", "x", b"1")
                store.put("a", "x", b"2")
                store.delete("a", "x", b"3")
                await store.durable(store.revision)
                assert not any(map(gc.is_tracked, store.scan("a")))
                for event in store.history("a"):
                    assert not gc.is_tracked(event) and not gc.is_tracked(event.record)

    run_virtual(main())
