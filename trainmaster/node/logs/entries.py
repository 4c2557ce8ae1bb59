"""Reads CRI entries: removes headers, joins partial lines, filters by time and stream. Pure.

The shim writes headers of fixed length in UTC, so timestamps are compared as text and headers are sliced, not parsed.
`Renderer` takes whole entries in any portions and returns what the client sees; it keeps parts of long lines until they
are complete, per stream, and returns anything longer than `MAX_HELD` in pieces. Where rotation has dropped output, it
returns a line that says how much.

A line that is stored in parts has the time of its last part, because it stands where that part stands: so times never
go back within a log, and whoever asks again for what comes after a line gets neither half a line nor one twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainmaster.shim.log_sink import HEAD_BYTES, MAX_LINE, OPENED, SEAMS, STREAM_FIELD, SeamReader

MAX_HELD = 1 << 20
_MAX_PARTS = MAX_HELD // MAX_LINE
_STAMP = 30
_TAG = HEAD_BYTES - 2
_PART = ord("P")
_BLOCK = 1 << 16


def format_stamp(moment: datetime) -> bytes:
    """In the shim's format, which sorts by time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


@dataclass(slots=True)
class _LongLine:
    """The parts of a line whose end has not come yet."""

    texts: list[bytes] = field(default_factory=list)
    stamp: bytes = b""
    """Of its last part."""
    is_begun: bool = False
    """Whether its beginning was returned, or left out."""
    is_left_out: bool = False


class Renderer:
    def __init__(self, *, timestamps: bool = False, since: bytes = b"", stream: bytes = b"") -> None:
        self._timestamps = timestamps
        self._since = since
        self._stream = stream
        self._held: dict[bytes, _LongLine] = {}
        """By stream."""
        self._seams = SeamReader()

    def render(self, entries: bytes) -> bytes:
        """`entries` must end with a newline."""
        if entries[:_STAMP] >= self._since:
            self._since = b""  # everything from here on
        if self._held or self._since or self._stream or b" P " in entries:
            return b"".join([self._render_one(entry) for entry in entries.split(b"\n")[:-1]])
        lines = entries.split(b"\n")
        if self._timestamps:
            return b"\n".join([line[: _STAMP + 1] + line[HEAD_BYTES:] for line in lines])
        return b"\n".join([line[HEAD_BYTES:] for line in lines])

    def finish(self) -> bytes:
        """The rest of incomplete lines."""
        kept = b"".join([self._take(line) for line in self._held.values()])
        self._held.clear()
        return kept

    def _render_one(self, entry: bytes) -> bytes:
        stream = entry[STREAM_FIELD]
        if stream in SEAMS:
            return self._render_seam(entry)
        if self._stream and stream != self._stream:
            return b""
        line = self._held.pop(stream, None) or _LongLine()
        line.texts.append(entry[HEAD_BYTES:])
        line.stamp = entry[:_STAMP]
        if entry[_TAG] != _PART:
            shown = self._take(line)
            return b"" if line.is_left_out else shown + b"\n"
        self._held[stream] = line
        return self._take(line) if len(line.texts) >= _MAX_PARTS else b""

    def _take(self, line: _LongLine) -> bytes:
        """What there is of the line, with its time if this is its beginning."""
        head = b""
        if not line.is_begun:
            line.is_begun, line.is_left_out = True, line.stamp < self._since
            head = line.stamp + b" " if self._timestamps else b""
        text = b"".join(line.texts)
        line.texts.clear()
        return b"" if line.is_left_out else head + text

    def _render_seam(self, entry: bytes) -> bytes:
        gap = self._seams.describe_gap(entry)
        if not gap or entry[:_STAMP] < self._since:
            return b""
        begun = b"".join([self._take(line) + b"\n" for line in self._held.values() if not line.is_left_out])
        self._held.clear()
        return begun + (entry[: _STAMP + 1] if self._timestamps else b"") + gap + b"\n"


def get_tail(files: Sequence[int], lines: int) -> tuple[int, int]:
    """(file, offset) of the start of the last `lines` lines. `files` are descriptors, oldest first."""
    wanted, newest = lines, True
    for index in reversed(range(len(files))):
        end = os.fstat(files[index]).st_size
        while end > 0:
            start, entries = _read_back(files[index], end)
            position = end
            for entry in reversed(entries):
                is_seam = entry[STREAM_FIELD] in SEAMS
                if wanted == 0 and index == 0 and entry[STREAM_FIELD] == OPENED:
                    return index, position
                # A partial entry at the end is an incomplete line, which counts as one.
                if not is_seam and (newest or entry[_TAG : _TAG + 1] != b"P"):
                    if wanted == 0:
                        return index, position
                    wanted -= 1
                newest = newest and is_seam
                position -= len(entry) + 1
            end = start
    return 0, 0


def _read_back(fd: int, end: int) -> tuple[int, list[bytes]]:
    """Whole entries before `end`, and the offset of the first of them."""
    start = max(0, end - _BLOCK)
    block = os.pread(fd, end - start, start)
    if start > 0:
        cut = block.find(b"\n") + 1
        block, start = block[cut:], start + cut
    return start, block.split(b"\n")[:-1]
