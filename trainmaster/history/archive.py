"""The archive on disk: one SQLite file of records, and the logs that Pods left (`logs.py`).

    <directory>/history.db
    <directory>/logs/...

A record is written by uid in one transaction that is durable before the call returns; writing it twice is idempotent.
`open` rows hold the last known state of each TrainJob that still exists: after a crash they show what was deleted
meanwhile. They are written asynchronously and may lag behind.

Calls block; there is one writer (the control plane) and any number of readers, also without a server. ArchiveError
describes a disk problem in one sentence; the caller keeps the job and retries.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import apsw
import orjson

from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items
from trainmaster.history import series
from trainmaster.history.record import JobRecord, RecordedDeletion
from trainmaster.history.series import Point

FILE = "history.db"
_VERSION = 1
_SCHEMA = """
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
_TABLES = (("jobs", "uid"), ("open", "uid"), ("jobsets", "trainjob"), ("series", "uid"), ("kinds", "uid"))
"""Each with the column that identifies the TrainJob."""
_COLUMNS = "uid, namespace, name, runtime, state, created, finished, deletion, bytes"
_KIND = "coalesce((SELECT kind FROM kinds WHERE kinds.uid = jobs.uid), 'TrainJob')"


class ArchiveError(OSError):
    """The archive cannot be read or written; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One line of a listing."""

    uid: str
    namespace: str
    name: str
    runtime: str
    state: str
    created: str
    finished: str
    deletion: RecordedDeletion | None
    bytes: int
    kind: str = "TrainJob"


@dataclass(frozen=True, slots=True)
class Filter:
    namespace: str = ""
    name: str = ""
    state: str = ""
    deleted: bool | None = None
    """True: only deleted jobs; False: only existing ones."""
    before: str = ""
    """Only jobs that ended before this time (RFC 3339, UTC)."""
    limit: int = 0
    kind: str = ""
    kinds: tuple[str, ...] | None = None
    """Only jobs of these kinds; None is all."""
    uid: str = ""
    after: tuple[str, str, str] | None = None
    """Only what comes after the record with this end, creation and uid (`history.paging`)."""


