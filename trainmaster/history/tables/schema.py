"""The tables of the archive's file, and how it is opened for reading."""

from __future__ import annotations

from pathlib import Path

import apsw

VERSION = 1
_FIRST = """
CREATE TABLE jobs (
    uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, runtime TEXT NOT NULL, state TEXT NOT NULL,
    created TEXT NOT NULL, finished TEXT NOT NULL, deleted TEXT NOT NULL, deletion BLOB, bytes INTEGER NOT NULL,
    kept_bytes INTEGER NOT NULL, document BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX jobs_by_name ON jobs (namespace, name, created);
CREATE INDEX jobs_by_end ON jobs (finished);
CREATE TABLE open (uid TEXT PRIMARY KEY, object BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE jobsets (uid TEXT PRIMARY KEY, trainjob TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX jobsets_by_trainjob ON jobsets (trainjob);
"""
_SERIES = """
CREATE TABLE IF NOT EXISTS series (uid TEXT NOT NULL, at INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (uid, at))
WITHOUT ROWID;
"""
"""Added after the first release of the format; an archive without it contains no progress reports."""
_KINDS = "CREATE TABLE IF NOT EXISTS kinds (uid TEXT PRIMARY KEY, kind TEXT NOT NULL) WITHOUT ROWID;"
"""Of jobs that are not TrainJobs. Added later too; in an archive without it, all jobs are TrainJobs."""
_KEPT = "CREATE INDEX IF NOT EXISTS jobs_by_deletion ON jobs (deleted, bytes);"
"""So that a start need not read every record."""
_USAGE = """
CREATE TABLE IF NOT EXISTS usage (
    uid TEXT NOT NULL, at INTEGER NOT NULL, attempt INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (uid, at)
) WITHOUT ROWID;
"""
"""What ranks have used (`usage`). Added later too."""
_FACTS = """
CREATE TABLE IF NOT EXISTS facts (
    uid TEXT PRIMARY KEY, user TEXT NOT NULL, nodes INTEGER, labels BLOB NOT NULL, metrics BLOB NOT NULL,
    words TEXT NOT NULL
) WITHOUT ROWID;
"""
"""What lists show of a record (`record.RecordFacts`). Added later too; the keeper fills it for older records."""
_LATER = (_SERIES, _KINDS, _KEPT, _USAGE, _FACTS)
TABLES = (
    ("jobs", "uid"),
    ("open", "uid"),
    ("jobsets", "trainjob"),
    ("series", "uid"),
    ("kinds", "uid"),
    ("usage", "uid"),
    ("facts", "uid"),
)
"""Each with the column that identifies the TrainJob."""


def prepare(connection: apsw.Connection) -> int:
    """Makes the tables that are missing. Returns the file's version; a newer one than VERSION is left as it is."""
    version = int(connection.pragma("user_version") or 0)
    if version == 0:
        with connection:
            connection.execute(_FIRST)
            connection.pragma("user_version", VERSION)
    if version <= VERSION:
        for text in _LATER:
            connection.execute(text)
    return version


def open_for_reading(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.pragma("schema_version")
    except apsw.CantOpenError:
        # On a read-only file system SQLite cannot create the index of its log. Without a log, it needs none.
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        connection.close()
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=flags)
    return connection
