"""CRI entries: whole lines, parts of long ones, binary output, both streams, rotation, a full disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.shim.exits import read_log_end
from trainmaster.shim.log_sink import (
    CLOSED,
    HEAD_BYTES,
    MAX_LINE,
    OPENED,
    SEAMS,
    STDERR,
    STDOUT,
    STREAM_FIELD,
    LogSink,
    SeamReader,
    build_entries,
)

pytestmark = pytest.mark.unit

STAMP = b"2026-11-15T12:00:00.000000001Z stdout"


def join(entries: bytes) -> bytes:
    """What a reader makes of entries: P has no line end of its own."""
    text = b""
    for entry in entries.split(b"\n")[:-1]:
        text += entry[HEAD_BYTES:] + (b"\n" if entry[HEAD_BYTES - 2 : HEAD_BYTES - 1] == b"F" else b"")
    return text


def test_the_head_has_its_fixed_length() -> None:
    assert len(STAMP) + len(b" F ") == HEAD_BYTES


def test_whole_lines_become_full_entries_and_the_rest_waits() -> None:
    pending = {STDOUT: b""}
    assert build_entries(pending, STDOUT, b"one\n\ntwo\nthr", STAMP) == b"".join(
        STAMP + b" F " + text + b"\n" for text in (b"one", b"", b"two")
    )
    assert pending[STDOUT] == b"thr"
    assert build_entries(pending, STDOUT, b"ee\n", STAMP) == STAMP + b" F three\n"


def test_a_line_without_an_end_is_stored_in_parts_once_it_is_too_long() -> None:
    pending = {STDOUT: b""}
    entries = build_entries(pending, STDOUT, b"x" * (2 * MAX_LINE + 5), STAMP)
    assert [entry[38:39] for entry in entries.split(b"\n")[:-1]] == [b"P", b"P"]
    entries += build_entries(pending, STDOUT, b"\n", STAMP)
    assert join(entries) == b"x" * (2 * MAX_LINE + 5) + b"\n"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=50),
            st.integers(0, 3 * MAX_LINE).map(lambda size: b"y" * size),
            st.sampled_from([b"\n", b"\r", b"\0", b"a\nb\n", b"x" * MAX_LINE, b"x" * MAX_LINE + b"\n"]),
        ),
        max_size=12,
    )
)
def test_whatever_is_written_in_whatever_pieces_can_be_read_back(pieces: list[bytes]) -> None:
    pending = {STDOUT: b""}
    entries = b"".join(build_entries(pending, STDOUT, piece, STAMP) for piece in pieces if piece)
    written = b"".join(pieces)
    assert join(entries) + pending[STDOUT] == written
    assert all(len(entry) <= HEAD_BYTES + MAX_LINE for entry in entries.split(b"\n"))
    assert len(pending[STDOUT]) <= MAX_LINE


def test_streams_do_not_mix_and_what_has_no_end_is_stored_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    sink = LogSink(str(path), 1 << 20, 2)
    sink.feed(STDOUT, b"out ")
    sink.feed(STDERR, b"err ")
    sink.feed(STDOUT, b"more\n")
    sink.feed(STDERR, b"\xff\0end")
    sink.close()
    lines = path.read_bytes().splitlines()
    assert [line[31:] for line in lines] == [b"stdout F out more", b"stderr F err \xff\0end"]
    assert all(re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", line[:30]) for line in lines)


def test_a_log_is_rotated_at_its_limit_and_only_so_many_pieces_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    sink = LogSink(str(path), 1000, 2)
    for number in range(100):
        sink.feed(STDOUT, b"line %04d\n" % number)
    sink.close()
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == ["0.log", "0.log.1", "0.log.2"]
    content = b"".join((tmp_path / name).read_bytes() for name in reversed(names))
    numbers = [int(line.split()[-1]) for line in content.splitlines() if line[STREAM_FIELD] == STDOUT]
    assert numbers == list(range(numbers[0], 100)), "the newest lines, without a gap"
    assert all((tmp_path / name).stat().st_size < 1200 for name in names)


def test_the_files_of_a_rotated_log_say_how_much_output_is_before_them(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    sink = LogSink(str(path), 1000, 2)
    for number in range(100):
        sink.feed(STDOUT, b"line %04d\nincomplete" % number)
        sink.feed(STDERR, b"\n")
    sink.close()
    oldest, middle, newest = (path.with_name(name).read_bytes() for name in ("0.log.2", "0.log.1", "0.log"))
    seams = [line for line in (oldest + middle + newest).splitlines() if line[STREAM_FIELD] in SEAMS]
    assert [line[STREAM_FIELD] for line in seams] == [OPENED, CLOSED, OPENED, CLOSED, OPENED]
    counts = [int(line[HEAD_BYTES:]) for line in seams]
    assert counts[1] == counts[2] and counts[3] == counts[4], "files follow one another"
    for begin, end, content in ((counts[0], counts[1], oldest), (counts[2], counts[3], middle)):
        lines = [line for line in content.splitlines(keepends=True) if line[STREAM_FIELD] not in SEAMS]
        assert sum(len(line) - HEAD_BYTES for line in lines) == end - begin
    reader = SeamReader()
    first = b"trainmaster: the first %d bytes of output were dropped by rotation" % counts[0]
    assert [reader.describe_gap(line) for line in seams] == [first, b"", b"", b"", b""]


def test_the_end_of_a_failed_program_is_found_across_rotation(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    sink = LogSink(str(path), 150, 1)
    for line in (b"x" * 200, b"File x.py", b"Error: no such file"):
        sink.feed(STDERR, line + b"\n")
        text = read_log_end(str(path))
    sink.close()
    assert b" opened P " in path.with_name("0.log.1").read_bytes() and not path.read_bytes()
    assert text == "File x.py\nError: no such file\n"


def test_on_a_full_disk_output_is_dropped_and_said_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0.log"
    sink = LogSink(str(path), 1 << 20, 2)
    sink.feed(STDOUT, b"before\n")
    room = [10, 0, 0]  # a torn write first, then nothing

    def write(fd: int, content: memoryview) -> int:
        if not room:
            return real(fd, content)
        size = room.pop(0)
        if size == 0:
            raise OSError(28, "No space left on device")
        return real(fd, content[:size])

    real = os.write
    monkeypatch.setattr(os, "write", write)
    sink.feed(STDOUT, b"lost\n")
    sink.feed(STDOUT, b"lost too\nincomp")
    sink.feed(STDOUT, b"lete\nafter\n")
    sink.close()
    texts = [line[HEAD_BYTES:] for line in path.read_bytes().splitlines()]
    assert texts[0] == b"before"
    lost = len("lost\nlost too\n")
    assert texts[1] == b"trainmaster: %d bytes of output were lost because the disk was full" % lost
    assert texts[2:] == [b"incomplete", b"after"]
