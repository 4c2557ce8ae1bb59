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
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items
from trainmaster.history.curves import series
from trainmaster.history.curves.series import Point
from trainmaster.history.record import JobRecord, RecordedDeletion, RecordFacts, read_facts
from trainmaster.history.tables import schema

if TYPE_CHECKING:
    from trainmaster.history.curves.usage import UsagePoint

FILE = "history.db"
_COLUMNS = "uid, namespace, name, runtime, state, created, finished, deletion, bytes"
_OF_USER = "EXISTS (SELECT 1 FROM facts WHERE facts.uid = jobs.uid AND facts.user = ?)"
_TEXT = "namespace || ' ' || name || ' ' || runtime"
_WORDS = "coalesce((SELECT words FROM facts WHERE facts.uid = jobs.uid), '')"
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
    namespaces: tuple[str, ...] | None = None
    """Only jobs of these; None is all."""
    runtime: str = ""
    user: str = ""
    since: str = ""
    """Only jobs that ended at this time or later."""
    words: tuple[str, ...] = ()
    """In small letters; each has to occur in the namespace, name, runtime, user or labels."""


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
                return cls(directory, schema.open_for_reading(path))
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
            self._put_facts([(record.uid, read_facts(record.document)) for record in records])
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
            self._put_points(points)
            for uid in dict.fromkeys(uid for uid, _ in points):
                ((count,),) = self._connection.execute("SELECT count(*) FROM series WHERE uid = ?", (uid,))
                if count > series.LIMIT:
                    left = series.thin(self.list_points(uid))
                    self._connection.execute("DELETE FROM series WHERE uid = ?", (uid,))
                    self._put_points([(uid, point) for point in left])

    def _put_points(self, points: Sequence[tuple[str, Point]]) -> None:
        rows = [(uid, point.at, point.dump()) for uid, point in points]
        self._connection.executemany("INSERT OR REPLACE INTO series VALUES (?, ?, ?)", rows)

    def add_usage(self, points: Sequence[tuple[str, UsagePoint]], *, thin: Sequence[str] = (), now: int = 0) -> None:
        """Stores what the ranks of jobs use, by uid. `thin`: the jobs whose older points are merged at this time."""
        from trainmaster.history.tables import usage_table  # noqa: PLC0415 - not needed for a start

        with self._transaction("keep what jobs use"):
            usage_table.add(self._connection, points)
            for uid in thin:
                usage_table.thin(self._connection, uid, now)

    def condense_usage(self, uids: Sequence[str]) -> None:
        """These jobs do not run any more: their usage becomes as short as a record's."""
        from trainmaster.history.tables import usage_table  # noqa: PLC0415 - not needed for a start

        with self._transaction("keep what jobs use"):
            for uid in uids:
                usage_table.condense(self._connection, uid)

    def add_missing_facts(self, uids: Sequence[str]) -> None:
        """For records of earlier versions."""
        with self._transaction("describe records"):
            found = [record for uid in uids if (record := self.find(uid)) is not None]
            self._put_facts([(record.uid, read_facts(record.document)) for record in found])

    def _put_facts(self, facts: Sequence[tuple[str, RecordFacts]]) -> None:
        rows = [
            (uid, one.user, one.nodes, orjson.dumps(one.labels), orjson.dumps(one.metrics), one.words)
            for uid, one in facts
        ]
        self._connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?)", rows)

    def remove(self, uids: Sequence[str]) -> None:
        """Deletes records. The caller deletes their logs first (`logs.remove`)."""
        with self._transaction("remove records"):
            before = self._measure_of(uids)
            for table, column in schema.TABLES:
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
            for table in ("jobs", "facts"):
                self._connection.executemany(f"DELETE FROM {table} WHERE uid = ?", [(uid,) for uid in unfinished])
        self._adjust(before, (0, 0))

    # Reading

    def select(self, wanted: Filter = Filter()) -> list[RecordLine]:
        """Newest first, by end time."""
        kind = _KIND if self._has_table("kinds") else "'TrainJob'"
        clauses, values = _build_conditions(wanted, kind, has_facts=self._has_table("facts"))
        query = f"SELECT {_COLUMNS}, {kind} FROM jobs WHERE {' AND '.join(['1', *clauses])}"
        query += " ORDER BY finished DESC, created DESC, uid"
        if wanted.limit:
            query += f" LIMIT {int(wanted.limit)}"
        with _explained("read the archive"):
            return [_to_summary(row) for row in self._connection.execute(query, values)]

    def list_facts(self, uids: Sequence[str]) -> dict[str, RecordFacts]:
        """By uid; of a record that has none yet, from the record itself."""
        found: dict[str, RecordFacts] = {}
        query = "SELECT user, nodes, labels, metrics FROM facts WHERE uid = ?"
        has_facts = self._has_table("facts")
        for uid in uids:
            with _explained("read a record"):
                row = self._connection.execute(query, (uid,)).fetchone() if has_facts else None
            if row is not None:
                user, nodes, labels, metrics = row
                found[uid] = RecordFacts(user, nodes, orjson.loads(labels), orjson.loads(metrics))
            elif (record := self.find(uid)) is not None:
                found[uid] = read_facts(record.document)
        return found

    def list_without_facts(self) -> list[str]:
        """The records of earlier versions, of which there are no facts yet."""
        with _explained("read the archive"):
            ((records, facts),) = self._connection.execute(
                "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM facts)"
            )
            if records <= facts:
                return []
            # The index has the uids, and no documents.
            query = "SELECT uid FROM jobs INDEXED BY jobs_by_end WHERE NOT EXISTS"
            query += " (SELECT 1 FROM facts WHERE facts.uid = jobs.uid) ORDER BY finished DESC"
            return [uid for (uid,) in self._connection.execute(query)]

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

    def find_last_point(self, uid: str) -> Point | None:
        query = "SELECT at, data FROM series WHERE uid = ? ORDER BY at DESC LIMIT 1"
        with _explained("read the archive"):
            row = self._connection.execute(query, (uid,)).fetchone()
        return None if row is None else series.load(*row)

    def list_usage(self, uid: str, since: int = 0) -> list[UsagePoint]:
        """What the job's ranks have used from this time on, oldest first."""
        from trainmaster.history.tables import usage_table  # noqa: PLC0415 - not needed for a start

        with _explained("read the archive"):
            return usage_table.read(self._connection, uid, since) if self._has_table("usage") else []

    def list_long_usage(self, since: str) -> list[str]:
        """The jobs that have more points of usage than a record, of those that ended at this time or later."""
        from trainmaster.history.tables import usage_table  # noqa: PLC0415 - not needed for a start

        with _explained("read the archive"):
            return usage_table.list_long(self._connection, since)

    def measure_points(self, uid: str) -> int:
        """The size of its progress reports and its usage."""
        query = "SELECT coalesce(sum(length(data) + 16), 0) FROM"
        with _explained("read the archive"):
            sizes = [
                self._connection.execute(f"{query} {table} WHERE uid = ?", (uid,)).fetchone()
                for table in ("series", "usage")
            ]
        return sum(int(row[0]) for row in sizes if row is not None)

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


