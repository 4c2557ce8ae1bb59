"""Measuring what Pods hold on disk: off the loop, one at a time, and less often where it is dear."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from trainmaster.kit.clock import SystemClock
from trainmaster.node.disk import usage as disk_usage
from trainmaster.node.disk.usage import DiskUsage, TreeUsage, measure_tree
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


def test_bytes_and_inodes_of_a_tree_are_counted_once(tmp_path: Path) -> None:
    assert measure_tree(str(tmp_path)) == TreeUsage()
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    first = measure_tree(str(tmp_path))
    assert 100_000 <= first.bytes < 120_000
    assert first.inodes == 1
    os.link(tmp_path / "file", tmp_path / "same")
    assert measure_tree(str(tmp_path)) == first
    os.symlink("/", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    again = measure_tree(str(tmp_path))
    assert (again.bytes, again.inodes, again.whole) == (first.bytes, 3, True)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert measure_tree(str(tmp_path)).bytes < 120_000


def test_files_with_more_names_than_are_remembered_count_their_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_usage, "_MOST_LINKED", 0)
    (tmp_path / "file").write_bytes(b"x" * 40_960)
    for number in range(3):
        os.link(tmp_path / "file", tmp_path / f"same{number}")
    assert measure_tree(str(tmp_path)).bytes == 40_960


def test_a_file_and_nothing_have_a_size_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 5000)
    assert measure_tree(str(tmp_path / "file")).bytes == 8192
    assert measure_tree(str(tmp_path / "none")) == TreeUsage()


def test_counting_stops_where_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"x" * 4096)
    found = measure_tree(str(tmp_path), enough=10_000)
    assert (found.bytes, found.whole) == (12_288, False)
    monkeypatch.setattr(disk_usage, "MOST_INODES", 5)
    found = measure_tree(str(tmp_path))
    assert (found.inodes, found.whole) == (5, False)


def test_the_walker_pauses_as_long_as_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_usage, "_SLICE", 10)
    for number in range(35):
        (tmp_path / str(number)).write_bytes(b"")
    pauses: list[float] = []
    measure_tree(str(tmp_path), pause=pauses.append)
    assert len(pauses) == 3
    assert all(pause > 0 for pause in pauses)


def test_the_loop_goes_on_while_a_tree_is_measured() -> None:
    may_end = threading.Event()

    def measure(path: str, enough: int) -> TreeUsage:
        assert may_end.wait(30)
        return TreeUsage(1, 1)

    async def test() -> None:
        meter = DiskUsage(SystemClock(), measure)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(meter.measure("a"))
            await asyncio.sleep(0.05)
            assert not asked.done()
            may_end.set()
        assert asked.result() == TreeUsage(1, 1) == meter.find_last("a")

    asyncio.run(test())


def test_one_tree_at_a_time_and_a_shared_answer() -> None:
    running, seen = [0], []

    def measure(path: str, enough: int) -> TreeUsage:
        running[0] += 1
        seen.append((path, running[0]))
        running[0] -= 1
        return TreeUsage(1, 1)

    async def test() -> None:
        meter = DiskUsage(SystemClock(), measure)
        await asyncio.gather(*(meter.measure(path) for path in ("a", "b", "a", "b", "c")))

    asyncio.run(test())
    assert sorted(seen) == [("a", 1), ("b", 1), ("c", 1)]


def test_what_was_dear_to_measure_is_measured_less_often() -> None:
    clock = VirtualClock()
    count = [0]

    def measure(path: str, enough: int) -> TreeUsage:
        count[0] += 1
        return TreeUsage(count[0], 1, whole=not enough)

    async def test() -> None:
        meter = DiskUsage(clock, measure)
        assert (await meter.measure("/a/b")).bytes == 1
        await clock.sleep(disk_usage.FRESH_SECONDS - 1)
        assert (await meter.measure("/a/b")).bytes == 1
        await clock.sleep(2)
        assert (await meter.measure("/a/b", enough=5)).bytes == 2
        assert (await meter.measure("/a/b", enough=4)).bytes == 2
        assert (await meter.measure("/a/b", enough=6)).bytes == 3, "the last one stopped too early"
        meter._known["/a/b"].cost = 10.0
        await clock.sleep(100)
        assert (await meter.measure("/a/b", enough=6)).bytes == 3
        await clock.sleep(101)
        assert (await meter.measure("/a/b", enough=6)).bytes == 4
        meter.forget("/a")
        assert meter.find_last("/a/b") is None

    run_virtual(test())
