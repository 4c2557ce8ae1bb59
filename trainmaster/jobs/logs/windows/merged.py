"""The logs of a job's containers as one, read anywhere: attempt by attempt, merged by time, as in `jobs.logs.stream`.

A line has an address (`LineAddress`), which is also the place before it. It names no bytes, so it stays right when logs
are rotated, or when they are kept after the Pod is gone.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from trainmaster.jobs.logs.lines import sort_key
from trainmaster.jobs.logs.windows.stored import (
    LogBytes,
    StoredLine,
    count_same,
    locate_entry,
    locate_time,
    read_backward,
    read_forward,
    read_time,
    skip_lines,
)
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.shim.log_sink import HEAD_BYTES

_MOST_BYTES = 2 << 20
"""Of the text of a window, on each side of its place; a line is always there."""


class LineAddress(NamedTuple):
    attempt: int
    job: str
    rank: int
    time: str
    number: int
    """How many lines of this rank have the same time and stand before it."""

    def __str__(self) -> str:
        return "~".join(map(str, self))


def parse_address(text: str) -> LineAddress:
    """Raises ValueError if it is none."""
    attempt, job, rank, time, number = text.split("~")
    counts = [int(value) for value in (attempt, rank, number) if re.fullmatch("[0-9]{1,9}", value)]
    if len(counts) != 3 or len(job) > 253 or len(time) > 40:
        raise ValueError("is no address of a line")
    return LineAddress(counts[0], job, counts[1], time, counts[2])


@dataclass(frozen=True, slots=True)
class RunLog:
    """The output of one run of a container."""

    place: PodPlace
    container: str
    restart: int
    size: int
    """About how many bytes."""
    open: Callable[[], LogBytes]

    @property
    def order(self) -> tuple[str, int, int, str, int, str]:
        """Of lines of the same time."""
        place = self.place
        return place.job, place.index, place.job_index, self.container, self.restart, place.id


@dataclass(frozen=True, slots=True)
class Wish:
    """Where a window is: at one of these, and how many lines before and after that place."""

    before: int
    after: int
    is_end: bool = False
    address: LineAddress | None = None
    time: str = ""
    share: float | None = None
    """Of all bytes."""


class PlacedLine(NamedTuple):
    run: RunLog
    stored: StoredLine
    number: int

    @property
    def address(self) -> LineAddress:
        place = self.run.place
        return LineAddress(place.round, place.job, place.index, self.stored.time, self.number)


@dataclass(frozen=True, slots=True)
class LogPart:
    """Lines that follow one another."""

    lines: Sequence[PlacedLine]
    before: int
    """How many of them stand before the wanted place."""
    begin: float
    """The share of all bytes that stands before the first line."""
    end: float
    is_first: bool
    """Nothing stands before it."""
    is_last: bool


class _Spot(NamedTuple):
    """A place: in which attempt, and how far into each of its logs."""

    attempt: int
    offsets: Sequence[int]


class MergedLog:
    """`runs`: all of them, in any order. Everything blocks."""

    def __init__(self, runs: Sequence[RunLog]) -> None:
        self._runs: dict[int, list[RunLog]] = {}
        for run in sorted(runs, key=lambda run: (run.place.round, run.order)):
            self._runs.setdefault(run.place.round, []).append(run)
        self.size = sum(run.size for run in runs)
        self._holder: ExitStack | None = None
        self._held: dict[int, Sequence[LogBytes]] = {}

    @property
    def attempts(self) -> Sequence[int]:
        return list(self._runs)

    def list_runs(self, attempt: int) -> Sequence[RunLog]:
        return self._runs[attempt]

    @contextmanager
    def opened(self, attempt: int) -> Iterator[Sequence[LogBytes]]:
        if self._holder is not None:
            if attempt not in self._held:
                self._held[attempt] = self._open(attempt, self._holder)
            yield self._held[attempt]
            return
        with ExitStack() as stack:
            yield self._open(attempt, stack)

    def _open(self, attempt: int, stack: ExitStack) -> Sequence[LogBytes]:
        logs = []
        for run in self._runs[attempt]:
            logs.append(run.open())
            stack.callback(logs[-1].close)
        return logs

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """A log that is opened stays so: a place in it would be wrong after a rotation."""
        with ExitStack() as stack:
            self._holder = stack
            try:
                yield
            finally:
                self._holder = None
                self._held.clear()

    def read(self, wish: Wish) -> LogPart:
        if not self._runs:
            return LogPart((), 0, 0.0, 1.0, True, True)
        with self._holding():
            spot = self._locate_spot(wish)
            before, begin, is_first = self._read_before(spot, wish.before)
            after, end, is_last = self._read_after(spot, wish.after)
        return LogPart([*before, *after], len(before), begin, end, is_first, is_last)

    def read_all(self) -> Iterator[PlacedLine]:
        """Without the numbers of the lines."""
        for attempt in self._runs:
            with self.opened(attempt) as logs:
                for number, line in _merge_forward(logs, [0] * len(logs)):
                    yield PlacedLine(self._runs[attempt][number], line, 0)

    def locate_tail(self, most: int) -> tuple[int, list[tuple[RunLog, str, int]]]:
        """The place so many lines before the end: its attempt, and of each run of that attempt the last line before it
        (its time to compare, and how many lines of that time were passed). A run that begins later is left out."""
        if not self._runs:
            return 0, []
        with self._holding():
            return self._locate_tail(most)

    def _locate_tail(self, most: int) -> tuple[int, list[tuple[RunLog, str, int]]]:
        spot = self._locate_spot(Wish(0, 0, is_end=True))
        lines, _, is_first = self._read_before(spot, most)
        if is_first or not lines:
            return self.attempts[0], []
        first = self._locate_address(lines[0].address)
        found: list[tuple[RunLog, str, int]] = []
        with self.opened(first.attempt) as logs:
            for run, log, offset in zip(self._runs[first.attempt], logs, first.offsets, strict=True):
                line = next(read_backward(log, offset), None)
                if line is not None:
                    found.append((run, line.key, count_same(log, line) + 1))
        return first.attempt, found

    # Places

    def _locate_spot(self, wish: Wish) -> _Spot:
        if wish.share is not None:
            return self._locate_share(wish.share)
        if wish.address is not None:
            return self._locate_address(wish.address)
        if wish.time:
            return self._locate_time(sort_key(wish.time))
        attempt = self.attempts[-1 if wish.is_end else 0]
        with self.opened(attempt) as logs:
            return _Spot(attempt, [log.size if wish.is_end else 0 for log in logs])

    def _locate_address(self, address: LineAddress) -> _Spot:
        later = [attempt for attempt in self.attempts if attempt >= address.attempt]
        if not later or later[0] != address.attempt:
            # That attempt has printed nothing: the place is between the others.
            attempt = later[0] if later else self.attempts[-1]
            with self.opened(attempt) as logs:
                return _Spot(attempt, [0 if later else log.size for log in logs])
        seat, time = (address.job, address.rank), sort_key(address.time)
        with self.opened(address.attempt) as logs:
            offsets = []
            for run, log in zip(self._runs[address.attempt], logs, strict=True):
                own = (run.place.job, run.place.index)
                offset = locate_time(log, time, after=own < seat)
                offsets.append(skip_lines(log, offset, time, address.number) if own == seat else offset)
            return _Spot(address.attempt, offsets)

    def _locate_time(self, time: str) -> _Spot:
        for attempt in reversed(self.attempts):
            with self.opened(attempt) as logs:
                is_begun = any(log.size and sort_key(read_time(log.read(0, HEAD_BYTES))) <= time for log in logs)
                if is_begun or attempt == self.attempts[0]:
                    return _Spot(attempt, [locate_time(log, time) for log in logs])
        raise AssertionError("the first attempt was looked at")

    def _locate_share(self, share: float) -> _Spot:
        """With several logs, the middle of the times that they have at this share of their own; it is an estimate."""
        left, attempt = share * self.size, self.attempts[0]
        for attempt in self.attempts:
            size = sum(run.size for run in self._runs[attempt])
            if left <= size:
                break
            left -= size
        with self.opened(attempt) as logs:
            total = sum(log.size for log in logs)
            part = min(1.0, left / total) if total else 0.0
            places = [locate_entry(log, int(log.size * part)) for log in logs]
            if len(logs) == 1 or part in (0.0, 1.0):
                return _Spot(attempt, places)
            times = sorted(
                (sort_key(read_time(log.read(place, HEAD_BYTES))), log.size)
                for log, place in zip(logs, places, strict=True)
                if place < log.size
            )
            if not times:
                return _Spot(attempt, places)
            time = _choose_middle(times)
            return _Spot(attempt, [locate_time(log, time) for log in logs])

    # Reading

    def _read_before(self, spot: _Spot, most: int) -> tuple[list[PlacedLine], float, bool]:
        """(the last lines before it, the share of what stands before these, whether that is nothing)"""
        lines: list[PlacedLine] = []
        size, offsets = 0, list(spot.offsets)
        for attempt in [one for one in reversed(self.attempts) if one <= spot.attempt]:
            with self.opened(attempt) as logs:
                if attempt != spot.attempt:
                    offsets = [log.size for log in logs]
                found: list[tuple[int, StoredLine]] = []
                is_whole = True
                for number, line in _merge_backward(logs, offsets):
                    if len(lines) + len(found) >= most or (size and size + len(line.text) > _MOST_BYTES):
                        is_whole = False
                        break
                    found.append((number, line))
                    size += len(line.text)
                    offsets[number] = line.begin
                lines = [*self._number(attempt, logs, found[::-1]), *lines]
                if not is_whole:
                    return lines, self._measure(attempt, offsets), False
        return lines, 0.0, True

    def _read_after(self, spot: _Spot, most: int) -> tuple[list[PlacedLine], float, bool]:
        lines: list[PlacedLine] = []
        size, offsets = 0, list(spot.offsets)
        for attempt in [one for one in self.attempts if one >= spot.attempt]:
            with self.opened(attempt) as logs:
                if attempt != spot.attempt:
                    offsets = [0] * len(logs)
                found: list[tuple[int, StoredLine]] = []
                is_whole = True
                for number, line in _merge_forward(logs, offsets):
                    if len(lines) + len(found) >= most or (size and size + len(line.text) > _MOST_BYTES):
                        is_whole = False
                        break
                    found.append((number, line))
                    size += len(line.text)
                    offsets[number] = line.end
                lines += self._number(attempt, logs, found)
                if not is_whole:
                    return lines, self._measure(attempt, offsets), False
        return lines, 1.0, True

    def _number(
        self, attempt: int, logs: Sequence[LogBytes], found: Sequence[tuple[int, StoredLine]]
    ) -> Iterator[PlacedLine]:
        last: dict[int, tuple[str, int]] = {}
        for number, line in found:
            key = line.key
            known = last.get(number)
            if known is None:
                same = count_same(logs[number], line)
            else:
                same = known[1] + 1 if known[0] == key else 0
            last[number] = key, same
            yield PlacedLine(self._runs[attempt][number], line, same)

    def _measure(self, attempt: int, offsets: Sequence[int]) -> float:
        earlier = sum(run.size for one in self.attempts if one < attempt for run in self._runs[one])
        return min(1.0, (earlier + sum(offsets)) / self.size) if self.size else 0.0


def _choose_middle(times: Sequence[tuple[str, int]]) -> str:
    """Of (time, weight) in order, the time with half of the weight on each side."""
    half = sum(weight for _, weight in times) / 2
    for time, weight in times:
        half -= weight
        if half <= 0:
            return time
    return times[-1][0]


def _merge_forward(logs: Sequence[LogBytes], offsets: Sequence[int]) -> Iterator[tuple[int, StoredLine]]:
    readers = [read_forward(log, offset) for log, offset in zip(logs, offsets, strict=True)]
    if len(readers) == 1:
        return ((0, line) for line in readers[0])
    return heapq.merge(*map(_with_number, range(len(readers)), readers), key=_get_key)


def _merge_backward(logs: Sequence[LogBytes], offsets: Sequence[int]) -> Iterator[tuple[int, StoredLine]]:
    readers = [read_backward(log, offset) for log, offset in zip(logs, offsets, strict=True)]
    if len(readers) == 1:
        return ((0, line) for line in readers[0])
    return heapq.merge(*map(_with_number, range(len(readers)), readers), key=_get_key, reverse=True)


def _with_number(number: int, lines: Iterator[StoredLine]) -> Iterator[tuple[int, StoredLine]]:
    return ((number, line) for line in lines)


def _get_key(entry: tuple[int, StoredLine]) -> tuple[str, int]:
    return entry[1].key, entry[0]
