"""The durable store: `state.StoreState` in memory, one SQLite file, and group commit.

Writes are collected during an iteration of the event loop, then inserted and committed together. Rows are inserted in
the event loop: that takes 1 to 3 us for each, while a thread would wait for the GIL after each. The commit runs in the
event loop if an fsync is cheaper than a thread hand-off and only a few writes wait for it, otherwise in a one-worker
executor, as do checkpoints. Only one of them uses the connection at a time (`_busy`). A transaction is never split over
two commits, because only complete transactions enter `_pending`.

A commit that fails on a full disk is retried until there is space: nothing was written, nobody was told, and meanwhile
writes are refused (NoSpace). Any other failure ends the process: memory is ahead of the disk, and after a failed fsync
the kernel may have dropped the data, so a retry could report success falsely. The next start reads what is on disk.

    async with SqliteStore.open(directory, clock) as store: ...
"""

from __future__ import annotations

import asyncio
import logging
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from trainmaster.kit import failpoints
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope, finish
from trainmaster.store import database, loading, salvage, spare, wal
from trainmaster.store.compaction import SLICE_ROWS, Garbage, Slice, remove_rows
from trainmaster.store.contract import Event, EventType, NoSpace, StoredRecord, StoreError
from trainmaster.store.damages import Damage
from trainmaster.store.disk import SyncGauge, exit_process, is_full, measure_sync
from trainmaster.store.high_water import Copied, HighWater
from trainmaster.store.packing import Dictionaries, Packed, pack_all
from trainmaster.store.state import DEFAULT_LIMITS, StoreState, WindowLimits
from trainmaster.version import __version__

log = logging.getLogger(__name__)

T = TypeVar("T")

_FEW = 8
"""Only commits of at most this many writes are used to estimate the time of a sync, because in larger ones writing
counts too. They run in the event loop if syncs are fast; for larger ones the loop has other work meanwhile, and
collects more for the next commit."""

_RETRY_SECONDS = 0.25
"""Between two attempts to commit on a full disk."""
_LAST_TRIES = 8
"""Attempts before a store is closed with uncommitted writes."""

_DAMAGED = (apsw.CorruptError, LookupError, TypeError, ValueError, struct.error, zlib.error)
"""What reading a damaged file raises; a page of zeros reads as null columns."""

_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class SqliteOptions:
    limits: WindowLimits = DEFAULT_LIMITS
    commit: str = "auto"
    """inline: in the event loop. thread: in an executor. auto: depending on how long an fsync takes, at open and
    since."""
    thread_above: float = 0.001
    """Median fsync seconds above which `auto` uses a thread: a hand-off costs 40-90 us, but does not block the loop."""
    inline_bytes: int = 128 * 1024
    """Larger batches are always committed in the executor: writing and syncing a megabyte takes 5 ms or more."""
    checkpoint_pages: int = 256
    """Pages of the write-ahead log (16 KiB each) after which it is checkpointed: one slice of 4 MiB."""
    compact_rows: int = 128
    """Superseded rows that accumulate before a commit also removes some."""
    idle_seconds: float = 1.0
    """Idle time after which the rest is compacted and checkpointed."""
    synchronous: str = "FULL"
    """FULL: an acknowledged write survives a power failure. NORMAL: it survives only a crash of the process."""
    version: str = __version__
    """Of the program (`loading.load`)."""
    vfs: str | None = None
    """SQLite's file layer; tests use one that loses unsynced data."""
    fatal: Callable[[str, BaseException], None] = exit_process
    """Called when a commit failed. It should not return."""


DEFAULT_OPTIONS = SqliteOptions()


