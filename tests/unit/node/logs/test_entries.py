"""CRI entries as clients see them: joined, filtered by time and stream; where the last lines begin."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainmaster.node.logs.entries import MAX_HELD, Renderer, format_stamp, get_tail
from trainmaster.shim.log_sink import MAX_LINE

pytestmark = pytest.mark.unit


def make_entry(second: int, text: str, tag: str = "F", stream: str = "stdout") -> bytes:
    return f"2026-11-15T12:00:{second:02}.000000000Z {stream} {tag} {text}\n".encode()


LOG = b"".join(
    (
        make_entry(0, "one"),
        make_entry(1, "err", stream="stderr"),
        make_entry(2, "two ", "P"),
        make_entry(3, "between", stream="stderr"),
        make_entry(4, "parts"),
        make_entry(5, ""),
    )
)


def test_heads_are_cut_and_parts_joined_even_with_the_other_stream_between_them() -> None:
    assert Renderer().render(LOG) == b"one\nerr\nbetween\ntwo parts\n\n"


def test_a_time_stamp_stands_once_before_each_line() -> None:
    lines = Renderer(timestamps=True).render(LOG).split(b"\n")
    assert lines[0] == b"2026-11-15T12:00:00.000000000Z one"
    assert lines[3] == b"2026-11-15T12:00:04.000000000Z two parts", "that of its end, so times never go back"
    assert Renderer(timestamps=True).render(make_entry(7, "x")) == b"2026-11-15T12:00:07.000000000Z x\n"


def test_lines_before_the_time_asked_for_are_left_out() -> None:
    since = format_stamp(datetime(2026, 11, 15, 12, 0, 3, tzinfo=UTC))
    assert Renderer(since=since).render(LOG) == b"between\ntwo parts\n\n"


@pytest.mark.parametrize(
    ("second", "want"),
    [
        pytest.param(2, b"long line\nlast\n", id="while it was printed"),
        pytest.param(3, b"long line\nlast\n", id="when it ended"),
        pytest.param(4, b"", id="later"),
    ],
)
def test_of_a_line_in_parts_everything_comes_or_nothing(second: int, want: bytes) -> None:
    """A follower that comes again would get what is left of it, and count it as the line that it knows."""
    log = make_entry(1, "long ", "P") + make_entry(3, "line") + make_entry(3, "last")
    since = format_stamp(datetime(2026, 11, 15, 12, 0, second, tzinfo=UTC))
    assert Renderer(since=since).render(log) == want


def test_a_line_that_is_far_too_long_is_left_out_whole() -> None:
    since = format_stamp(datetime(2026, 11, 15, 12, 0, 3, tzinfo=UTC))
    renderer = Renderer(since=since, timestamps=True)
    for _ in range(MAX_HELD // MAX_LINE):
        assert renderer.render(make_entry(2, "x" * MAX_LINE, "P")) == b""
    assert renderer.render(make_entry(4, "its end")) == b""
    assert renderer.render(make_entry(4, "next")) == b"2026-11-15T12:00:04.000000000Z next\n"


def test_one_stream_alone() -> None:
    assert Renderer(stream=b"stderr").render(LOG) == b"err\nbetween\n"
    assert Renderer(stream=b"stdout").render(LOG) == b"one\ntwo parts\n\n"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_it_does_not_matter_in_what_portions_entries_come(size: int) -> None:
    renderer = Renderer()
    entries = LOG.splitlines(keepends=True)
    portions = [b"".join(entries[start : start + size]) for start in range(0, len(entries), size)]
    assert b"".join(renderer.render(portion) for portion in portions) == Renderer().render(LOG)


def test_a_line_without_an_end_is_shown_when_the_log_ends() -> None:
    renderer = Renderer()
    assert renderer.render(make_entry(0, "half", "P")) == b""
    assert renderer.finish() == b"half"


def test_a_line_that_is_far_too_long_is_not_held_back() -> None:
    renderer = Renderer(timestamps=True)
    count = 2 * MAX_HELD // MAX_LINE
    shown = b"".join(renderer.render(make_entry(0, "x" * MAX_LINE, "P")) for _ in range(count))
    assert len(shown) >= MAX_HELD
    shown += renderer.render(make_entry(0, "end"))
    assert shown == b"2026-11-15T12:00:00.000000000Z " + b"x" * MAX_LINE * count + b"end\n"


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(0, b"", id="none"),
        pytest.param(1, b"\n", id="the last line"),
        pytest.param(2, b"parts\n\n", id="a line whose first part is before another stream's line"),
        pytest.param(100, b"one\nerr\nbetween\ntwo parts\n\n", id="more than there are"),
    ],
)
def test_the_tail_is_found(tmp_path: Path, lines: int, want: bytes) -> None:
    assert read_tail(tmp_path, [LOG], lines) == want


def test_the_tail_goes_back_over_pieces_and_blocks(tmp_path: Path) -> None:
    pieces = [
        b"".join(make_entry(0, f"{number} {'x' * 5000}") for number in range(start, start + 20)) for start in (0, 20)
    ]
    shown = read_tail(tmp_path, pieces, 25)
    assert [int(line.split()[0]) for line in shown.splitlines()] == list(range(15, 40))


def test_a_line_in_parts_is_one_line_of_the_tail(tmp_path: Path) -> None:
    long = make_entry(1, "a" * MAX_LINE, "P") * 6 + make_entry(1, "b")
    assert read_tail(tmp_path, [make_entry(0, "first") + long], 1) == b"a" * (6 * MAX_LINE) + b"b\n"
    unfinished = make_entry(0, "first") + make_entry(1, "half", "P")
    assert read_tail(tmp_path, [unfinished], 1) == b"half"
    assert read_tail(tmp_path, [unfinished], 2) == b"first\nhalf"


def make_seam(second: int, word: str, count: int) -> bytes:
    return make_entry(second, str(count), "P", word)


ROTATED = [
    make_seam(10, "opened", 500) + make_entry(11, "one") + make_seam(12, "closed", 504),
    make_seam(12, "opened", 504) + make_entry(13, "two") + make_entry(14, "three"),
]
DROPPED = b"trainmaster: the first 500 bytes of output were dropped by rotation\n"


def test_what_rotation_dropped_is_said_once_at_the_beginning() -> None:
    assert Renderer().render(b"".join(ROTATED)) == DROPPED + b"one\ntwo\nthree\n"
    stamped = Renderer(timestamps=True).render(b"".join(ROTATED)).split(b"\n")
    assert stamped[0] == b"2026-11-15T12:00:10.000000000Z " + DROPPED[:-1]


@pytest.mark.parametrize(
    ("second", "want"),
    [
        pytest.param(9, DROPPED + b"one\ntwo\nthree\n", id="some of it may be newer"),
        pytest.param(11, b"one\ntwo\nthree\n", id="all of it is older"),
    ],
)
def test_what_rotation_dropped_is_said_only_if_it_was_asked_for(second: int, want: bytes) -> None:
    since = format_stamp(datetime(2026, 11, 15, 12, 0, second, tzinfo=UTC))
    assert Renderer(since=since).render(b"".join(ROTATED)) == want


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(1, b"three\n", id="within a file"),
        pytest.param(2, b"two\nthree\n", id="a whole file"),
        pytest.param(3, b"one\ntwo\nthree\n", id="all lines"),
        pytest.param(4, DROPPED + b"one\ntwo\nthree\n", id="more than there are"),
    ],
)
def test_the_tail_of_a_rotated_log(tmp_path: Path, lines: int, want: bytes) -> None:
    assert read_tail(tmp_path, ROTATED, lines) == want


def test_a_reader_that_missed_files_is_told_how_much_also_in_the_middle_of_a_line() -> None:
    seen = make_entry(0, "one") + make_entry(1, "beg", "P") + make_seam(2, "closed", 7)
    later = make_seam(5, "opened", 107) + make_entry(6, "later")
    gap = b"trainmaster: 100 bytes of output were dropped by rotation\n"
    assert Renderer().render(seen + later) == b"one\nbeg\n" + gap + b"later\n"


def read_tail(tmp_path: Path, pieces: list[bytes], lines: int) -> bytes:
    files = []
    for number, piece in enumerate(pieces):
        (tmp_path / str(number)).write_bytes(piece)
        files.append(os.open(tmp_path / str(number), os.O_RDONLY))
    index, offset = get_tail(files, lines)
    for fd in files:
        os.close(fd)
    renderer = Renderer()
    return renderer.render(pieces[index][offset:] + b"".join(pieces[index + 1 :])) + renderer.finish()
