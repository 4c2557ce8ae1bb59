"""How far a client has read a job's log: the id of its stream.

The id contains the position in the log of each container of the current attempt (time of the last line, and how many
lines of exactly that time), so a client that reconnects, also to another process or after a restart of the server, gets
everything it has not seen and nothing twice. Earlier attempts need no entry: they were delivered completely.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import orjson

from trainmaster.jobs.logs.contract import ATTEMPT, Entry, Line, LogMark, Positions
from trainmaster.jobs.logs.lines import Position
from trainmaster.rest.problems import FieldProblem, Problem, invalid

_VERSION = 1
ID_LENGTH = 32_768
_ID_BYTES = 262_144
_PLAIN_BYTES = 1024


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last item of a stream: how the job ended."""

    state: str


Item = Entry | StreamEnd
Batch = Sequence[Item]
"""Items that arrive together."""


class Placed(NamedTuple):
    """An item and where it stands in the log of its container: comparable with other places of that container."""

    item: Item
    place: tuple[int, str, int] | None
    """(restart, time, number among the lines of that time); None for what has no place of its own."""


@dataclass(slots=True)
class LogCursor:
    """How far a client has read."""

    uid: str = ""
    attempt: int | None = None
    known: dict[tuple[str, str], Position] = field(default_factory=dict)
    over: bool = False
    mark: str = ""
    """A later position, as text: `settle` moves there."""

    def settle(self) -> None:
        if self.mark:
            later = parse_cursor(self.mark)
            self.uid, self.attempt, self.known, self.over = later.uid, later.attempt, later.known, later.over
            self.mark = ""

    def note(self, item: Item) -> Placed:
        if isinstance(item, StreamEnd):
            self.over = True
            return Placed(item, None)
        if isinstance(item, LogMark) and item.kind != ATTEMPT:
            return Placed(item, None)
        if self.attempt is None or item.attempt > self.attempt:
            self.attempt = item.attempt
            self.known.clear()
        if not isinstance(item, Line):
            return Placed(item, None)
        position = self.known.setdefault((item.pod, item.container), Position(item.restart))
        if position.restart != item.restart:
            position.enter(item.restart)
        position.advance((item.time, item.raw))
        return Placed(item, (position.restart, position.time, position.same) if item.time else None)

    def covers(self, placed: Placed) -> bool:
        """Whether it was read already."""
        item = placed.item
        if isinstance(item, StreamEnd) or self.attempt is None:
            return False
        if item.attempt != self.attempt:
            return item.attempt < self.attempt
        if not isinstance(item, Line):
            return item.kind == ATTEMPT
        position = self.known.get((item.pod, item.container))
        if position is None or placed.place is None:
            return False
        return placed.place <= (position.restart, position.time, position.same)

    def is_within(self, other: LogCursor) -> bool:
        """Whether the other has read everything that this one has."""
        if self.attempt is None:
            return True
        if other.attempt is None or other.attempt != self.attempt:
            return other.attempt is not None and other.attempt > self.attempt
        return all(
            key in other.known and _get_place(one) <= _get_place(other.known[key]) for key, one in self.known.items()
        )

    def copy(self) -> LogCursor:
        return LogCursor(self.uid, self.attempt, {key: replace(one) for key, one in self.known.items()}, self.over)

    def dump(self) -> str:
        """The same text for the same position."""
        known = [[*key, one.restart, one.time, one.same] for key, one in sorted(self.known.items(), key=_get_key)]
        raw = orjson.dumps([_VERSION, self.uid, self.attempt, self.over, known])
        # For a few workers compression would cost more than the rest of the event.
        packed = raw if len(raw) < _PLAIN_BYTES else zlib.compress(raw, 1)
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    def to_positions(self) -> Positions | None:
        return None if self.attempt is None else Positions.resume(self.attempt, self.known)


def _get_key(entry: tuple[tuple[str, str], Position]) -> tuple[str, str]:
    return entry[0]


def _get_place(position: Position) -> tuple[int, str, int]:
    return position.restart, position.time, position.same


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
        raise refuse_id() from None


def refuse_id() -> Problem:
    hint = "send the id of the last event as it came, or none to begin anew"
    return invalid([FieldProblem("is no id of this stream", parameter="Last-Event-ID")], hint=hint)


def _read_entry(entry: Sequence[object]) -> tuple[tuple[str, str], Position]:
    pod, container, restart, time, same = entry
    if not (isinstance(pod, str) and isinstance(container, str) and isinstance(time, str)):
        raise ValueError("no text")
    return (pod, container), Position(_read_count(restart), time, _read_count(same))


def _read_count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError("no count")
    return value


def check_job(uid: str, cursor_uid: str) -> None:
    if cursor_uid and cursor_uid != uid:
        text = "the job that this stream was about is gone, and another one has its name"
        raise Problem(410, "gone", text, hint="open the stream again without Last-Event-ID")
