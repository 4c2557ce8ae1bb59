"""Writes a container's output as CRI lines: `<RFC 3339, nanoseconds, UTC> <stdout|stderr> <F|P> <text>`.

Optimized for programs that print a lot: one timestamp, one `replace` and one `write` per piece read from the pipe. All
headers have the same length, so readers can slice instead of parsing. A line longer than `MAX_LINE` is stored as
several entries, all but the last marked P; an incomplete line waits until it is complete, too long, or the container
exits. When the disk is full, output is dropped and counted, and the log says so once there is room again; the program
is not blocked.

A rotated file ends, and the file after it begins, with a seam: an entry `<time> <closed|opened> P <count>`, where count
is the number of bytes of output before it. Readers compare the seams to find out what rotation has dropped.
"""

from __future__ import annotations

import contextlib
import os
import time

from trainmaster.shim.loop import get_wall_ns

MAX_LINE = 16384
STDOUT = b"stdout"
STDERR = b"stderr"
OPENED = b"opened"
CLOSED = b"closed"
SEAMS = (OPENED, CLOSED)
STREAM_FIELD = slice(31, 37)
HEAD_BYTES = 40
"""Length of everything before the text: 30 for the timestamp, then the stream and the tag, each followed by a space."""


class LogSink:
    def __init__(self, path: str, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._pending = {STDOUT: b"", STDERR: b""}
        self._second = -1
        self._prefix = b""
        self._received = 0
        """Bytes of output, since the container was started."""
        self._handled = 0
        """Of these, those that were written or dropped."""
        self._dropped = 0
        """Of these, those that were dropped since the last entry was written."""
        self._opening = b""
        """The seam at the beginning of a new file, until it is written."""
        self._fd = -1
        self._size = 0
        self._open()

    def feed(self, stream: bytes, data: bytes) -> None:
        self._received += len(data)
        stamp = self._make_stamp() + b" " + stream
        self._write(build_entries(self._pending, stream, data, stamp))

    def close(self) -> None:
        """Stores lines that are still incomplete."""
        for stream, text in self._pending.items():
            if text:
                self._pending[stream] = b""
                self._write(self._make_stamp() + b" " + stream + b" F " + text + b"\n")
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def free_space(self) -> None:
        """Deletes older log files, so that the container's exit can be recorded on a full disk."""
        for number in range(self._keep, 0, -1):
            _unlink(f"{self._path}.{number}")

    def _make_stamp(self) -> bytes:
        second, rest = divmod(get_wall_ns(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second)).encode()
        return self._prefix + b"%09dZ" % rest

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _write(self, content: bytes) -> None:
        if not content:
            return
        before, self._handled = self._handled, self._received - sum(map(len, self._pending.values()))
        if self._dropped:
            text = b"trainmaster: %d bytes of output were lost because the disk was full\n" % self._dropped
            content = self._make_stamp() + b" stderr F " + text + content
        try:
            self._append(self._opening + content)
            self._dropped, self._opening = 0, b""
        except OSError:
            self._dropped += self._handled - before
            return
        if self._size >= self._max_bytes:
            self._rotate()

    def _append(self, content: bytes) -> None:
        """Writes everything or, as far as possible, nothing: a partial line would corrupt the next one."""
        if self._fd < 0:
            self._open()
        view = memoryview(content)
        done = 0
        try:
            while done < len(view):
                done += os.write(self._fd, view[done:])
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += done

    def _rotate(self) -> None:
        """Entries are written whole, so every file begins with a header. A failure is retried at the next write; until
        then the file exceeds its limit, which is harmless."""
        closed, opened = (b"%s %s P %d\n" % (self._make_stamp(), word, self._handled) for word in (CLOSED, OPENED))
        with contextlib.suppress(OSError):
            if self._keep < 1:
                os.ftruncate(self._fd, 0)
                self._size, self._opening = 0, opened
                return
            self._append(closed)
            self._rename_files()
            self._opening = opened
            os.close(self._fd)
            self._fd = -1
            self._open()

    def _rename_files(self) -> None:
        # A rename that replaces a file makes ext4 write the renamed file to the disk, so none does.
        _unlink(f"{self._path}.{self._keep}")
        for number in range(self._keep - 1, 0, -1):
            if os.path.exists(f"{self._path}.{number}"):
                os.rename(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        os.rename(self._path, f"{self._path}.1")


class SeamReader:
    """Finds what rotation has dropped of a log that is read from its beginning."""

    def __init__(self) -> None:
        self._count = 0

    def describe_gap(self, entry: bytes) -> bytes:
        """A sentence about the output that is missing before this seam; b"" if nothing is."""
        before, self._count = self._count, int(entry[HEAD_BYTES:])
        missing = self._count - before
        if entry[STREAM_FIELD] == CLOSED or missing <= 0:
            return b""
        return describe_missing(missing, is_first=before == 0)


def describe_missing(count: int, *, is_first: bool) -> bytes:
    return b"trainmaster: %s%d bytes of output were dropped by rotation" % (b"the first " if is_first else b"", count)


def build_entries(pending: dict[bytes, bytes], stream: bytes, data: bytes, stamp: bytes) -> bytes:
    """The entries that `data` completes; an incomplete line stays in `pending`."""
    text = pending[stream] + data if pending[stream] else data
    end = text.rfind(b"\n")
    full = stamp + b" F "
    if end >= 0 and not _has_long_line(text, end):
        entries = full + text[:end].replace(b"\n", b"\n" + full) + b"\n"
        rest = text[end + 1 :]
    elif end >= 0:
        entries = b"".join(split_line(line, stamp, full) for line in text[:end].split(b"\n"))
        rest = text[end + 1 :]
    else:
        entries, rest = b"", text
    if len(rest) > MAX_LINE:
        part = stamp + b" P "
        cut = len(rest) - len(rest) % MAX_LINE
        starts = range(0, cut, MAX_LINE)
        entries += b"".join(part + rest[start : start + MAX_LINE] + b"\n" for start in starts)
        rest = rest[cut:]
    pending[stream] = rest
    return entries


def _has_long_line(text: bytes, end: int) -> bool:
    """Searches for line ends in steps of nearly MAX_LINE: a few searches for the usual 64 KiB."""
    start = 0
    while start + MAX_LINE < end:
        found = text.rfind(b"\n", start, start + MAX_LINE + 1)
        if found < 0:
            return True
        start = found + 1
    return False


def split_line(line: bytes, stamp: bytes, full: bytes) -> bytes:
    """The entries of one line. `full` is the header of the last one; the others are marked P."""
    pieces = []
    while len(line) > MAX_LINE:
        pieces.append(stamp + b" P " + line[:MAX_LINE] + b"\n")
        line = line[MAX_LINE:]
    pieces.append(full + line + b"\n")
    return b"".join(pieces)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
