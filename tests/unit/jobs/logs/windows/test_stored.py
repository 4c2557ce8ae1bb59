"""One log, read from any place in both directions: always the same lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.logs.windows.making import Printer, make_time
from trainmaster.history.logs import ArchivedLog, open_pieces, read_lines
from trainmaster.jobs.logs.windows.stored import (
    FileBytes,
    MemoryBytes,
    StoredLine,
    count_same,
    locate_entry,
    locate_time,
    read_backward,
    read_forward,
)
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.shim.log_sink import MAX_LINE, STDERR, STDOUT, LogSink

pytestmark = pytest.mark.unit

PLACE = PodPlace("jobset", 0, "node", 0, 0, "pod")


def show(lines: list[StoredLine]) -> list[tuple[str, bytes]]:
    return [(line.time, line.text) for line in lines]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([STDOUT, STDERR]),
            st.sampled_from([b"short\n", b"no end", b"\n", b"a P b\n", b"x" * (MAX_LINE + 7), b"y" * 40_000 + b"\n"]),
        ),
        max_size=30,
    )
)
def test_both_directions_and_every_beginning_have_the_lines_of_a_reader_from_the_beginning(
    output: list[tuple[bytes, bytes]],
) -> None:
    printer = Printer()
    for second, (stream, data) in enumerate(output):
        printer.print(second, data, stream)
    log = MemoryBytes(printer.content)
    forward = list(read_forward(log, 0))
    assert list(read_backward(log, log.size))[::-1] == forward
    ends = [begin for begin in range(log.size) if locate_entry(log, begin) == begin] if log.size < 2000 else []
    for begin in ends:
        assert list(read_forward(log, begin)) == [line for line in forward if line.begin >= begin]


def test_it_has_the_lines_of_the_archive_with_rotation_and_long_lines(tmp_path: Path) -> None:
    sink = LogSink(str(tmp_path / "node.0.log"), 200_000, 2)
    for number in range(200):
        sink.feed(STDOUT, b"%d %s\n" % (number, b"x" * (50_000 if number % 7 == 0 else 10)))
        sink.feed(STDERR, b"error %d\n" % number)
    sink.close()
    names = ("node.0.log.2", "node.0.log.1", "node.0.log")
    archived = ArchivedLog(PLACE, "node", 0, tuple(tmp_path / name for name in names))
    log = open_pieces(archived)
    want = list(read_lines(archived))
    assert want[0][1].startswith(b"trainmaster: the first ")
    assert show(list(read_forward(log, 0))) == want
    assert show(list(read_backward(log, log.size))[::-1]) == want
    middle = list(read_forward(log, locate_entry(log, log.size // 2)))
    assert show(middle) == want[-len(middle) :]
    log.close()


def test_a_time_is_found_wherever_it_is() -> None:
    log = MemoryBytes(Printer().lines(0, 5000, each=2).content)
    lines = list(read_forward(log, 0))
    for second in (0, 1, 1249, 2498, 2499):
        first = next(line for line in lines if line.time == make_time(second))
        assert locate_time(log, make_time(second)) == first.begin
        following = next((line.begin for line in lines if line.time > make_time(second)), log.size)
        assert locate_time(log, make_time(second), after=True) == following
    assert locate_time(log, make_time(2500)) == log.size
    assert count_same(log, lines[999]) == 1


def test_an_entry_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(Printer().lines(0, 3).content + b"2026-11-15T00:00")
    log = FileBytes([os.open(path, os.O_RDONLY)])
    assert [line.text for line in read_forward(log, 0)] == [b"line 0", b"line 1", b"line 2"]
    log.close()


def test_times_of_a_cluster_may_have_any_precision() -> None:
    log = MemoryBytes(b"2026-11-15T12:00:00.1Z stdout F one\n2026-11-15T12:00:00.12Z stdout F two\n")
    assert [line.text for line in read_forward(log, 0)] == [b"one", b"two"]
    assert locate_time(log, "2026-11-15T12:00:00.110000000Z") == len(b"2026-11-15T12:00:00.1Z stdout F one\n")


def test_pieces_of_a_line_that_is_far_too_long_are_those_of_a_reader_from_the_beginning() -> None:
    log = MemoryBytes(Printer().print(1, b"x" * (MAX_LINE * 150) + b"end\n").print(2, b"next\n").content)
    sizes = [len(line.text) for line in read_forward(log, 0)]
    assert sizes == [1 << 20, 1 << 20, MAX_LINE * 22 + 3, 4]
    assert [len(line.text) for line in read_backward(log, log.size)] == sizes[::-1]