class SqliteStore(StoreState):
    def __init__(
        self, directory: Path, connection: apsw.Connection, clock: Clock, options: SqliteOptions, mark: HighWater
    ) -> None:
        super().__init__(options.limits)
        self.damage: Damage | None = None
        """Acknowledged writes that were missing at this start."""
        self._mark = mark
        self.directory = directory
        self._connection = connection
        self._clock = clock
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._executor: ThreadPoolExecutor | None = None
        self._gauge = SyncGauge(0.0, options.thread_above)
        self._scheduled = False
        self._waiting = False
        """Waiting for disk space."""
        self._busy = False
        self._garbage = Garbage()
        self._wal_pages = 0
        self._active = asyncio.Event()
        """Set by every commit; the maintenance task waits for it, and then for an idle period."""
        self._idle = asyncio.Event()
        """Set while the connection is unused."""
        self._idle.set()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, directory: Path, clock: Clock, options: SqliteOptions = DEFAULT_OPTIONS
    ) -> AsyncIterator[SqliteStore]:
        """Opens the store in a directory, which is created if missing. Raises Locked, NewerSchema or StoreError."""
        with database.hold_lock(directory), closing(HighWater(directory)) as mark:
            connection, damage = salvage.open_database(
                directory, mark, clock, synchronous=options.synchronous, vfs=options.vfs
            )
            with closing(connection):
                store = cls(directory, connection, clock, options, mark)
                store.damage = damage
                store._start()
                async with Scope("store") as scope:
                    scope.spawn_forever(store._maintain(), name="store.maintain")
                    try:
                        yield store
                    finally:
                        scope.cancel()
                        await finish(store._stop(), limit=60, name="store.stop")

    def _start(self) -> None:
        try:
            with suppress(apsw.FullError):
                spare.end(self._connection)
            self._dictionaries = Dictionaries.read(self._connection)
            loading.load(self._connection, self, self._garbage, self._dictionaries, self._options.version)
        except _DAMAGED as error:
            raise database.damaged(self.directory / database.FILE, error) from error
        self._connection.set_wal_hook(self._note_wal)
        self._start_job(self._extend_log, lambda _: None, self._skip)
        sync = measure_sync(self.directory, self._clock) if self._options.commit == "auto" else 0.0
        self._gauge = SyncGauge(sync, self._options.thread_above)
        log.info(
            "store opened",
            extra={
                "action": "store.opened",
                "revision": self.revision,
                "objects": sum(len(held.records) for held in self._buckets.values()),
                "commit": "inline" if self.commits_inline else "thread",
                "sync_us": round(sync * 1e6),
            },
        )

    @property
    def commits_inline(self) -> bool:
        mode = self._options.commit
        return mode == "inline" or (mode == "auto" and self._gauge.is_fast)

    async def _stop(self) -> None:
        tries = 0
        while self._failure is None and (self._busy or self._pending) and tries < _LAST_TRIES:
            if self._refusal is not None:
                tries += 1
                await asyncio.sleep(_RETRY_SECONDS)
            self._flush()
            await self._idle.wait()
        if self._pending:
            extra = {"action": "store.lost", "writes": len(self._pending)}
            log.error("disk full, writes that nobody was told of are lost", extra=extra)
        self._fail(StoreError("the store is closed"))
        self._close_watches()
        await self._idle.wait()
        if self._executor is not None:
            self._executor.shutdown()

    # Commits

    def _request_commit(self) -> None:
        if not self._scheduled and not self._busy:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _forget(self, events: Sequence[Event]) -> None:
        self._garbage.add(events)

    def _flush(self) -> None:
        self._scheduled = False
        if self._busy or self._waiting or not self._pending or self._failure is not None:
            return
        if self._depth:
            # Complete transactions are safe, but writes of others join the open one.
            self._loop.call_exception_handler({"message": "a store transaction was open across an await"})
        events = self._take_pending()
        part = self._build_slice() if len(self._garbage) >= self._options.compact_rows else None
        try:
            self._insert(events)
            if not self.commits_inline or len(events) > _FEW or self._is_large(events):
                self._start_commit(partial(self._commit, len(events), part, None), events)
                return
            removed = self._commit(len(events), part, 0.002)
        except Exception as error:  # noqa: BLE001 - whatever it was, memory is ahead of the disk now
            self._fail_commit(events, error)
            return
        self._committed(events, removed)

    def _is_large(self, events: Sequence[Event]) -> bool:
        return sum([len(event.record.value) for event in events]) > self._options.inline_bytes

    def _insert(self, events: Sequence[Event]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        with self._undone_on_error():
            self._connection.executemany(_INSERT, map(_build_row, events))

    def _commit(self, rows: int, part: Slice | None, budget: float | None) -> int:
        """Ends the transaction that `_insert` began, in the event loop or in the executor. Returns how much garbage was
        removed."""
        connection = self._connection
        began = self._clock.monotonic()
        removed = 0
        with self._undone_on_error():
            if part is not None:
                removed = remove_rows(connection, part, self._clock, budget)
            failpoints.hit("store.before_commit")
            connection.execute("COMMIT")
        failpoints.hit("store.after_commit_before_ack")
        if rows <= _FEW and not removed:
            self._gauge.note(self._clock.monotonic() - began)
        return removed

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(apsw.Error):
                self._connection.execute("ROLLBACK")
            raise

    def _committed(self, events: Sequence[Event], removed: int) -> None:
        self._garbage.drop(removed)
        if events:
            self._active.set()
            self._mark.note(events[-1].record.revision)
            if self._refusal is not None and self._failure is None:
                self._refusal = None
                log.info("there is room again, writes go on", extra={"action": "store.room_again"})
            self._acknowledge(events)
        if self._wal_pages >= self._options.checkpoint_pages and not self._busy:
            self._start_job(self._checkpoint, lambda _: None, self._skip)

    def _start_commit(self, work: Callable[[], int], events: Sequence[Event]) -> asyncio.Future[int]:
        return self._start_job(work, partial(self._committed, events), partial(self._fail_commit, events))

    def _fail_commit(self, events: Sequence[Event], error: BaseException) -> None:
        if not is_full(error):
            self._die("a commit failed", error)
            return
        self._pending[:0] = events
        if self._refusal is None:
            text = f"no space left on the disk of {self.directory}: free some; nothing can be written until then"
            self._refusal = NoSpace(text)
            log.error("disk full, writes wait", extra={"action": "store.full", "writes": len(self._pending)})
        self._waiting = True
        self._loop.call_later(_RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        """Retries after a checkpoint, which empties the log so that the commit needs no space there."""
        self._waiting = False
        if self._failure is not None or self._busy:
            return  # the running job flushes when it ends
        if self._wal_pages:
            self._start_job(self._checkpoint, lambda _: None, self._skip)
        else:
            self._flush()

    def _skip(self, error: BaseException) -> None:
        """Ignores a full disk for work that is done later."""
        if not is_full(error):
            self._die("writing to the store failed", error)
        else:
            log.warning("disk full, tidying waits", extra={"action": "store.tidying_waits"})

    def _note_readable(self, revision: int) -> None:
        # After the watchers that were just woken, so that they have read.
        self._loop.call_soon(super()._note_readable, revision)

    def _die(self, what: str, error: BaseException) -> None:
        self._fail(StoreError(f"{what}: {error}"))
        self._options.fatal(what, error)

    # Work in the executor

    def _start_job(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> asyncio.Future[T]:
        """Runs `work` in the executor; nothing else uses the connection until `done` or `failed` was called."""
        assert not self._busy
        self._busy = True
        self._idle.clear()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        future = self._loop.run_in_executor(self._executor, work)
        future.add_done_callback(lambda ended: self._end_job(ended, done, failed))
        return future

    def _end_job(
        self, ended: asyncio.Future[T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._busy = False
        self._idle.set()
        error = ended.exception()
        if error is None:
            done(ended.result())
        else:
            failed(error)
        if self._pending and not self._busy:
            self._flush()

    async def run_exclusive(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs `work` in the executor while no commit runs; writes wait meanwhile. It may only read."""
        await self._wait_for_turn()
        return await _shield(self._start_job(lambda: work(self._connection), lambda _: None, lambda _: None))

    async def _wait_for_turn(self) -> None:
        while self._busy or self._pending:
            if self._refusal is not None:
                raise self._refusal
            self._flush()
            await self._idle.wait()

    async def fill_spare(self, size: int) -> bool:
        """Makes sure that this many bytes can be written on a full disk. False if there is no space now."""
        try:
            if await self.run_exclusive(spare.measure) >= size * 3 // 4:
                return True
            try:
                for _ in range(0, size, spare.STEP_BYTES):
                    await self.run_exclusive(self._add_spare)
            finally:
                await self.run_exclusive(spare.end)
        except (apsw.FullError, NoSpace):
            return False
        return True

    def _add_spare(self, connection: apsw.Connection) -> None:
        spare.add_step(connection)
        self._checkpoint()

    def _note_wal(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _extend_log(self) -> None:
        # With some margin, because commits continue until the checkpoint starts.
        pages = self._options.checkpoint_pages * 5 // 4
        database.extend_log(self.directory / database.FILE, pages * database.FRAME_BYTES)

    def _checkpoint(self) -> None:
        failpoints.hit("store.checkpoint")
        in_log, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if copied >= in_log:
            self._wal_pages = 0
            # If no descriptor is left nothing is recorded; harmless damage to this log might then be reported.
            with suppress(OSError):
                salts = wal.read_salts(wal.build_path(self.directory / database.FILE))
                self._mark.note_copied(Copied(salts, in_log))

    def _checkpoint_at_rest(self) -> None:
        self._checkpoint()
        self._mark.sync()

    def _build_slice(self) -> Slice:
        rows = self._garbage.peek(SLICE_ROWS)
        floors = {bucket: self._buckets[bucket].window.floor for bucket in {bucket for _, bucket in rows}}
        return Slice([revision for revision, _ in rows], floors, self.durable_revision)

    async def _maintain(self) -> None:
        """Compacts and checkpoints when idle, so that the next start has little to read."""
        while True:
            await self._active.wait()
            while self._active.is_set():
                self._active.clear()
                await self._clock.sleep(self._options.idle_seconds)
            try:
                await self._tidy()
            except (NoSpace, apsw.FullError):
                # Already reported; retried by the next commit, or in a second.
                await self._clock.sleep(self._options.idle_seconds)
                self._active.set()

    async def _tidy(self) -> None:
        while self._garbage:
            await self._wait_for_turn()
            part = self._build_slice()
            self._insert(())
            job = partial(self._commit, 0, part, None)
            await _shield(self._start_job(job, partial(self._committed, ()), self._skip))
        if self._wal_pages:
            await self._wait_for_turn()
            await _shield(self._start_job(self._checkpoint_at_rest, lambda _: None, self._skip))

    # Packing

    async def settle(self, revision: int, at_rest: Sequence[tuple[StoredRecord, bytes]]) -> None:
        await self._wait_for_turn()
        work = partial(self._pack, revision, at_rest)
        try:
            await _shield(self._start_job(work, partial(self._replace, revision), self._skip))
        except apsw.FullError as error:
            raise NoSpace(f"no space left on the disk of {self.directory}") from error

    def _pack(self, revision: int, at_rest: Sequence[tuple[StoredRecord, bytes]]) -> Packed:
        """In the executor."""
        packed = pack_all(at_rest, self._dictionaries)
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        with self._undone_on_error():
            fresh = ((one.number, bucket, one.value) for bucket, one in packed.fresh.items())
            connection.executemany("INSERT INTO dictionaries VALUES (?, ?, ?)", fresh)
            rows = ((database.PACKED, value, record.revision) for record, value in packed.values)
            connection.executemany("UPDATE log SET op = ?, value = ? WHERE rev = ?", rows)
            connection.execute("UPDATE settled SET rev = ?, version = ?", (revision, self._options.version))
            failpoints.hit("store.pack")
            connection.execute("COMMIT")
        return packed


async def _shield(job: asyncio.Future[T]) -> T:
    """Shields the thread from cancellation of the caller; the connection stays busy until it ends."""
    return await asyncio.shield(job)


def _build_row(event: Event) -> tuple[int, str, str, int, int, bytes]:
    record = event.record
    op = database.PUT if event.type is EventType.PUT else database.DELETE
    return record.revision, record.bucket, record.name, op, record.created, record.value
