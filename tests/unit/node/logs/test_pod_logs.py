"""Large logs that are read at the same time take turns, and give way to other work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from trainmaster.client.contract import LogOptions
from trainmaster.kit.clock import SystemClock
from trainmaster.node.logs.end_signal import EndSignal
from trainmaster.node.logs.inotify import Inotify
from trainmaster.node.logs.pod_logs import CriLogReader

pytestmark = pytest.mark.unit

LINE = b"2026-11-15T12:00:00.000000000Z stdout F " + b"x" * 983 + b"\n"
LINES = 1280
"""A log of 20 pieces."""
PIECES = LINES * len(LINE) // (1 << 16)


class QuietInotify(Inotify):
    """Reports no changes, because these logs are complete."""

    def __init__(self) -> None:
        pass

    @contextmanager
    def watch(self, path: Path) -> Iterator[asyncio.Event]:
        yield asyncio.Event()


class ManualClock(SystemClock):
    """Time passes only when somebody works or waits."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waits: list[float] = []

    def now(self) -> datetime:
        raise AssertionError("no wall time is needed")

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


class Bench:
    def __init__(self, root: Path, pods: int) -> None:
        self.clock = ManualClock()
        self.rounds = 0
        """Rounds of the event loop until all logs were read."""
        ended = EndSignal()
        ended.set()
        self._reader = CriLogReader(root, QuietInotify(), lambda pod, container, attempt: ended, self.clock)
        self._pods = pods
        for number in range(pods):
            folder = root / str(number) / "logs" / "node"
            folder.mkdir(parents=True)
            (folder / "0.log").write_bytes(LINE * LINES)

    async def read_all(self, work: float = 0.0) -> list[int]:
        """How much was read of each log. `work`: seconds that others need in each round of the event loop."""
        counting = asyncio.ensure_future(self._count_rounds(work))
        found = await asyncio.gather(*(self._read(number) for number in range(self._pods)))
        counting.cancel()
        return found

    async def _read(self, number: int) -> int:
        pod = {"metadata": {"name": "p", "uid": str(number)}}
        return sum([len(piece) async for piece in self._reader.read(pod, "node", LogOptions(follow=True))])

    async def _count_rounds(self, work: float) -> None:
        while True:
            self.rounds += 1
            self.clock.seconds += work
            await asyncio.sleep(0)


def test_one_piece_of_all_large_logs_is_returned_in_a_round(tmp_path: Path) -> None:
    bench = Bench(tmp_path, pods=4)
    assert asyncio.run(bench.read_all()) == [984 * LINES] * 4
    assert bench.rounds >= 4 * (PIECES - 1), "the first piece of a log waits for nobody"
    assert bench.clock.waits == [], "nobody else had work"


def test_large_logs_wait_after_a_round_in_which_others_had_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path, pods=2)
    assert asyncio.run(bench.read_all(work=0.001)) == [984 * LINES] * 2
    assert len(bench.clock.waits) >= 2 * (PIECES - 1)
    assert min(bench.clock.waits) > 0.001, "longer than the others worked"
