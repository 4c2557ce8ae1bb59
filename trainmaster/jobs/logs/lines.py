"""Reads the log of one container as lines through any client, without loss or duplicates when a connection breaks.

Servers do not number lines, so a reader remembers the time of the last line and how many lines of exactly that time it
has read, requests the log from that time on, and skips those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, replace

from trainmaster.client.contract import Client, LogOptions

Stamped = tuple[str, bytes]
"""(RFC 3339 time, "" if unknown; text without its line break)"""


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

    def lets(self, time: str) -> bool:
        key = sort_key(time)
        if not self._time or not key or key > self._time:
            return True
        if key == self._time and self._left > 0:
            self._left -= 1
            return False
        return key == self._time


async def read_lines(
    client: Client, namespace: str, pod: str, options: LogOptions, position: Position
) -> AsyncGenerator[Stamped, None]:
    """Starts at the position; raises StatusError or OSError when the connection breaks, after which it can be called
    again."""
    if position.time:
        options = replace(options, since_time=position.time, since_seconds=None, tail_lines=None)
    gate = Gate(position)
    rest = b""
    pieces = client.logs(pod, namespace, replace(options, timestamps=True))
    try:
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                time, text = split_line(line)
                if gate.lets(time):
                    yield position.advance((time, text))
    finally:
        # Close it immediately, not when it is garbage-collected.
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
    if rest:
        time, text = split_line(rest)
        if gate.lets(time):
            yield position.advance((time, text))


def split_line(line: bytes) -> Stamped:
    head, _, text = line.partition(b" ")
    if len(head) >= 20 and head[4:5] == b"-" and head[10:11] == b"T":
        return head.decode(errors="replace"), text
    return "", line
