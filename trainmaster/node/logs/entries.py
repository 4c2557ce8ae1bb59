"""Reads CRI entries: removes headers, joins partial lines, filters by time and stream. Pure.

The shim writes headers of fixed length in UTC, so timestamps are compared as text and headers are sliced, not parsed.
`Renderer` takes whole entries in any portions and returns what the client sees; it keeps parts of long lines until they
are complete, per stream, and returns anything longer than `MAX_HELD` in pieces.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from trainmaster.shim.log_sink import HEAD_BYTES

MAX_HELD = 1 << 20
_STAMP = 30
_STREAM = slice(31, 37)
_TAG = HEAD_BYTES - 2
_PART = ord("P")
_BLOCK = 1 << 16


def format_stamp(moment: datetime) -> bytes:
    """In the shim's format, which sorts by time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


class Renderer:
    def __init__(self, *, timestamps: bool = False, since: bytes = b"", stream: bytes = b"") -> None:
        self._timestamps = timestamps
        self._since = since
        self._stream = stream
        self._held: dict[bytes, bytes] = {}

    def render(self, entries: bytes) -> bytes:
        """`entries` must end with a newline."""
        if self._held or self._since or self._stream or b" P " in entries:
            return b"".join([self._render_one(entry) for entry in entries.split(b"\n")[:-1]])
        lines = entries.split(b"\n")
        lines.pop()
        if self._timestamps:
            return b"".join([line[: _STAMP + 1] + line[HEAD_BYTES:] + b"\n" for line in lines])
        return b"".join([line[HEAD_BYTES:] + b"\n" for line in lines])

    def finish(self) -> bytes:
        """The rest of incomplete lines."""
        kept = b"".join(self._held.values())
        self._held.clear()
        return kept

    def _render_one(self, entry: bytes) -> bytes:
        stream = entry[_STREAM]
        if self._stream and stream != self._stream:
            return b""
        begun = self._held.pop(stream, None)
        if begun is None:
            if entry[:_STAMP] < self._since:
                return b""
            begun = entry[: _STAMP + 1] if self._timestamps else b""
        text = begun + entry[HEAD_BYTES:]
        if entry[_TAG] != _PART:
            return text + b"\n"
        if len(text) > MAX_HELD:
            self._held[stream] = b""
            return text
        self._held[stream] = text
        return b""


def get_tail(files: Sequence[int], lines: int) -> tuple[int, int]:
    """(file, offset) of the start of the last `lines` lines. `files` are descriptors, oldest first."""
    wanted, newest = lines, True
    for index in reversed(range(len(files))):
        end = os.fstat(files[index]).st_size
        while end > 0:
            start, entries = _read_back(files[index], end)
            position = end
            for entry in reversed(entries):
                # A partial entry at the end is an incomplete line, which counts as one.
                if newest or entry[_TAG : _TAG + 1] != b"P":
                    if wanted == 0:
                        return index, position
                    wanted -= 1
                newest = False
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