def _build_conditions(wanted: Filter, kind: str, *, has_facts: bool) -> tuple[list[str], list[str]]:
    """SQL and its values. `kind`: the expression for the kind of a job."""
    clauses: list[str] = []
    values: list[str] = []

    def add(clause: str, *more: str) -> None:
        clauses.append(clause)
        values.extend(more)

    columns = {"namespace": wanted.namespace, "name": wanted.name, kind: wanted.kind, "state": wanted.state}
    for column, value in {**columns, "uid": wanted.uid, "runtime": wanted.runtime}.items():
        if value:
            add(f"{column} = ?", value)
    for column, names in (("namespace", wanted.namespaces), (kind, wanted.kinds)):
        if names is not None:
            add(f"{column} IN ({', '.join('?' * len(names))})", *names)
    if wanted.before:
        add("finished < ?", wanted.before)
    if wanted.since:
        add("finished >= ?", wanted.since)
    if wanted.after is not None:
        ended, created, uid = wanted.after
        later = "finished <= ? AND (finished < ? OR created < ? OR (created = ? AND uid > ?))"
        add(later, ended, ended, created, created, uid)
    if wanted.deleted is not None:
        add("deleted > ''" if wanted.deleted else "deleted = ''")
    if wanted.user:
        add(_OF_USER if has_facts else "? = ''", wanted.user)
    for word in wanted.words:
        add(f"instr(lower({_TEXT}) || ' ' || {_WORDS if has_facts else repr('')}, ?) > 0", word)
    return clauses, values


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


def _prepare(connection: apsw.Connection, path: Path) -> None:
    version = schema.prepare(connection)
    if version > schema.VERSION:
        raise ArchiveError(
            f"{path} was written by a newer version of trainmaster (format {version}): upgrade to use it"
        )


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
