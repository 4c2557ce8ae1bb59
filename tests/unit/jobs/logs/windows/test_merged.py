"""All logs of a job as one: any part of it, and from one part to the next without a gap."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.jobs.logs.windows.making import Printer, make_run, make_time
from trainmaster.jobs.logs.windows.merged import LogPart, MergedLog, RunLog, Wish, parse_address

pytestmark = pytest.mark.unit

TWO_RANKS = [
    make_run(Printer().lines(0, 3000, each=3)),
    make_run(Printer().lines(0, 3000, each=3), rank=1),
    make_run(Printer().lines(3000, 4000), attempt=1),
    make_run(Printer(), rank=1, attempt=1),
]


def show(part: LogPart) -> list[str]:
    return [f"{line.address.attempt}.{line.address.rank} {line.stored.text.decode()[5:]}" for line in part.lines]


def read(log: MergedLog, before: int, after: int, **where: Any) -> LogPart:
    return log.read(Wish(before, after, **where))


ALL = show(MergedLog(TWO_RANKS).read(Wish(0, 10_000)))


def test_lines_are_merged_by_time_and_attempt_after_attempt() -> None:
    assert len(ALL) == 7000
    assert ALL[:7] == ["0.0 0", "0.0 1", "0.0 2", "0.1 0", "0.1 1", "0.1 2", "0.0 3"]
    assert ALL[5999:6001] == ["0.1 2999", "1.0 3000"]


FEW = [make_run(Printer().lines(0, 9, each=2)), make_run(Printer().lines(0, 9, each=3), rank=1)]


@pytest.mark.parametrize(("size", "runs"), [(1, FEW), (2, FEW), (100, TWO_RANKS), (6500, TWO_RANKS)])
def test_windows_follow_one_another_in_both_directions(size: int, runs: list[RunLog]) -> None:
    log = MergedLog(runs)
    everything = show(read(log, 0, 10_000))
    forward, part = list[str](), read(log, 0, size)
    while True:
        forward += show(part)
        if part.is_last:
            break
        last = part.lines[-1].address
        part = read(log, 0, size, address=last._replace(number=last.number + 1))
    assert forward == everything
    backward, part = list[str](), read(log, size, 0, is_end=True)
    while True:
        backward = show(part) + backward
        if part.is_first:
            break
        part = read(log, size, 0, address=part.lines[0].address)
    assert backward == everything


def test_the_beginning_and_the_end_say_so() -> None:
    log = MergedLog(TWO_RANKS)
    first, last = read(log, 10, 10), read(log, 10, 10, is_end=True)
    assert (show(first), first.begin, first.is_first, first.is_last) == (ALL[:10], 0.0, True, False)
    assert (show(last), last.end, last.is_first, last.is_last) == (ALL[-10:], 1.0, False, True)
    assert 0.001 < first.end < 0.01
    assert 0.99 < last.begin < 0.999


@pytest.mark.parametrize("index", [0, 1, 4, 2999, 5999, 6000, 6999])
def test_a_line_is_found_by_its_address_with_what_stands_around_it(index: int) -> None:
    log = MergedLog(TWO_RANKS)
    line = read(log, 0, 7000).lines[index]
    part = read(log, 3, 3, address=parse_address(str(line.address)))
    assert show(part) == ALL[max(0, index - 3) : index + 3]


def test_a_time_is_found_in_its_attempt() -> None:
    log = MergedLog(TWO_RANKS)
    assert show(read(log, 1, 2, time=make_time(500))) == ["0.1 1499", "0.0 1500", "0.0 1501"]
    assert show(read(log, 1, 1, time=make_time(3000))) == ["0.1 2999", "1.0 3000"]
    assert show(read(log, 1, 1, time="2030-01-01T00:00:00Z")) == ["1.0 3999"]
    assert show(read(log, 1, 1, time="2020-01-01T00:00:00Z")) == ["0.0 0"]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_a_share_of_the_bytes_is_found(share: float) -> None:
    part = read(MergedLog(TWO_RANKS), 0, 1, share=share)
    assert part.begin == pytest.approx(share, abs=0.02)


def test_an_attempt_that_printed_nothing_is_a_place_too() -> None:
    log = MergedLog([TWO_RANKS[0], TWO_RANKS[2]])
    assert show(read(log, 1, 1, address=parse_address(f"7~node~0~{make_time(0)}~0"))) == ["1.0 3999"]
    only = MergedLog([TWO_RANKS[2]])
    assert show(read(only, 1, 1, address=parse_address(f"0~node~0~{make_time(0)}~0"))) == ["1.0 3000"]


def test_a_window_of_long_lines_has_fewer_of_them() -> None:
    printer = Printer()
    for second in range(20):
        printer.print(second, b"%d" % second + b"x" * 500_000 + b"\n")
    part = read(MergedLog([make_run(printer)]), 0, 20)
    assert (len(part.lines), part.is_last) == (4, False)
    assert len(read(MergedLog([make_run(printer)]), 20, 0, is_end=True).lines) == 4


def test_nothing_is_whole() -> None:
    for log in (MergedLog([]), MergedLog([make_run(Printer())])):
        part = read(log, 10, 10, is_end=True)
        assert (show(part), part.is_first, part.is_last) == ([], True, True)


@pytest.mark.parametrize(
    "text", ["", "0~node~0~", "a~b~c~d~e", "0~node~-1~x~0", "0~node~0~x~1e9", f"0~{'n' * 300}~0~x~0"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|values"):
        parse_address(text)


@pytest.mark.parametrize("most", [1, 5, 700, 1500, 6999])
def test_a_stream_begins_so_many_lines_before_the_end(most: int) -> None:
    """Each log goes on after the last line of its own that stands before."""
    log = MergedLog(TWO_RANKS)
    attempt, passed = log.locate_tail(most)
    left = [line for line in read(log, 0, 10_000).lines if line.address.attempt >= attempt]
    for run, time, count in passed:
        own = [line for line in left if line.run is run]
        gone = [line for line in own if line.stored.key < time or (line.stored.key == time and line.number < count)]
        left = [line for line in left if line not in gone]
    assert [str(line.address) for line in left] == [str(line.address) for line in read(log, most, 0, is_end=True).lines]


def test_a_stream_of_fewer_lines_begins_at_the_beginning() -> None:
    assert MergedLog(FEW).locate_tail(100) == (0, [])
    assert MergedLog([]).locate_tail(100) == (0, [])
