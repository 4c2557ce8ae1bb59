"""What the processes of a job printed, from the archive, as pieces of an answer.

The parameters are those of `pods/log`, and `rank`, `step`, `attempt`, `allAttempts`, `pod` and `restart`. The default
is text: the newest attempt, ranks merged by time, each line with its rank unless only one was asked for.
`format=entries` is for programs: one JSON object a line (`jobs.logs.encoding`).

Files are read in a thread of their own for each answer, a batch at a time, and only as fast as the reader takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from trainmaster.api import status
from trainmaster.apiserver.http.messages import Query
from trainmaster.apiserver.http.options import read_log_options
from trainmaster.history.kept_logs import KeptLogs
from trainmaster.history.logs import ArchivedLog, read_lines
from trainmaster.jobs.logs.contract import Entry, JobLogOptions, KeptLog, Line
from trainmaster.jobs.logs.encoding import encode_entry
from trainmaster.jobs.logs.lines import Stamped
from trainmaster.jobs.logs.stream import watch_kept_lines
from trainmaster.kit.clock import format_time

_BATCH = 500
_MOST_LOGS = 1000
"""That are merged: each is an open file, and a line of each is in memory."""
_MOST_LINES = 50_000
"""That `tailLines` may ask for in all logs together, because they are in memory."""
_TAIL_BYTES = 32 * 1024 * 1024
"""Of the ends of all logs together that are looked at for them."""
_FORMATS = ("", "text", "entries")


@dataclass(frozen=True, slots=True)
class LogRequest:
    wanted: JobLogOptions
    pod: str = ""
    """Only of this Pod (`PodPlace.id`)."""
    restart: int | None = None
    timestamps: bool = False
    entries: bool = False
    limit: int | None = None
    """Bytes."""

    @property
    def content_type(self) -> str:
        return "application/jsonl" if self.entries else "text/plain; charset=utf-8"


def read_log_request(query: Query, now: datetime) -> LogRequest:
    """Raises StatusError 400 or 422."""
    asked = read_log_options(query)
    if asked.previous:
        raise status.bad_request("previous: name an attempt instead, counted from 0: attempt=0")
    if query.get("format") not in _FORMATS:
        raise status.bad_request("format: it is text or entries")
    since = asked.since_time
    if asked.since_seconds is not None:
        since = format_time(now - timedelta(seconds=min(asked.since_seconds, 10**9)))
    attempt = query.find_integer("attempt")
    wanted = JobLogOptions(
        attempt=attempt,
        last_attempt=attempt is None and not query.flag("allAttempts"),
        rank=query.find_integer("rank"),
        job=query.get("step"),
        container=asked.container,
        since_time=since,
        tail=asked.tail_lines,
    )
    entries = query.get("format") == "entries"
    return LogRequest(
        wanted, query.get("pod"), query.find_integer("restart"), asked.timestamps, entries, asked.limit_bytes
    )


class ChosenLogs(KeptLogs):
    """The archive's logs that a request asks for, and for the last lines only their ends."""

    def __init__(self, directory: Path, request: LogRequest) -> None:
        super().__init__(directory)
        self._request = request
        self._last_bytes: int | None = None

    def list_logs(self, job: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        request = self._request
        found = [
            log
            for log in super().list_logs(job, jobsets)
            if request.pod in ("", log.place.id)
            and request.restart in (None, log.restart)
            and request.wanted.fits(log.place, log.container)
        ]
        if request.wanted.last_attempt and found:
            newest = max(log.place.round for log in found)
            found = [log for log in found if log.place.round == newest]
        _check_size(found, request.wanted.tail)
        if request.wanted.tail is not None:
            self._last_bytes = _TAIL_BYTES // max(1, len(found))
        return found

    def read(self, log: KeptLog) -> Iterator[Stamped]:
        assert isinstance(log, ArchivedLog)
        return read_lines(log, self._last_bytes)


def _check_size(logs: Sequence[KeptLog], tail: int | None) -> None:
    if len(logs) > _MOST_LOGS:
        text = f"there are {len(logs)} logs, and at most {_MOST_LOGS} are merged: choose a rank, an attempt or a step"
        raise status.bad_request(text)
    if tail is not None and tail * len(logs) > _MOST_LINES:
        text = f"tailLines: at most {_MOST_LINES} lines in all {len(logs)} logs together"
        raise status.bad_request(f"{text}: ask for fewer, or choose a rank")


async def read_pieces(directory: Path, uid: str, request: LogRequest) -> AsyncGenerator[bytes, None]:
    """The answer, piece by piece. Raises StatusError before the first one if it cannot be given, and OSError."""
    left = request.limit
    prefix = request.wanted.rank is None and not request.pod
    async with aclosing(_read_batches(directory, uid, request)) as batches:
        async for batch in batches:
            piece = b"".join(_render(entry, request, prefix) for entry in batch)
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            if piece:
                yield piece
            if left == 0:
                return


def _render(entry: Entry, request: LogRequest, prefix: bool) -> bytes:
    if request.entries:
        return encode_entry(entry)
    if not isinstance(entry, Line):
        return b""
    place = f"[{entry.job} {entry.rank}] ".encode() if prefix else b""
    moment = f"{entry.time} ".encode() if request.timestamps else b""
    return place + moment + entry.raw + b"\n"


async def _read_batches(directory: Path, uid: str, request: LogRequest) -> AsyncGenerator[list[Entry], None]:
    """In a thread with a loop of its own: the readers of logs are asynchronous, and wait for the disk."""
    loop, pool, runner = asyncio.get_running_loop(), ThreadPoolExecutor(1, "records-log"), asyncio.Runner()
    entries = watch_kept_lines(uid, request.wanted, ChosenLogs(directory, request))
    try:
        while batch := await loop.run_in_executor(pool, _run, runner, entries):
            yield batch
    finally:
        # After the batch that it may still be reading.
        ended = loop.run_in_executor(pool, _end, runner, entries)
        pool.shutdown(wait=False)
        await asyncio.shield(ended)


def _run(runner: asyncio.Runner, entries: AsyncIterator[Entry]) -> list[Entry]:
    return runner.run(_take(entries))


async def _take(entries: AsyncIterator[Entry]) -> list[Entry]:
    found: list[Entry] = []
    async for entry in entries:
        found.append(entry)
        if len(found) == _BATCH:
            break
    return found


def _end(runner: asyncio.Runner, entries: AsyncGenerator[Entry, None]) -> None:
    runner.run(_close(entries))
    runner.close()


async def _close(entries: AsyncGenerator[Entry, None]) -> None:
    await entries.aclose()
