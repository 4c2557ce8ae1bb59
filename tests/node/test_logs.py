"""Logs: the tail, the limit, the previous attempt, and following a file while it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import LogOptions
from trainmaster.node.inotify import Inotify
from trainmaster.node.logs import PodLogReader, find_tail

pytestmark = pytest.mark.node


class Bench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.inotify = Inotify()
        self.ended = asyncio.Event()
        self.reader = PodLogReader(root, self.inotify, lambda uid, container, attempt: self.ended)

    def write(self, text: str, attempt: int = 0) -> None:
        path = self.root / "u" / "logs" / "node" / f"{attempt}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)

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
            await test(bench)
        finally:
            bench.inotify.close()

    asyncio.run(main())


def test_the_whole_log_its_tail_and_its_limit(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("one\ntwo\nthree\n")
        assert await bench.read() == "one\ntwo\nthree\n"
        assert await bench.read(tail_lines=2) == "two\nthree\n"
        assert await bench.read(limit_bytes=5) == "one\nt"

    run(tmp_path, test)


def test_the_previous_attempt_has_a_log_of_its_own(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("first\n", attempt=0)
        bench.write("second\n", attempt=1)
        assert await bench.read(restarts=1) == "second\n"
        assert await bench.read(restarts=1, previous=True) == "first\n"

    run(tmp_path, test)


def test_a_follower_sees_what_is_written_later_and_stops_when_the_container_ends(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("one\n")
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(bench.read(follow=True))
            for line in ("two\n", "three\n"):
                await asyncio.sleep(0.01)
                bench.write(line)
            await asyncio.sleep(0.01)
            assert not reading.done()
            bench.write("last\n")
            bench.ended.set()
        assert reading.result() == "one\ntwo\nthree\nlast\n"

    run(tmp_path, test)


def test_a_follower_that_wants_no_old_lines_gets_only_new_ones(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.write("old\n")
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(bench.read(follow=True, tail_lines=0))
            await asyncio.sleep(0.01)
            bench.write("new\n")
            bench.ended.set()
        assert reading.result() == "new\n"

    run(tmp_path, test)


@pytest.mark.parametrize(
    "options", [{"timestamps": True}, {"since_seconds": 5}, {"since_time": "2026-01-01T00:00:00Z"}]
)
def test_what_a_log_without_time_stamps_cannot_answer_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    async def test(bench: Bench) -> None:
        bench.write("one\n")
        with pytest.raises(StatusError, match="time stamps"):
            await bench.read(**options)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("content", "lines", "want"),
    [
        pytest.param(b"a\nb\nc\n", 1, b"c\n", id="the last line"),
        pytest.param(b"a\nb\nc", 2, b"b\nc", id="no line break at the end"),
        pytest.param(b"a\nb\n", 5, b"a\nb\n", id="fewer lines than asked for"),
        pytest.param(b"a\nb\n", 0, b"", id="none"),
        pytest.param(b"x" * 70_000 + b"\n" + b"y" * 70_000 + b"\nz\n", 2, b"y" * 70_000 + b"\nz\n", id="over blocks"),
        pytest.param(b"", 3, b"", id="an empty log"),
    ],
)
def test_the_tail_is_found(tmp_path: Path, content: bytes, lines: int, want: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert content[find_tail(path, lines) :] == want
