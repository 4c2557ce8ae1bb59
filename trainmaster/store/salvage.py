"""Opens the database and checks that it has everything that was acknowledged. Used by `sqlite`.

Missing writes cannot be recovered, but they are reported: in the log, in a file beside the store that `doctor` and
`status` show, and as an Event. The damaged write-ahead log is kept for inspection, and revisions jump ahead, so that
clients that saw the lost ones list again instead of mixing two histories.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import apsw

from trainmaster.kit.clock import Clock, format_time
from trainmaster.store import damages, database, wal
from trainmaster.store.contract import StoreError
from trainmaster.store.damages import Damage
from trainmaster.store.high_water import HighWater

log = logging.getLogger(__name__)

REVISION_JUMP = 1_000_000
"""More writes than anyone makes between a backup and its restore (a day at 10 per second), in case the replaced store
cannot be read."""


def open_database(
    directory: Path, mark: HighWater, clock: Clock, *, synchronous: str, vfs: str | None
) -> tuple[apsw.Connection, Damage | None]:
    """The caller holds the lock. Raises StoreError if the file is unusable."""
    path = directory / database.FILE
    connection = database.connect(path, synchronous=synchronous, vfs=vfs)
    try:
        tail = _inspect(connection, path)
        copied = mark.read_copied()
        if tail.commits and copied is not None and (copied.salts, copied.frames) == (tail.salts, tail.last):
            # SQLite would overwrite newer pages in the file with those that it can read from the log.
            connection = _reopen_without_log(connection, path, synchronous=synchronous, vfs=vfs)
            tail = _inspect(connection, path)
        damage = _judge(connection, directory, tail, mark.read(), clock)
        database.ensure_schema(connection)
        if damage is not None:
            _check_whole(connection, path)
            database.jump(connection, damage.continues)
            mark.note(damage.continues)
        if tail.commits:
            _begin_new_log(connection)
    except BaseException as error:
        # The log may contain frames that this process could not read.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
            raise database.damaged(path, error) from error
        raise
    return connection, damage


def _inspect(connection: apsw.Connection, path: Path) -> wal.Tail:
    replayed, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return wal.inspect(wal.build_path(path), max(0, replayed))


def _judge(
    connection: apsw.Connection, directory: Path, tail: wal.Tail, acknowledged: int, clock: Clock
) -> Damage | None:
    kept = database.read_newest(connection)
    missing = max(acknowledged - kept, tail.commits - 1 if tail.commits > 1 else 0)
    if missing <= 0:
        return None
    number = damages.count(directory) + 1
    aside = _keep_aside(wal.build_path(directory / database.FILE), directory / f"damage-{number}.wal")
    continues = max(kept, acknowledged) + REVISION_JUMP
    damage = Damage(format_time(clock.now()), kept, missing, continues, aside)
    log.error(damage.describe(), extra={"action": "store.damaged", "kept": kept, "missing": missing})
    try:
        damages.note(directory, number, damage)
    except OSError as error:
        log.warning("damage not noted", extra={"action": "store.damage_unnoted", "error": str(error)})
    return damage


def _keep_aside(log_file: Path, aside: Path) -> str:
    if not log_file.exists() or not log_file.stat().st_size:
        return ""
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as target, log_file.open("rb") as source:
            shutil.copyfileobj(source, target)
    except OSError as error:
        aside.unlink(missing_ok=True)
        log.warning("damaged log not kept", extra={"action": "store.damage_not_kept", "error": str(error)})
        return ""
    return str(aside)


def _reopen_without_log(
    connection: apsw.Connection, path: Path, *, synchronous: str, vfs: str | None
) -> apsw.Connection:
    text = "the write-ahead log is damaged, but all of it was in the database already: nothing is lost"
    log.warning(text, extra={"action": "store.log_dropped"})
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()
    wal.build_path(path).unlink()
    return database.connect(path, synchronous=synchronous, vfs=vfs)


def _check_whole(connection: apsw.Connection, path: Path) -> None:
    """An interrupted checkpoint leaves pages in the file that are newer than the rest of the log."""
    found = connection.execute("PRAGMA quick_check(1)").fetchall()
    if found != [("ok",)]:
        raise database.damaged(path, StoreError(str(found[0][0])))


def _begin_new_log(connection: apsw.Connection) -> None:
    """Unread frames must not be taken for lost commits at the next start."""
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.FullError:
        log.warning("disk full, the log stays as it is", extra={"action": "store.log_kept"})
