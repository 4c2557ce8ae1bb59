"""Cycles are collected in quiet moments, and in the middle of work only if there may be very many."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from trainmaster.app.collector import collect_in_quiet_moments
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