class Archive:
    def __init__(self, directory: Path, connection: apsw.Connection) -> None:
        self.directory = directory
        self._connection = connection
        self.totals: tuple[int, int] | None = None
        """(records, bytes), kept up to date after the first measurement; None before."""

    @classmethod
    def open(cls, directory: Path, *, read_only: bool = False) -> Archive:
        path = directory / FILE
        try:
            if read_only:
                return cls(directory, _open_for_reading(path))
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            connection = apsw.Connection(str(path))
            path.chmod(0o600)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full")
            connection.set_busy_timeout(5000)
            _prepare(connection, path)
        except (apsw.Error, OSError) as error:
            raise ArchiveError(f"cannot open {path}: {error}") from error
        return cls(directory, connection)

    def close(self) -> None:
        self._connection.close()

    # Writing

    def put(self, records: Sequence[JobRecord]) -> None:
        """Writes all or none, each with its JobSets so that its logs are found; durable when this returns."""
        rows = [_to_row(record) for record in records]
        below = [(uid, record.uid) for record in records for uid in list_jobset_uids(record)]
        with self._transaction("write a record"):
            before = self._measure_of([record.uid for record in records])
            self._connection.executemany(f"INSERT OR REPLACE INTO jobs VALUES ({', '.join('?' * 12)})", rows)
            gone = [(record.uid,) for record in records if record.deletion is not None]
            self._connection.executemany("DELETE FROM open WHERE uid = ?", gone)
            self._connection.executemany("INSERT OR IGNORE INTO jobsets VALUES (?, ?)", below)
            kinds = [(record.uid, record.kind) for record in records if record.kind != "TrainJob"]
            self._connection.executemany("INSERT OR REPLACE INTO kinds VALUES (?, ?)", kinds)
            after = self._measure_of([record.uid for record in records])
        self._adjust(before, after)

    def note(self, opened: Mapping[str, bytes], jobsets: Mapping[str, str]) -> None:
        """Stores the state of existing TrainJobs by uid, and JobSet uid -> TrainJob uid."""
        with self._transaction("note what exists"):
            self._connection.executemany("INSERT OR REPLACE INTO open VALUES (?, ?)", list(opened.items()))
            self._connection.executemany("INSERT OR IGNORE INTO jobsets VALUES (?, ?)", list(jobsets.items()))

    def add_points(self, points: Sequence[tuple[str, Point]]) -> None:
        """Stores progress reports by uid. A full series is thinned; duplicates are ignored."""
        with self._transaction("keep what jobs report"):
            rows = [(uid, point.at, point.dump()) for uid, point in points]
            self._connection.executemany("INSERT OR REPLACE INTO series VALUES (?, ?, ?)", rows)
            for uid in dict.fromkeys(uid for uid, _ in points):
                ((count,),) = self._connection.execute("SELECT count(*) FROM series WHERE uid = ?", (uid,))
                if count > series.LIMIT:
                    found = self._connection.execute("SELECT at FROM series WHERE uid = ? ORDER BY at", (uid,))
                    gone = series.choose_dropped([at for (at,) in found])
                    self._connection.executemany(
                        "DELETE FROM series WHERE uid = ? AND at = ?", [(uid, at) for at in gone]
                    )

    def remove(self, uids: Sequence[str]) -> None:
        """Deletes records. The caller deletes their logs first (`logs.remove`)."""
        with self._transaction("remove records"):
            before = self._measure_of(uids)
            for table, column in _TABLES:
                self._connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(uid,) for uid in uids])
        self._adjust(before, (0, 0))

    def reopen(self, ended: Sequence[str], unfinished: Sequence[str]) -> None:
        """These jobs exist again: removes the deletion from records of ended ones, and the records of the others, which
        are written when they end."""
        with self._transaction("reopen records"):
            before = self._measure_of(unfinished)
            self._connection.executemany(
                "UPDATE jobs SET deleted = '', deletion = NULL WHERE uid = ?", [(uid,) for uid in ended]
            )
            self._connection.executemany("DELETE FROM jobs WHERE uid = ?", [(uid,) for uid in unfinished])
        self._adjust(before, (0, 0))

    # Reading

    def select(self, wanted: Filter = Filter()) -> list[RecordLine]:
        """Newest first, by end time."""
        clauses, values = ["1"], []
        kind = _KIND if self._has_table("kinds") else "'TrainJob'"
        columns = {"namespace": wanted.namespace, "name": wanted.name, kind: wanted.kind, "state": wanted.state}
        columns["uid"] = wanted.uid
        for column, value in columns.items():
            if value:
                clauses.append(f"{column} = ?")
                values.append(value)
        if wanted.before:
            clauses.append("finished < ?")
            values.append(wanted.before)
        if wanted.kinds is not None:
            clauses.append(f"{kind} IN ({', '.join('?' * len(wanted.kinds))})")
            values += wanted.kinds
        if wanted.after is not None:
            clauses.append("finished <= ? AND (finished < ? OR created < ? OR (created = ? AND uid > ?))")
            ended, created, uid = wanted.after
            values += (ended, ended, created, created, uid)
        if wanted.deleted is not None:
            clauses.append("deleted > ''" if wanted.deleted else "deleted = ''")
        query = f"SELECT {_COLUMNS}, {kind} FROM jobs WHERE {' AND '.join(clauses)}"
        query += " ORDER BY finished DESC, created DESC, uid"
        if wanted.limit:
            query += f" LIMIT {int(wanted.limit)}"
        with _explained("read the archive"):
            return [_to_summary(row) for row in self._connection.execute(query, values)]

    def list_kinds(self, namespace: str = "") -> list[str]:
        """Of which there are records in a namespace, or in any."""
        kind = _KIND if self._has_table("kinds") else "'TrainJob'"
        query = f"SELECT DISTINCT {kind} FROM jobs WHERE ? IN ('', namespace)"
        with _explained("read the archive"):
            return sorted(row[0] for row in self._connection.execute(query, (namespace,)))

    def find(self, uid: str) -> JobRecord | None:
        with _explained("read a record"):
            row = self._connection.execute(
                f"SELECT {_COLUMNS}, kept_bytes, document FROM jobs WHERE uid = ?", (uid,)
            ).fetchone()
        if row is None:
            return None
        head = _to_summary((*row[:-2], ""))
        document = orjson.loads(zlib.decompress(row[-1]))
        return JobRecord(
            head.uid, head.namespace, head.name, head.runtime, head.state, head.created, head.finished, head.deletion,
            document, row[-2],
        )  # fmt: skip

    def list_jobsets(self, uid: str) -> list[str]:
        """The uids of the TrainJob's JobSets, by which logs are stored."""
        with _explained("read the archive"):
            return [row[0] for row in self._connection.execute("SELECT uid FROM jobsets WHERE trainjob = ?", (uid,))]

    def list_points(self, uid: str) -> list[Point]:
        """The job's progress reports, oldest first."""
        query = "SELECT at, data FROM series WHERE uid = ? ORDER BY at"
        with _explained("read the archive"):
            if not self._has_table("series"):
                return []
            return [series.load(at, raw) for at, raw in self._connection.execute(query, (uid,))]

    def measure_points(self, uid: str) -> int:
        with _explained("read the archive"):
            rows = self._connection.execute(
                "SELECT coalesce(sum(length(data) + 16), 0) FROM series WHERE uid = ?", (uid,)
            )
            ((size,),) = rows
        return int(size or 0)

    def _has_table(self, name: str) -> bool:
        """Old archives may lack a table, and a reader cannot create it."""
        with _explained("read the archive"):
            return bool(self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone())

    def list_open(self) -> dict[str, Object]:
        """The last known state of existing jobs, by uid."""
        with _explained("read the archive"):
            return {uid: orjson.loads(raw) for uid, raw in self._connection.execute("SELECT uid, object FROM open")}

    def list_open_uids(self) -> set[str]:
        with _explained("read the archive"):
            return {row[0] for row in self._connection.execute("SELECT uid FROM open")}

    def find_open(self, uid: str) -> Object | None:
        with _explained("read the archive"):
            row = self._connection.execute("SELECT object FROM open WHERE uid = ?", (uid,)).fetchone()
        return None if row is None else orjson.loads(row[0])

    def list_kept(self) -> set[str]:
        """Uids of records whose TrainJob still exists: the initial ledger."""
        with _explained("read the archive"):
            return {row[0] for row in self._connection.execute("SELECT uid FROM jobs WHERE deleted = ''")}

    def measure(self) -> tuple[int, int]:
        """(records, bytes including their logs)."""
        with _explained("read the archive"):
            rows = self._connection.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM jobs")
            ((count, size),) = rows
        self.totals = int(count), int(size)
        return self.totals

    def _measure_of(self, uids: Sequence[str]) -> tuple[int, int]:
        count = size = 0
        for uid in dict.fromkeys(uids):
            for (one,) in self._connection.execute("SELECT bytes FROM jobs WHERE uid = ?", (uid,)):
                count, size = count + 1, size + one
        return count, size

    def _adjust(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        if self.totals is not None:
            self.totals = self.totals[0] + after[0] - before[0], self.totals[1] + after[1] - before[1]

    @contextmanager
    def _transaction(self, what: str) -> Iterator[None]:
        with _explained(what):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # On a full disk SQLite has already rolled it back.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def list_jobset_uids(record: JobRecord) -> list[str]:
    return [jobset["uid"] for jobset in list_items(record.document, "jobsets")]


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except apsw.FullError as error:
        raise ArchiveError(f"cannot {what}: no space is left on the disk") from error
    except (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError) as error:
        raise ArchiveError(f"cannot {what}: the archive is not writable ({error})") from error
    except apsw.Error as error:
        raise ArchiveError(f"cannot {what}: {error}") from error


def _open_for_reading(path: Path) -> apsw.Connection:
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


def _prepare(connection: apsw.Connection, path: Path) -> None:
    version = connection.pragma("user_version")
    if version == 0:
        with connection:
            connection.execute(_SCHEMA)
            connection.pragma("user_version", _VERSION)
    elif version > _VERSION:
        raise ArchiveError(
            f"{path} was written by a newer version of trainmaster (format {version}): upgrade to use it"
        )
    connection.execute(_SERIES)
    connection.execute(_KINDS)
    connection.execute(_KEPT)


def _to_row(record: JobRecord) -> tuple[object, ...]:
    raw = zlib.compress(orjson.dumps(record.document), 1)
    deletion = None if record.deletion is None else orjson.dumps(asdict(record.deletion))
    return (
        record.uid,
        record.namespace,
        record.name,
        record.runtime,
        record.state,
        record.created,
        record.finished,
        "" if record.deletion is None else record.deletion.at,
        deletion,
        len(raw) + record.kept_bytes,
        record.kept_bytes,
        raw,
    )


def _to_summary(row: Sequence[Any]) -> RecordLine:
    uid, namespace, name, runtime, state, created, finished, deletion, size, kind = row
    told = None if deletion is None else RecordedDeletion(**orjson.loads(deletion))
    return RecordLine(uid, namespace, name, runtime, state, created, finished, told, size, kind)
