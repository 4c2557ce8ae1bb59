"""Finds lines in all logs of a job: with RE2, in blocks of many lines, so that a million lines take a second or two.

What is searched is what a program printed without colours. Of a line that a progress bar has written several times, all
forms are searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from trainmaster.api.formats.patterns import LinePattern
from trainmaster.jobs.logs.lines import sort_key
from trainmaster.jobs.logs.windows.merged import LineAddress, MergedLog, RunLog
from trainmaster.jobs.logs.windows.stored import (
    LogBytes,
    cut_heads,
    is_plain,
    locate_entry,
    read_backward,
    read_block,
    read_time,
)

MOST_HITS = 10_000
_BLOCK = 1 << 20
_BEFORE, _EXCERPT = 80, 400
_COLOURS = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class Hit:
    address: LineAddress
    container: str
    excerpt: bytes
    """The line, or the part of it that was found."""


@dataclass(slots=True)
class Hits:
    """In the order of the lines."""

    found: list[Hit] = field(default_factory=list)
    stopped: Literal["", "hits", "time"] = ""
    """Why not everything was searched."""


def search(log: MergedLog, pattern: LinePattern, is_late: Callable[[], bool], most: int = MOST_HITS) -> Hits:
    """`pattern`: from `compile_for_lines`. Ends soon after `is_late`."""
    hits = Hits()
    for attempt in log.attempts:
        found: list[tuple[str, int, Hit]] = []
        with log.opened(attempt) as logs:
            for order, (run, one) in enumerate(zip(log.list_runs(attempt), logs, strict=True)):
                search_one = _RunSearch(run, one, pattern, most + 1 - len(hits.found))
                for key, hit in search_one.run(is_late):
                    found.append((key, order, hit))
                if search_one.is_late:
                    hits.stopped = "time"
                    break
        hits.found += [hit for _, _, hit in sorted(found, key=_get_key)]
        if len(hits.found) > most:
            del hits.found[most:]
            hits.stopped = "hits"
        if hits.stopped:
            break
    return hits


def _get_key(entry: tuple[str, int, Hit]) -> tuple[str, int]:
    return entry[:2]


@dataclass(slots=True)
class _RunSearch:
    run_log: RunLog
    log: LogBytes
    pattern: LinePattern
    most: int
    is_late: bool = False
    begin: int = 0
    """Of the block that is searched."""
    key: str = ""
    first: int = 0
    """The first line of the block with the time of the last hit, whose number among those of its time is `number`."""
    number: int = 0

    def run(self, is_late: Callable[[], bool]) -> Iterator[tuple[str, Hit]]:
        left = self.most
        while self.begin < self.log.size and left > 0:
            if is_late():
                self.is_late = True
                return
            end = locate_entry(self.log, self.begin + _BLOCK)
            times, texts = self._read(end)
            self.key = ""
            for index, excerpt in self._list_found(texts):
                yield self._build(times, index, excerpt)
                left -= 1
                if not left:
                    return
            self.begin = end

    def _read(self, end: int) -> tuple[Sequence[bytes | str], Sequence[bytes]]:
        """Entries or times of the lines of the block, which `_get_time` reads when they are needed; and the texts.
        Neither if nothing can be found."""
        raw = self.log.read(self.begin, end - self.begin)
        if is_plain(self.log, self.begin, raw):
            if not self._may_have(raw):
                return (), ()
            entries = raw.split(b"\n")[:-1]
            return entries, cut_heads(entries)
        lines = read_block(self.log, self.begin, end)
        return [line.time for line in lines], [line.text for line in lines]

    def _may_have(self, raw: bytes) -> bool:
        """Searches whole entries, which is several times as quick as cutting them into lines."""
        if self.pattern.asks_for_begin or b"\x1b" in raw:
            return True
        return self.pattern.search(raw, 0) is not None

    def _list_found(self, texts: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """(index of a line, its excerpt), each line once."""
        text = b"\n".join(texts)
        if b"\x1b[" in text:
            text = _COLOURS.sub(b"", text)
        place = index = 0
        while place <= len(text) and (match := self.pattern.search(text, place)) is not None:
            found = match.start()
            index += text.count(b"\n", place, found)
            begin, end = text.rfind(b"\n", 0, found) + 1, text.find(b"\n", found)
            end = len(text) if end < 0 else end
            if index >= len(texts):
                return
            cut = max(begin, found - _BEFORE) if end - begin > _EXCERPT else begin
            yield index, text[cut : min(end, cut + _EXCERPT)]
            place, index = end + 1, index + 1

    def _build(self, times: Sequence[bytes | str], index: int, excerpt: bytes) -> tuple[str, Hit]:
        time = _get_time(times[index])
        place = self.run_log.place
        address = LineAddress(place.round, place.job, place.index, time, self._count_same(times, index))
        return sort_key(time), Hit(address, self.run_log.container, excerpt)

    def _count_same(self, times: Sequence[bytes | str], index: int) -> int:
        key = sort_key(_get_time(times[index]))
        if key != self.key:
            first = index
            while first > 0 and sort_key(_get_time(times[first - 1])) == key:
                first -= 1
            self.key, self.first = key, first
            self.number = self._count_before(key) if first == 0 else 0
        return self.number + index - self.first

    def _count_before(self, key: str) -> int:
        """The lines of this time that stand before the block."""
        return sum(1 for _ in takewhile(lambda line: line.key == key, read_backward(self.log, self.begin)))


def _get_time(entry: bytes | str) -> str:
    return entry if isinstance(entry, str) else read_time(entry)
