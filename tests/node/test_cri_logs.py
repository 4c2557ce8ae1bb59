"""Logs as the API serves them: options, the previous attempt, and following a log that grows and is rotated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.api.v1jobs.frameworks import JOB_NAME
from trainmaster.api.v1jobs.waits import build_wait
from trainmaster.client.contract import LogOptions
from trainmaster.kit.clock import SystemClock, format_time
from trainmaster.node.logs.end_signal import EndSignal
from trainmaster.node.logs.inotify import Inotify
from trainmaster.node.logs.pod_logs import CriLogReader
from trainmaster.shim.log_sink import STDERR, STDOUT, LogSink

pytestmark = pytest.mark.node


class Bench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.inotify = Inotify()
        self.ended = EndSignal()
        self.reader = CriLogReader(root, self.inotify, lambda pod, container, attempt: self.ended, SystemClock())
        self.sinks: dict[int, LogSink] = {}

    def write(
        self, text: str, attempt: int = 0, stream: bytes = STDOUT, max_bytes: int = 1 << 20, keep: int = 3
    ) -> None:
        if attempt not in self.sinks:
            path = self.root / "u" / "logs" / "node" / f"{attempt}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            self.sinks[attempt] = LogSink(str(path), max_bytes, keep)
        self.sinks[attempt].feed(stream, text.encode())

    def close(self) -> None:
        for sink in self.sinks.values():
            sink.close()
        self.inotify.close()

    async def read(self, restarts: int = 0, **options: Any) -> str:
        pieces = self.reader.read(make_pod(restarts), "node", LogOptions(**options))
        return b"".join([piece async for piece in pieces]).decode()


def make_pod(restarts: int) -> Object:
    status = {"name": "node", "restartCount": restarts, "state": {"running": {}}, "lastState": {}}
    return {"metadata": {"name": "p", "uid": "u"}, "status": {"containerStatuses": [status]}}


def run(tmp_path: Path, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench(tmp_path)
        try:
            async with asyncio.timeout(60):
                await test(bench)
        finally:
            bench.close()

    asyncio.run(main())


def test_the_whole_log_its_tail_its_limit_and_its_streams(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("one\ntwo\n")
        bench.write("err\n", stream=STDERR)
        assert await bench.read() == "one\ntwo\nerr\n"
        assert await bench.read(tail_lines=2) == "two\nerr\n"
        assert await bench.read(limit_bytes=5) == "one\nt"
        assert await bench.read(stream="Stderr") == "err\n"

    run(tmp_path, test)


def test_time_stamps_and_since(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("line\n")
        stamped = await bench.read(timestamps=True)
        assert stamped[:4].isdigit() and stamped[29:] == "Z line\n"
        assert await bench.read(since_seconds=3600) == "line\n"
        later = SystemClock().now() + timedelta(seconds=3600)
        assert await bench.read(since_time=format_time(later)) == ""
        with pytest.raises(StatusError, match="sinceTime is not an RFC 3339 time"):
            await bench.read(since_time="yesterday")

    run(tmp_path, test)


def test_the_log_of_a_container_that_needed_no_process_is_empty(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "pt", "uid": "j", "controller": True}
        meta = {"name": "pt-worker-0", "uid": "u", "labels": {JOB_NAME: "pt"}, "ownerReferences": [owner]}
        wait = build_wait("pt-master-0")
        pod = {"metadata": meta, "spec": {"initContainers": [wait], "containers": [{"name": "pytorch"}]}}
        assert [piece async for piece in bench.reader.read(pod, wait["name"], LogOptions(follow=True))] == []

    run(tmp_path, test)


def test_the_previous_attempt_has_a_log_of_its_own(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("first\n", attempt=0)
        bench.write("second\n", attempt=1)
        assert await bench.read(restarts=1) == "second\n"
        assert await bench.read(restarts=1, previous=True) == "first\n"
        with pytest.raises(StatusError, match="has no log on this node"):
            await bench.read(restarts=2)

    run(tmp_path, test)


def test_a_follower_sees_what_is_written_later_and_stops_when_the_container_ends(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("old\n")
        got: list[bytes] = []

        async def follow() -> None:
            options = LogOptions(follow=True, tail_lines=0)
            async for piece in bench.reader.read(make_pod(0), "node", options):
                got.append(piece)

        async with asyncio.TaskGroup() as group:
            group.create_task(follow())
            for line in ("two\n", "three\n"):
                await asyncio.sleep(0.01)
                bench.write(line)
                while not b"".join(got).endswith(line.encode()):
                    await asyncio.sleep(0.001)
            bench.write("last\n")
            bench.ended.set()
        assert b"".join(got) == b"two\nthree\nlast\n"

    run(tmp_path, test)


def test_a_follower_misses_nothing_when_the_log_is_rotated(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("0\n", max_bytes=500, keep=50)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(bench.read(follow=True))
            for number in range(1, 400):
                bench.write(f"{number}\n")
                if number % 7 == 0:
                    await asyncio.sleep(0)
            bench.ended.set()
        assert [int(line) for line in reading.result().split()] == list(range(400))
        assert len(list((tmp_path / "u" / "logs" / "node").iterdir())) > 10
        assert [int(line) for line in (await bench.read(tail_lines=100)).split()] == list(range(300, 400))

    run(tmp_path, test)


def test_a_follower_that_is_too_slow_goes_on_with_the_oldest_that_is_kept(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("0\n", max_bytes=500, keep=2)
        pieces = bench.reader.read(make_pod(0), "node", LogOptions(follow=True))
        first = await anext(pieces)
        for number in range(1, 400):
            bench.write(f"{number}\n")
        bench.ended.set()
        lines = (first + b"".join([piece async for piece in pieces])).splitlines()
        (gap,) = (line for line in lines if not line.isdigit())
        numbers = [int(line) for line in lines if line.isdigit()]
        assert numbers == sorted(set(numbers)), "in order, nothing twice"
        assert numbers[0] == 0 and numbers[-10:] == list(range(390, 400))
        missing = sum(len(f"{number}\n") for number in range(400) if number not in numbers)
        assert gap == b"trainmaster: %d bytes of output were dropped by rotation" % missing
        assert lines.index(gap) == numbers.index(next(n for n in numbers if n - 1 not in numbers and n))

    run(tmp_path, test)
