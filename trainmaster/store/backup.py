"""Online backup of an open store, and restore into a directory. For `app` and the command line.

A backup is one ordinary SQLite file, complete in itself. Restoring jumps the revision far ahead and empties the replay
windows: clients that watched the old store hold revisions above those of the backup, and a number that means two
different things would be worse than a watch that has to list again (410).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import apsw

from trainmaster.store import database, high_water
from trainmaster.store.contract import StoreError
from trainmaster.store.salvage import REVISION_JUMP
from trainmaster.store.sqlite import SqliteStore

_STEP_PAGES = 256
"""One step copies 1 MiB; commits go on between two steps."""


async def backup(store: SqliteStore, path: Path) -> int:
    """Copies the store to a new file while it is in use; returns the revision that the copy holds for certain.

    Everything acknowledged before the call is in it. StoreError when the file exists.
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
    """The last revision of a store that nobody has open, or None when there is none or it cannot be read."""
    path = directory / database.FILE
    if not path.is_file():
        return None
    try:
        with contextlib.closing(apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            return database.read_newest(connection)
    except apsw.Error:
        return None


def restore(source: Path, directory: Path, *, above: int = 0) -> int:
    """Puts a backup into a directory without a store and returns the revision that it starts from.

    That is far ahead of the backup's own and of `above`, the last one that clients of a former store may have seen.
    The backup is checked completely first. StoreError when it is damaged or the directory has a store already; Locked
    when that store is in use; NewerSchema when a newer version wrote the backup.
    """
    if not source.is_file():
        raise StoreError(f"{source} does not exist")
    with database.hold_lock(directory):
        path = directory / database.FILE
        if path.exists():
            raise StoreError(f"{directory} has a store already; move {path.name} away first")
        # It told of the store that is replaced.
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


def _create(path: Path) -> apsw.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return apsw.Connection(os.fspath(path))


def _complete(target: apsw.Connection, partial: Path, path: Path) -> None:
    """From a copy to a file that is there under its name after a power cut."""
    # Not WAL: a backup is one file. The store switches back when it opens it.
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
