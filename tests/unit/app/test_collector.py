"""Memory is cleaned up in quiet moments; cycles in the middle of work only if there may be very many."""

from __future__ import annotations

import asyncio
import gc
import platform
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from trainmaster.app.collector import collect_in_quiet_moments, trim_heap
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _without_automatic_collection() -> Iterator[None]:
    gc.disable()
    gc.collect()
    yield
    gc.enable()


def list_collected(monkeypatch: pytest.MonkeyPatch, *, share: float, new: int, seconds: float) -> list[int]:
    """The generations that are collected while the loop is busy for that share of the time, with that many new objects
    each time it is looked."""
    collected: list[int] = []
    monkeypatch.setattr(gc, "get_count", lambda: (new, 0, 0))
    monkeypatch.setattr(gc, "collect", lambda generation=2: collected.append(generation))

    async def main() -> None:
        clock = VirtualClock()
        work = collect_in_quiet_moments(clock, lambda: clock.monotonic() * share)
        task = asyncio.ensure_future(work)
        await clock.sleep(seconds)
        task.cancel()

    run_virtual(main(), limit=1_000_000)
    return collected


def test_new_objects_are_visited_when_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_collected(monkeypatch, share=0.01, new=50_000, seconds=11) == [1, 1]


def test_few_new_objects_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_collected(monkeypatch, share=0.01, new=100, seconds=60) == []


def test_work_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_collected(monkeypatch, share=0.5, new=500_000, seconds=600) == []


def test_work_is_interrupted_when_there_are_very_many_new_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_collected(monkeypatch, share=0.5, new=1_000_000, seconds=6) == [1]


@pytest.mark.parametrize(("share", "hours"), [(0.01, 1), (0.5, 24)], ids=["quiet", "busy"])
def test_old_objects_are_visited_now_and_then(monkeypatch: pytest.MonkeyPatch, share: float, hours: int) -> None:
    assert list_collected(monkeypatch, share=share, new=0, seconds=hours * 3600 - 60) == []
    assert list_collected(monkeypatch, share=share, new=0, seconds=hours * 3600 + 60) == [2]


def count_trims(list_busy: Callable[[float], float], seconds: float) -> int:
    """`list_busy`: seconds of work until a moment."""
    trims: list[float] = []

    async def main() -> None:
        clock = VirtualClock()
        begun = clock.monotonic()
        busy = partial(list_busy_since, clock, begun)
        task = asyncio.ensure_future(collect_in_quiet_moments(clock, busy, lambda: trims.append(clock.monotonic())))
        await clock.sleep(seconds)
        task.cancel()

    def list_busy_since(clock: VirtualClock, begun: float) -> float:
        return list_busy(clock.monotonic() - begun)

    run_virtual(main(), limit=1_000_000)
    return len(trims)


def test_freed_memory_is_given_back_once_after_work() -> None:
    # Half of the time for 20 seconds, then nothing.
    assert count_trims(lambda moment: min(moment, 20.0) * 0.5, 19) == 0
    assert count_trims(lambda moment: min(moment, 20.0) * 0.5, 3600) == 1


def test_an_idle_server_gives_memory_back_now_and_then() -> None:
    assert count_trims(lambda moment: moment * 0.001, 499) == 0
    assert count_trims(lambda moment: moment * 0.001, 1009) == 2


@pytest.mark.skipif("glibc" not in platform.libc_ver()[0], reason="only glibc gives pages back")
def test_scattered_free_memory_leaves_the_process() -> None:
    blocks = [bytes(1000) for _ in range(50_000)]
    kept = blocks[::9]
    blocks.clear()
    before = read_resident()
    trim_heap()
    assert len(kept) > 5000
    assert before - read_resident() > 10_000_000


def read_resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
