"""The database file: its schema, opening and locking. Used by `sqlite` and `backup`.

    log      one row per write, value included; `rev` is the revision and the row id, so writes append
    floors   per bucket, the revision up to which history may have been removed
    meta     `revision`: never to be given out again up to here; `floor`: floor of every bucket without its own
    settled  one row: see `contract.Store.settled_revision`, and the version of the program that settled it
    dictionaries   see `packing`

The current state is the log replayed from oldest to newest; the index from key to revision is in memory only. Rows may
be removed when the write that superseded them is below the floor, oldest first, and always together with the floor.

The database is opened in SQLite's exclusive mode: no other process can read or change it, and no shared memory file is
needed. The lock file says who holds it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from trainmaster.store.contract import Locked, NewerSchema, StoreError

FILE = "store.db"
LOCK_FILE = "store.lock"

PAGE_BYTES = 16_384
"""Objects are 2 to 4 KB. With several of them per page a batch needs a quarter of the system calls: 1.4 times as many
writes per second at 10 and at 100 clients as with 4 KiB pages, and the same at one client."""
FRAME_BYTES = PAGE_BYTES + 24
"""A page in the write-ahead log, with its header."""

APPLICATION_ID = 0x544D5354
"""Identifies our files (`TMST`); other SQLite files are refused."""
SCHEMA_VERSION = 2
"""2 added packed values; a file of version 1 is upgraded when it is opened."""

_SCHEMA = """
CREATE TABLE log (
    rev INTEGER PRIMARY KEY,
    bucket TEXT NOT NULL,
    name TEXT NOT NULL,
    op INTEGER NOT NULL,
    created INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE TABLE floors (bucket TEXT PRIMARY KEY, rev INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('revision', 0), ('floor', 0);
"""
_SCHEMA_2 = """
CREATE TABLE dictionaries (number INTEGER PRIMARY KEY, bucket TEXT NOT NULL, value BLOB NOT NULL);
CREATE TABLE settled (rev INTEGER NOT NULL, version TEXT NOT NULL);
INSERT INTO settled VALUES (0, '');
"""

DELETE = 0
PUT = 1
PACKED = 2
"""A PUT whose value was packed later."""


@contextmanager
def hold_lock(directory: Path) -> Iterator[None]:
    """Creates the directory if missing. Raises Locked if another process, or another store in this one, has the lock.

    The lock ends with the process, however that ends.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise Locked(
                f"{directory} is in use by process {holder}. Only one process can have a store open; "
                "stop that one first, or use another directory."
            ) from None
        with suppress(OSError):  # on a full disk the lock holds without naming its owner
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def connect(path: Path, *, synchronous: str = "FULL", vfs: str | None = None) -> apsw.Connection:
    """Opens the file with our settings, or creates an empty one; an existing file is not written to.

    The caller holds the lock.
    """
    # Values may be secrets; SQLite's side files get the permissions of the main one. An existing file is not touched:
    # closing any descriptor of it would drop the locks that SQLite holds in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        sync_directory(path.parent)
    connection = apsw.Connection(os.fspath(path), vfs=vfs)
    try:
        # Must precede the first access, otherwise SQLite sets up shared memory.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        check_format(connection, path)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        # Rolling back a statement must not fail because no descriptor is left for a temporary file.
        connection.execute("PRAGMA temp_store = MEMORY")
        # We schedule checkpoints: they run beside the event loop, never inside a commit.
        connection.wal_autocheckpoint(0)
    except BaseException:
        # Closing would checkpoint the log into a file that may be damaged.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()
        raise
    return connection


def ensure_schema(connection: apsw.Connection) -> None:
    version = connection.pragma("user_version")
    if version < SCHEMA_VERSION:
        with connection:
            if version == 0:
                connection.execute(_SCHEMA)
                connection.pragma("application_id", APPLICATION_ID)
            connection.execute(_SCHEMA_2)
            connection.pragma("user_version", SCHEMA_VERSION)


def extend_log(path: Path, size: int) -> None:
    """Fills the write-ahead log with zeros up to that size. Nothing else may use the database meanwhile.

    Syncing a growing file must also commit the file system's journal, and so wait for writes of others; syncing
    allocated blocks only writes them. SQLite takes zeros for the end of the log.
    """
    descriptor = os.open(f"{path}-wal", os.O_WRONLY | os.O_CLOEXEC)
    try:
        present = os.fstat(descriptor).st_size
        zeros = bytes(1024 * 1024)
        while present < size:
            present += os.pwrite(descriptor, zeros[: size - present], present)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_format(connection: apsw.Connection, path: Path) -> None:
    """Refuses a file that is not ours, has a damaged header, or was written by a newer version."""
    try:
        application = connection.pragma("application_id")
        version = connection.pragma("user_version")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    except apsw.BusyError as error:
        raise Locked(f"{path} is open in another program") from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise damaged(path, error) from error
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreError(f"{path} is a SQLite file of another program")
    if version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{path} was written by a newer version (schema {version}, this version reads up to {SCHEMA_VERSION}). "
            "Install that version again, or restore a backup made before the upgrade."
        )


def sync_directory(directory: Path) -> None:
    """Makes the names in it durable; syncing a file does not do that."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_meta(connection: apsw.Connection, key: str) -> int:
    """Raises apsw.CorruptError if it is missing: it is written together with the schema."""
    value = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    if not isinstance(value, int):
        raise apsw.CorruptError(f"{key} is missing in the table meta")
    return value


def read_settled(connection: apsw.Connection, version: str) -> int:
    """0 if another version of the program has settled it."""
    value = connection.execute("SELECT max(rev * (version = ?)) FROM settled", (version,)).get
    if not isinstance(value, int):
        raise apsw.CorruptError("the table settled is empty")
    return value


def read_newest(connection: apsw.Connection) -> int:
    """The last assigned revision according to the file; 0 if it has no tables."""
    if connection.pragma("user_version") == 0:
        return 0
    newest: int = connection.execute(
        "SELECT max(coalesce(max(rev), 0), (SELECT value FROM meta WHERE key = 'revision')) FROM log"
    ).get
    return newest


def jump(connection: apsw.Connection, revision: int) -> None:
    """The next write gets a revision after this one, and watches cannot resume from before it."""
    with connection:
        connection.execute("UPDATE meta SET value = ? WHERE key IN ('revision', 'floor')", (revision,))
        connection.execute("DELETE FROM floors")


def damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} is damaged or is not a store: {error}. Restore a backup with `trainmaster restore`; "
        "the damaged files are kept aside."
    )
