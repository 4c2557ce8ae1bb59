"""One follower of a `JobTable`: all rows in portions, then each change."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import orjson

from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.rest.callers import Caller
from trainmaster.rest.services.live.items import LiveItem
from trainmaster.rest.services.live.job_rows import COLUMNS
from trainmaster.rest.services.live.job_table import Gone, JobTable, Row, TableChange
from trainmaster.rest.services.live.log_cursor import refuse_id
from trainmaster.rest.services.live.sources import Sources, build_share_key

ROWS = 500
"""The maximum number of rows of one event."""
_GATHER_SECONDS = 0.1
"""How long further changes collect after some were sent."""
_PARTIAL = "-"
_ID = re.compile(r"(?P<table>[A-Za-z0-9-]{2,64})\.(?P<number>\d{1,15})")
_COLUMNS = orjson.dumps(COLUMNS)


@dataclass(slots=True)
class TableCursor:
    table: str = ""
    number: int = 0
    is_partial: bool = False
    """A part of the rows was delivered; the client has to begin again."""

    def dump(self) -> str:
        return _PARTIAL if self.is_partial else f"{self.table}.{self.number}"


def parse_cursor(text: str) -> TableCursor:
    """Raises Problem 422 for an invalid id."""
    if text in ("", _PARTIAL):
        return TableCursor(is_partial=bool(text))
    found = _ID.fullmatch(text)
    if found is None:
        raise refuse_id()
    return TableCursor(found["table"], int(found["number"]))


async def follow_jobs(
    sources: Sources, caller: Caller, clock: Clock, ids: Ids, namespaces: Sequence[str], cursor: TableCursor
) -> AsyncGenerator[Sequence[LiveItem], None]:
    """For ever. `namespaces`: ("",) is all."""
    key = build_share_key(caller), tuple(namespaces)
    build = lambda: JobTable(caller.client, clock, ids.uid(), namespaces)  # noqa: E731 - shorter than a function
    async with sources.using(JobTable, key, build) as table:
        follower = _Follower(table, cursor)
        while True:
            if not follower.can_continue():
                async for items in follower.begin():
                    yield items
            news = table.changes.next
            if items := follower.take_changes():
                yield items
                await clock.sleep(_GATHER_SECONDS)
                continue
            table.check()
            if follower.can_continue():
                await news.wait()


class _Follower:
    def __init__(self, table: JobTable, cursor: TableCursor) -> None:
        self._table = table
        self._cursor = cursor

    def can_continue(self) -> bool:
        table, cursor = self._table, self._cursor
        is_known = cursor.table == table.uid and not cursor.is_partial and table.is_complete
        return is_known and table.notes_since <= cursor.number <= table.number

    async def begin(self) -> AsyncGenerator[Sequence[LiveItem], None]:
        """All rows, and `synced` once they are complete."""
        table, cursor = self._table, self._cursor
        if cursor.table or cursor.is_partial:
            cursor.is_partial = True
            yield [self._build("reset", b"{}")]
        cursor.table, cursor.is_partial, cursor.number = table.uid, True, table.number
        for rows in _cut(table.list_newest()):
            yield [self._build("rows", _build_rows(rows))]
        while True:
            news = table.changes.next
            if cursor.number < table.notes_since:
                return
            changes = table.list_since(cursor.number)
            cursor.number = table.number
            # A job that is there was made after all that had its place before.
            if gone := [self._build("gone", change.data) for change in changes if isinstance(change, Gone)]:
                yield gone
            for rows in _cut([change.data for change in changes if isinstance(change, Row)]):
                yield [self._build("rows", _build_rows(rows))]
            if cursor.number == table.number:
                table.check()
                if table.is_complete:
                    break
                await news.wait()
        cursor.is_partial = False
        yield [self._build("synced", b'{"count":%d}' % len(table))]

    def take_changes(self) -> list[LiveItem]:
        return [self._build_change(change) for change in self._table.list_since(self._cursor.number)]

    def _build_change(self, change: TableChange) -> LiveItem:
        self._cursor.number = change.number
        if isinstance(change, Gone):
            return self._build("gone", change.data)
        return self._build("row", b'{"row":%b}' % change.data)

    def _build(self, kind: str, data: bytes) -> LiveItem:
        return LiveItem(kind, data, self._cursor.dump())


def _build_rows(rows: Sequence[bytes]) -> bytes:
    return b'{"columns":%b,"rows":[%b]}' % (_COLUMNS, b",".join(rows))


def _cut(rows: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
