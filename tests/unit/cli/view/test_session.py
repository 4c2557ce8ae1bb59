"""Following a job: when it is over, when it is given up, and what Ctrl-C means. In virtual time, without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from tests.unit.cli.view.objects import STARTED, make_condition, make_pod, make_trainjob
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.cli.view.contract import Shown
from trainmaster.cli.view.endings import FollowingEnd
from trainmaster.cli.view.keys import Keyboard
from trainmaster.cli.view.model import JobNews, Model
from trainmaster.cli.view.session import Answers, Followed, FollowingSession
from trainmaster.client.contract import ListOptions, ObjectList, PatchType, WatchEvent, WatchOptions
from trainmaster.client.http import Unreachable
from trainmaster.jobs.logs.contract import Entry, Line
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

COMPLETE = make_trainjob(conditions=[make_condition("Complete")])


class Watch:
    def __init__(self, queue: asyncio.Queue[WatchEvent | Exception | None]) -> None:
        self._queue = queue

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *details: object) -> None:
        return None

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchEvent:
        event = await self._queue.get()
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, Exception):
            raise event
        return event


class Server:
    """One TrainJob and its Pods; answers what a client asks, or does not."""

    def __init__(self) -> None:
        self.objects: dict[GVR, list[Object]] = {TRAIN_JOBS: [make_trainjob()], PODS: []}
        self.queues: dict[GVR, asyncio.Queue[WatchEvent | Exception | None]] = {}
        self.silence: Exception | None = None
        self.patches: list[Any] = []
        self.lists = 0

    async def list(self, gvr: GVR, namespace: str, options: ListOptions) -> ObjectList:
        self.lists += 1
        if self.silence is not None:
            raise self.silence
        return ObjectList(list(self.objects[gvr]), "1")

    def watch(self, gvr: GVR, namespace: str, options: WatchOptions) -> Watch:
        self.queues[gvr] = asyncio.Queue()
        return Watch(self.queues[gvr])

    async def patch(self, gvr: GVR, name: str, kind: PatchType, patch: Any, namespace: str) -> Object:
        self.patches.append(patch)
        return {}

    def send(self, gvr: GVR, obj: Object, kind: str = "MODIFIED") -> None:
        self.queues[gvr].put_nowait(WatchEvent(kind, obj))

    def fall_silent(self) -> None:
        self.silence = Unreachable("connection refused", sent=False)
        for queue in self.queues.values():
            queue.put_nowait(self.silence)


class Record:
    """A view that only remembers."""

    can_ask = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.closed = 0

    def open(self) -> None:
        self.lines.append("(open)")

    def print_line(self, line: Shown) -> None:
        self.lines.append(line.prefix + line.text)

    def print_news(self, news: JobNews) -> None:
        self.lines.append(f"({news.text})")

    def refresh(self) -> None:
        return None

    def close(self) -> None:
        self.closed += 1


async def say_hello(follow: bool) -> AsyncGenerator[Entry, None]:
    yield Line(0, "node", 1, "node", "", b"hello")
    yield Line(0, "launcher", 0, "node", "", b"hello too")


async def say_nothing_for_ever(follow: bool) -> AsyncGenerator[Entry, None]:
    await asyncio.Event().wait()
    yield Line(0, "node", 0, "node", "", b"never")


def follow(
    script: Callable[[Server, FollowingSession], Any],
    lines: Callable[[bool], AsyncGenerator[Entry, None]] = say_hello,
    gone: str = "",
) -> tuple[Followed, Record, Server]:
    """Follows the job while the script, a coroutine, changes the world."""

    async def main() -> tuple[Followed, Record, Server]:
        server, view, clock = Server(), Record(), VirtualClock()
        session = FollowingSession(server, clock, Model("train"), view, lines, is_gone=lambda: gone)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            following = group.create_task(session.follow())
            await asyncio.sleep(1)
            await script(server, session)
        return following.result(), view, server

    return run_virtual(main(), limit=3600)


async def complete(server: Server, session: FollowingSession) -> None:
    server.send(TRAIN_JOBS, COMPLETE)


def test_a_job_is_over_when_its_trainjob_says_so_and_all_lines_are_read() -> None:
    followed, view, _ = follow(complete)
    assert followed == Followed(FollowingEnd.OVER)
    assert view.lines == ["(open)", "[1] hello", "[launcher] hello too", "(Complete)"]
    assert view.closed == 1


def test_a_job_that_is_over_already_is_told_without_a_watch() -> None:
    async def main() -> tuple[Followed, Record, Server]:
        server, view = Server(), Record()
        server.objects[TRAIN_JOBS] = [COMPLETE]
        model = Model("train")
        model.see_trainjob(COMPLETE)
        session = FollowingSession(server, VirtualClock(), model, view, say_hello)  # type: ignore[arg-type]
        return await session.follow(), view, server

    followed, view, server = run_virtual(main(), limit=10)
    assert followed == Followed(FollowingEnd.OVER)
    assert view.lines[-2:] == ["[1] hello", "[launcher] hello too"]
    assert (server.queues, view.closed) == ({}, 1)


def test_lines_that_never_end_are_not_waited_for_for_ever() -> None:
    followed, _, _ = follow(complete, say_nothing_for_ever)
    assert followed.end is FollowingEnd.OVER


def test_a_watch_that_ends_or_breaks_is_opened_again() -> None:
    async def script(server: Server, session: FollowingSession) -> None:
        for news in (None, StatusError(410, "Expired", "too old")):
            server.queues[TRAIN_JOBS].put_nowait(news)
            await asyncio.sleep(5)
        server.send(TRAIN_JOBS, COMPLETE)

    followed, _, server = follow(script)
    assert followed.end is FollowingEnd.OVER
    assert server.lists == 4


def test_a_job_that_is_deleted_is_over() -> None:
    async def script(server: Server, session: FollowingSession) -> None:
        server.send(TRAIN_JOBS, make_trainjob(), "DELETED")

    followed, view, _ = follow(script)
    assert followed.end is FollowingEnd.OVER
    assert "(Deleted: somebody deleted it)" in view.lines


def test_a_server_that_comes_back_is_followed_again() -> None:
    async def script(server: Server, session: FollowingSession) -> None:
        server.fall_silent()
        await asyncio.sleep(10)
        server.silence = None
        server.objects[TRAIN_JOBS] = [COMPLETE]

    assert follow(script)[0].end is FollowingEnd.OVER


@pytest.mark.parametrize(
    ("gone", "why"),
    [("", "it has not answered for 30 s: connection refused"), ("no server runs", "no server runs")],
    ids=["it may come back: for a while", "it cannot: at once"],
)
def test_a_server_that_does_not_come_back_is_given_up(gone: str, why: str) -> None:
    async def script(server: Server, session: FollowingSession) -> None:
        server.fall_silent()

    followed, view, _ = follow(script, gone=gone)
    assert followed == Followed(FollowingEnd.LOST, why)
    assert view.closed == 1


def test_who_may_not_look_any_more_is_told_so() -> None:
    async def script(server: Server, session: FollowingSession) -> None:
        server.silence = StatusError(401, "Unauthorized", "Unauthorized")
        server.queues[PODS].put_nowait(server.silence)

    assert follow(script)[0] == Followed(FollowingEnd.LOST, "Unauthorized")


def test_detaching_touches_nothing() -> None:
    async def script(server: Server, session: FollowingSession) -> None:
        Keyboard(session.answers, None, None).interrupt()

    followed, _, server = follow(script)
    assert (followed.end, server.patches) == (FollowingEnd.DETACHED, [])


def test_stopping_suspends_and_waits_until_no_pod_is_left() -> None:
    async def script(server: Server, session: FollowingSession) -> None:
        pod = make_pod(0, running=STARTED)
        server.send(PODS, pod, "ADDED")
        await asyncio.sleep(1)
        session.answers.stop.set()
        await asyncio.sleep(60)
        assert server.patches == [{"spec": {"suspend": True}}]
        server.send(PODS, pod, "DELETED")

    assert follow(script)[0].end is FollowingEnd.STOPPED


def test_who_does_not_want_to_wait_for_the_stop_leaves() -> None:
    async def script(server: Server, session: FollowingSession) -> None:
        server.send(PODS, make_pod(0, running=STARTED), "ADDED")
        await asyncio.sleep(1)
        session.answers.stop.set()
        await asyncio.sleep(1)
        Keyboard(session.answers, None, None).interrupt()

    assert follow(script)[0].end is FollowingEnd.STOPPED


def test_keys_mean_nothing_until_somebody_asked() -> None:
    async def main() -> Answers:
        answers = Answers()
        keys = Keyboard(answers, None, None)
        for key in "dsc":
            keys.press(key)
        return answers

    answers = run_virtual(main(), limit=10)
    assert not answers.detach.is_set() and not answers.stop.is_set()
