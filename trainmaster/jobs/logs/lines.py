"""Reads the log of one container as lines through any client, without loss or duplicates when a connection breaks.

Servers do not number lines, so a reader remembers the time of the last line and how many lines of exactly that time it
has read, requests the log from that time on, and skips those.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, replace

from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, LogOptions

MAX_TEXT = 1 << 20
"""A longer line is returned in parts of this size, each with the time of the line."""
_LONG = MAX_TEXT + 64

_LOST = re.compile(
    rb"(?:unable to retrieve container logs for \w+://[0-9a-f]{64}"
    rb"|failed to try resolving symlinks in path [^\n]{1,400})\s*"
)
"""What a kubelet sends in place of a log that it no longer has, with status 200 and without a timestamp."""

Stamped = tuple[str, bytes]
"""(RFC 3339 time, "" if unknown; text without its line break)"""


class LogLost(StatusError):
    """The container was removed with its log, although its Pod exists."""

    def __init__(self) -> None:
        super().__init__(400, "BadRequest", "its container has been removed, and its log with it")


def check_not_lost(text: bytes) -> None:
    """Raises LogLost if this text, which came without a timestamp, was not printed by the program."""
    if _LOST.fullmatch(text):
        raise LogLost


def sort_key(time: str) -> str:
    """Times as sortable text, with nine decimal places. Servers return UTC; other times are unchanged."""
    if len(time) == 30 or not time.endswith("Z"):
        return time
    seconds, _, fraction = time[:-1].partition(".")
    return f"{seconds}.{fraction:0<9}Z"


@dataclass(slots=True)
class Position:
    """How far a log was read."""

    restart: int = 0
    time: str = ""
    same: int = 0
    """How many lines of exactly that time were read."""

    def advance(self, line: Stamped) -> Stamped:
        time = sort_key(line[0])
        if time and time == self.time:
            self.same += 1
        elif time > self.time:
            self.time, self.same = time, 1
        return line

    def enter(self, restart: int) -> None:
        self.restart, self.time, self.same = restart, "", 0


def read_last(lines: Iterable[Stamped], tail: int | None, position: Position) -> Iterator[Stamped]:
    """The last lines after the position, which advances with each that is returned or left out; None for all."""
    gate = Gate(position)
    last: deque[Stamped] = deque()
    for line in lines:
        if not gate.lets(line[0]):
            continue
        if tail is None:
            yield position.advance(line)
            continue
        last.append(line)
        if len(last) > tail:
            position.advance(last.popleft())
    while last:
        yield position.advance(last.popleft())


class Gate:
    """Decides for each line whether it is new."""

    def __init__(self, position: Position) -> None:
        self._time = position.time
        self._left = position.same
        self._has_begun = False

    def lets(self, time: str) -> bool:
        key = sort_key(time)
        if not self._time:
            return True
        if not key:
            # A kubelet that is asked for what comes after a time may begin with the rest of a line, without a time.
            return self._has_begun
        self._has_begun = True
        if key > self._time:
            return True
        if key == self._time and self._left > 0:
            self._left -= 1
            return False
        return key == self._time

    def select(self, lines: list[Stamped]) -> list[Stamped]:
        if not self._time:
            return lines
        new = [line for line in lines if self.lets(line[0])]
        if new and sort_key(new[-1][0]) > self._time:
            self._time = ""  # everything from here on
        return new


async def read_lines(
    client: Client, namespace: str, pod: str, options: LogOptions, position: Position
) -> AsyncGenerator[list[Stamped], None]:
    """The lines after the position, those that arrive together in one list; the caller advances the position. Raises
    StatusError or OSError when the connection breaks, after which it can be called again."""
    if position.time:
        options = replace(options, since_time=position.time, since_seconds=None, tail_lines=None)
    gate, splitter = Gate(position), LineSplitter()
    pieces = client.logs(pod, namespace, replace(options, timestamps=True))
    try:
        async for piece in pieces:
            if lines := gate.select(_check(splitter.feed(piece))):
                yield lines
    finally:
        # Close it immediately, not when it is garbage-collected.
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
    if lines := gate.select(_check(splitter.finish())):
        yield lines


def _check(lines: list[Stamped]) -> list[Stamped]:
    for time, text in lines:
        if not time:
            check_not_lost(text)
    return lines


class LineSplitter:
    """Splits a log with timestamps into lines, whatever the pieces in which it arrives."""

    def __init__(self) -> None:
        self._rest = b""
        self._time: str | None = None
        """The time of a long line whose first part was returned; `_rest` is then without a timestamp."""

    def feed(self, piece: bytes) -> list[Stamped]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found: list[Stamped] = []
        for line in lines:
            if self._time is None and len(line) <= MAX_TEXT:
                found.append(split_line(line))
            else:
                found += self._cut(line)
                self._time = None
        if len(self._rest) > _LONG:
            *parts, (self._time, self._rest) = self._cut(self._rest)
            found += parts
        return found

    def finish(self) -> list[Stamped]:
        """The last line, which has no line break."""
        return self._cut(self._rest) if self._rest else []

    def _cut(self, line: bytes) -> list[Stamped]:
        time, text = split_line(line) if self._time is None else (self._time, line)
        return [(time, part) for part in split_text(text)]


def split_text(text: bytes) -> list[bytes]:
    if len(text) <= MAX_TEXT:
        return [text]
    return [text[start : start + MAX_TEXT] for start in range(0, len(text), MAX_TEXT)]


def split_line(line: bytes) -> Stamped:
    head, _, text = line.partition(b" ")
    if len(head) >= 20 and head[4:5] == b"-" and head[10:11] == b"T":
        return head.decode(errors="replace"), text
    return "", line
