"""Streams the output of a job's workers, with an id that records how far a client has read.

The id contains the position in the log of each container of the current attempt (time of the last line, and how many
lines of exactly that time), so a client that reconnects, also to another process or after a restart of the server, gets
everything it has not seen and nothing twice. Earlier attempts need no entry: they were delivered completely.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import orjson

from trainmaster.api.status import NotFound
from trainmaster.client.contract import Client
from trainmaster.history.record import JobRecord
from trainmaster.jobs.logs.batches import gather_batches
from trainmaster.jobs.logs.contract import ATTEMPT, Entry, JobLogOptions, Kept, Line, LogMark, Positions
from trainmaster.jobs.logs.lines import Position
from trainmaster.jobs.logs.stream import watch_batches, watch_kept_lines
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.services.job_views import read_state
from trainmaster.rest.services.log_answers import build_line
from trainmaster.rest.services.streams import encode

_VERSION = 1
ID_LENGTH = 32_768
_ID_BYTES = 262_144
_PLAIN_BYTES = 1024
_LINES = 100
"""The maximum number of lines per event."""
MOST_WORKERS = 512
"""The maximum number of workers that can be merged: the id has an entry for each, and clients send it in a header."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last item of a stream: how the job ended."""

    state: str


Item = Entry | StreamEnd
Batch = Sequence[Item]
"""Items that arrive together."""


@dataclass(slots=True)
class LogCursor:
    """How far a client has read."""

    uid: str = ""
    attempt: int | None = None
    known: dict[tuple[str, str], Position] = field(default_factory=dict)
    over: bool = False

    def note(self, item: Item) -> None:
        if isinstance(item, StreamEnd):
            self.over = True
            return
        if isinstance(item, LogMark) and item.kind != ATTEMPT:
            return
        if self.attempt is None or item.attempt > self.attempt:
            self.attempt = item.attempt
            self.known.clear()
        if isinstance(item, Line):
            position = self.known.setdefault((item.pod, item.container), Position(item.restart))
            if position.restart != item.restart:
                position.enter(item.restart)
            position.advance((item.time, item.raw))

    def dump(self) -> str:
        known = [[*key, one.restart, one.time, one.same] for key, one in self.known.items()]
        raw = orjson.dumps([_VERSION, self.uid, self.attempt, self.over, known])
        # For a few workers compression would cost more than the rest of the event.
        packed = raw if len(raw) < _PLAIN_BYTES else zlib.compress(raw, 1)
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    def to_positions(self) -> Positions | None:
        return None if self.attempt is None else Positions.resume(self.attempt, self.known)


def parse_cursor(text: str) -> LogCursor:
    """Raises Problem 422 for an invalid id; it comes from outside, so everything is validated."""
    if not text:
        return LogCursor()
    try:
        if len(text) > ID_LENGTH:
            raise ValueError("too long")
        packed = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
        raw = packed if packed.startswith(b"[") else zlib.decompressobj().decompress(packed, _ID_BYTES)
        version, uid, attempt, over, known = orjson.loads(raw)
        if version != _VERSION or not isinstance(uid, str) or not isinstance(over, bool):
            raise ValueError("of another kind")
        if attempt is not None:
            attempt = _read_count(attempt)
        return LogCursor(uid, attempt, dict(map(_read_entry, known)), over)
    except (ValueError, TypeError, binascii.Error, zlib.error):
        hint = "send the id of the last event as it came, or none to begin anew"
        raise invalid([FieldProblem("is no id of this stream", parameter="Last-Event-ID")], hint=hint) from None


def _read_entry(entry: Sequence[object]) -> tuple[tuple[str, str], Position]:
    pod, container, restart, time, same = entry
    if not (isinstance(pod, str) and isinstance(container, str) and isinstance(time, str)):
        raise ValueError("no text")
    return (pod, container), Position(_read_count(restart), time, _read_count(same))


def _read_count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError("no count")
    return value


def check_job(uid: str, cursor: LogCursor) -> None:
    if cursor.uid and cursor.uid != uid:
        text = "the job that this stream was about is gone, and another one has its name"
        raise Problem(410, "gone", text, hint="open the stream again without Last-Event-ID")


async def watch_job(
    client: Client, clock: Clock, job: TrainingJob, wanted: JobLogOptions, kept: Kept, cursor: LogCursor
) -> AsyncGenerator[Batch, None]:
    batches = watch_batches(client, clock, job.namespace, job.reference, wanted, kept, cursor.to_positions())
    async with aclosing(batches):
        async for batch in batches:
            yield batch
    yield [StreamEnd(await _find_end(client, job))]


async def _find_end(client: Client, job: TrainingJob) -> str:
    try:
        last = type(job)(await client.get(job.gvr, job.name, job.namespace))
    except NotFound:
        return "Deleted"
    return read_state(last).word if last.uid == job.uid else "Deleted"


async def watch_record(
    record: JobRecord, wanted: JobLogOptions, kept: Kept, cursor: LogCursor
) -> AsyncGenerator[Batch, None]:
    batches = gather_batches(watch_kept_lines(record.uid, wanted, kept, cursor.to_positions()))
    async with aclosing(batches):
        async for batch in batches:
            yield batch
    yield [StreamEnd(record.state)]


class LogEncoder:
    """Encodes items as events, and advances the cursor."""

    def __init__(self, cursor: LogCursor) -> None:
        self._cursor = cursor

    def __call__(self, batches: Sequence[Batch]) -> bytes:
        events: list[bytes] = []
        lines: list[Line] = []
        for item in itertools.chain.from_iterable(batches):
            if isinstance(item, Line):
                lines.append(item)
                if len(lines) < _LINES:
                    continue
            events.append(self._flush(lines))
            if not isinstance(item, Line):
                events.append(self._encode(item))
        events.append(self._flush(lines))
        return b"".join(events)

    def _flush(self, lines: list[Line]) -> bytes:
        if not lines:
            return b""
        for line in lines:
            self._cursor.note(line)
        body = encode("log", {"lines": [build_line(line) for line in lines]}, self._cursor.dump())
        lines.clear()
        return body

    def _encode(self, item: LogMark | StreamEnd) -> bytes:
        self._cursor.note(item)
        if isinstance(item, StreamEnd):
            return encode("end", {"state": item.state}, self._cursor.dump())
        data = {"kind": item.kind, "attempt": item.attempt, "text": item.text}
        return encode("mark", data, self._cursor.dump())
