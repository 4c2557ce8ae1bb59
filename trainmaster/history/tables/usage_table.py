"""The usage of jobs in the archive's file (`usage`), on a connection of `archive`, which holds the transaction."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from trainmaster.history.curves import usage
from trainmaster.history.curves.usage import Row, UsagePoint

_KNOWN = "EXISTS (SELECT 1 FROM jobs WHERE uid = ?1) OR EXISTS (SELECT 1 FROM open WHERE uid = ?1)"
"""What is measured of a job whose record was removed meanwhile would stay for ever."""


def add(connection: apsw.Connection, points: Sequence[tuple[str, UsagePoint]]) -> None:
    rows = [(uid, point.at, point.attempt, point.dump()) for uid, point in points]
    connection.executemany(f"INSERT OR REPLACE INTO usage SELECT ?1, ?2, ?3, ?4 WHERE {_KNOWN}", rows)


def read(connection: apsw.Connection, uid: str, since: int = 0) -> list[UsagePoint]:
    """The oldest first."""
    query = "SELECT at, attempt, data FROM usage WHERE uid = ? AND at >= ? ORDER BY at"
    return [usage.load(*row) for row in connection.execute(query, (uid, since))]


def thin(connection: apsw.Connection, uid: str, now: int) -> None:
    """Merges what is old at this time."""
    _merge(connection, uid, usage.choose_by_age(_list_rows(connection, uid), now))


def condense(connection: apsw.Connection, uid: str) -> None:
    """As few points as a record has."""
    _merge(connection, uid, usage.choose_evenly(_list_rows(connection, uid)))


def _list_rows(connection: apsw.Connection, uid: str) -> list[Row]:
    """Without reading what was measured."""
    return list(connection.execute("SELECT at, attempt FROM usage WHERE uid = ? ORDER BY at", (uid,)))


def list_long(connection: apsw.Connection, since: str) -> list[str]:
    """The jobs that have more points than a record, of those that ended at this time or later."""
    query = "SELECT uid FROM jobs INDEXED BY jobs_by_end WHERE finished >= ?"
    query += " AND (SELECT count(*) FROM usage WHERE usage.uid = jobs.uid) > ?"
    return [uid for (uid,) in connection.execute(query, (since, usage.LIMIT))]


def _merge(connection: apsw.Connection, uid: str, groups: Sequence[Sequence[Row]]) -> None:
    for group in groups:
        begin, end = group[0][0], group[-1][0]
        query = "SELECT at, attempt, data FROM usage WHERE uid = ? AND at BETWEEN ? AND ? ORDER BY at"
        times = {at for at, _ in group}
        found = [usage.load(*row) for row in connection.execute(query, (uid, begin, end)) if row[0] in times]
        connection.executemany("DELETE FROM usage WHERE uid = ? AND at = ?", [(uid, at) for at in times])
        add(connection, [(uid, usage.merge(found))])
