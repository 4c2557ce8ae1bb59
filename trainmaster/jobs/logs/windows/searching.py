"""Finds lines in all logs of a job: with RE2, in blocks of many lines, so that a million lines take a second or two.

What is searched is what a program printed without colours. Of a line that a progress bar has written several times, all
forms are searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainmaster.api.formats.patterns import LinePattern
from trainmaster.jobs.logs.lines import sort_key
from trainmaster.jobs.logs.windows.merged import LineAddress, MergedLog, RunLog
from trainmaster.jobs.logs.windows.stored import LogBytes, cut_heads, is_plain, locate_entry, read_block, read_time

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
    last_key: str = ""
    last_number: int = -1
    """The number of the line before the block among those of its time."""
    first_key: str = ""
    first: int = 0
    """The first line of the block with the time of the last hit."""

    def run(self, is_late: Callable[[], bool]) -> Iterator[tuple[str, Hit]]:
        begin, left = 0, self.most
        while begin < self.log.size and left > 0:
            if is_late():
                self.is_late = True
                return
            end = locate_entry(self.log, begin + _BLOCK)
            times, texts = self._read(begin, end)
            for index, excerpt in self._list_found(texts):
                yield self._build(times, index, excerpt)
                left -= 1
                if not left:
                    return
            self._note_end(times)
            begin = end

    def _read(self, begin: int, end: int) -> tuple[Sequence[bytes | str], Sequence[bytes]]:
        """Entries or times of the lines, which `_get_time` reads when they are needed; and the texts."""
        raw = self.log.read(begin, end - begin)
        if is_plain(self.log, begin, raw):
            entries = raw.split(b"\n")[:-1]
            return entries, cut_heads(entries)
        lines = read_block(self.log, begin, end)
        return [line.time for line in lines], [line.text for line in lines]

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
        if key != self.first_key:
            first = index
            while first > 0 and sort_key(_get_time(times[first - 1])) == key:
                first -= 1
            self.first_key, self.first = key, first
        earlier = self.last_number + 1 if self.first == 0 and key == self.last_key else 0
        return earlier + index - self.first

    def _note_end(self, times: Sequence[bytes | str]) -> None:
        if times:
            number = self._count_same(times, len(times) - 1)
            self.last_key, self.last_number, self.first_key = self.first_key, number, ""


def _get_time(entry: bytes | str) -> str:
    return entry if isinstance(entry, str) else read_time(entry)
