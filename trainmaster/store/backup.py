"""Online backup of an open store, and restore into a directory.

A backup is one self-contained SQLite file. Restoring advances the revision far ahead and empties the replay windows:
clients of the old store may hold revisions above those of the backup, and listing again (410) is better than one
revision with two meanings.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import apsw

from trainmaster.store import database, high_water
from trainmaster.store.contract import StoreError
from trainmaster.store.packing import Dictionaries, unpack
from trainmaster.store.salvage import REVISION_JUMP
from trainmaster.store.sqlite import SqliteStore

_STEP_PAGES = 256
"""Each step copies 1 MiB; commits continue between steps."""


async def backup(store: SqliteStore, path: Path) -> int:
    """Copies the store to a new file while it is in use; returns the revision that the copy is guaranteed to contain.

    It contains everything acknowledged before the call. Raises StoreError if the file exists.
    """
    if path.exists():  # noqa: ASYNC240 - one look at a name, before the work starts
        raise StoreError(f"{path} exists; a backup does not overwrite anything")
    revision = store.revision
    partial = path.with_name(path.name + ".partial")
    target = _create(partial)
    try:
        copy = await store.run_exclusive(lambda source: target.backup("main", source, "main"))
        try:
            while not await store.run_exclusive(lambda _: copy.step(_STEP_PAGES)):
                pass
        finally:
            await store.run_exclusive(lambda _: copy.finish())
        await asyncio.to_thread(_complete, target, partial, path)
    except BaseException:
        target.close()
        partial.unlink(missing_ok=True)
        raise
    return revision


def find_newest_revision(directory: Path) -> int | None:
    """The last revision of a store that is not open; None if there is none or it cannot be read."""
    path = directory / database.FILE
    if not path.is_file():
        return None
    try:
        with contextlib.closing(apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            return database.read_newest(connection)
    except apsw.Error:
        return None


def restore(source: Path, directory: Path, *, above: int = 0) -> int:
    """Restores a backup into a directory without a store and returns the revision that it starts from.

    That is far above the backup's own and `above`, the last one that clients of a former store may have seen. The
    backup is verified completely first. Raises StoreError if it is damaged or the directory has a store already, Locked
    if that store is in use, NewerSchema if a newer version wrote the backup.
    """
    if not source.is_file():
        raise StoreError(f"{source} does not exist")
    with database.hold_lock(directory):
        path = directory / database.FILE
        if path.exists():
            raise StoreError(f"{directory} has a store already; move {path.name} away first")
        # It belongs to the replaced store.
        (directory / high_water.FILE).unlink(missing_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.unlink(missing_ok=True)
        target = _create(partial)
        try:
            with contextlib.closing(_open_backup(source)) as original, target.backup("main", original, "main") as copy:
                copy.step()
            revision = _jump(target, above)
            _complete(target, partial, path)
        except BaseException:
            target.close()
            partial.unlink(missing_ok=True)
            raise
    return revision


def read_bucket(source: Path, bucket: str) -> list[bytes]:
    """The values of a bucket in a backup. Raises StoreError if the file is no backup or is damaged."""
    if not source.is_file():
        raise StoreError(f"{source} does not exist")
    with contextlib.closing(_open_backup(source)) as connection:
        rows = connection.execute("SELECT name, op, value FROM log WHERE bucket = ? ORDER BY rev", (bucket,))
        newest = {name: (op, value) for name, op, value in rows}
        packed = any(op == database.PACKED for op, _ in newest.values())
        dictionaries = Dictionaries.read(connection) if packed else Dictionaries()
    return [
        unpack(value, dictionaries.get_of(value).value) if op == database.PACKED else value
        for op, value in newest.values()
        if op != database.DELETE
    ]


def _create(path: Path) -> apsw.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return apsw.Connection(os.fspath(path))


def _complete(target: apsw.Connection, partial: Path, path: Path) -> None:
    """Makes the copy durable and renames it."""
    # Not WAL, because a backup is one file. The store switches back when it opens it.
    target.execute("PRAGMA journal_mode = DELETE")
    target.close()
    descriptor = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    partial.rename(path)
    database.sync_directory(path.parent)


def _open_backup(source: Path) -> apsw.Connection:
    connection = apsw.Connection(os.fspath(source), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        database.check_format(connection, source)
        if connection.pragma("user_version") == 0:
            raise StoreError(f"{source} is not a backup of a store")
        found = connection.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            raise StoreError(f"{source} is damaged: {found[0][0]}")
    except (apsw.CorruptError, apsw.NotADBError) as error:
        connection.close()
        raise StoreError(f"{source} is damaged: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _jump(target: apsw.Connection, above: int) -> int:
    revision = max(database.read_newest(target), above) + REVISION_JUMP
    database.jump(target, revision)
    return revision
