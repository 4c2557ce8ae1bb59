"""`run --stdin`: which lines the terminal shows, the keys that leave, and what happens to input when a connection
breaks. Without a terminal and without a server."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest

from tests.unit.cli.view.objects import STARTED, make_pod
from trainmaster.cli.context import CommandContext
from trainmaster.cli.view import attaching, conversation
from trainmaster.cli.view.attaching import AttachedView, Attachment
from trainmaster.cli.view.contract import Shown
from trainmaster.cli.view.model import JobNews
from trainmaster.client.http import Unreachable
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.client.pod_exec import STDOUT
from trainmaster.jobs.logs.contract import Line
from trainmaster.kit.scopes import Scope
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit

RUNNING = make_pod(running=STARTED)


class Program:
    """The far end of a connection: remembers what it is sent, and ends when it has seen enough."""

    def __init__(self, *, ends_after: bytes = b"", breaks_after: bytes = b"") -> None:
        self.seen = b""
        self.is_closed = False
        self._ends_after, self._breaks_after = ends_after, breaks_after
        self._enough = asyncio.Event()

    async def write(self, data: bytes) -> None:
        self.seen += data
        if any(mark and mark in self.seen for mark in (self._ends_after, self._breaks_after)):
            self._enough.set()

    def close_input(self) -> bool:
        self.is_closed = True
        self._enough.set()
        return True

    def resize(self, columns: int, rows: int) -> None:
        return None

    async def outputs(self) -> AsyncIterator[tuple[int, bytes]]:
        yield STDOUT, b"prompt> "
        await self._enough.wait()
        if self._breaks_after and self._breaks_after in self.seen:
            raise Unreachable("the connection ended before the program did", sent=True)


class Talk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, tty: bool, typed: list[bytes]) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        context = CommandContext({}, self.out, self.err)
        self.clock = VirtualClock()
        self.attachment = Attachment(context, ClusterConfig("https://x"), self.clock, "default", "node", tty=tty)
        self.programs: list[Program] = []
        self.view = AttachedView(context, self.attachment)
        self.left = asyncio.Event()

        @asynccontextmanager
        async def connect(*args: Any) -> AsyncIterator[Program]:
            yield self.programs.pop(0)

        @asynccontextmanager
        async def reading(_: CommandContext) -> AsyncIterator[asyncio.Queue[bytes]]:
            pieces: asyncio.Queue[bytes] = asyncio.Queue()
            while typed:
                pieces.put_nowait(typed.pop(0))
            yield pieces

        def show(_: CommandContext, channel: int, data: bytes) -> None:
            self.out.write(data.decode())

        monkeypatch.setattr(attaching, "open_exec", connect)
        monkeypatch.setattr(conversation, "reading", reading)
        monkeypatch.setattr(conversation, "show_output", show)
        monkeypatch.setattr(conversation, "raw_terminal", lambda _: nullcontext())
        monkeypatch.setattr(conversation, "following_size", lambda _: nullcontext())

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        self.attachment.see_pod(RUNNING)
        async with Scope("test") as scope:
            scope.spawn(self.attachment.follow(self.left.set), name="test.attachment")
            await self.clock.sleep(0.5)
            yield

    @property
    def is_talking(self) -> bool:
        return self.attachment.is_talking


def run(monkeypatch: pytest.MonkeyPatch, tty: bool, typed: list[bytes], test: Callable[[Talk], Any]) -> None:
    async def main() -> None:
        await test(Talk(monkeypatch, tty=tty, typed=typed))

    run_virtual(main())


def make_line(text: str, attempt: int = 0, rank: int = 0) -> Line:
    return Line(attempt, "node", rank, "node", "", text.encode())


def test_lines_that_the_terminal_shows_are_not_printed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(talk: Talk) -> None:
        attachment = talk.attachment
        early, other = make_line("early"), make_line("other", rank=1)
        assert attachment.take_line(early) == []
        assert attachment.take_line(other) == [other]
        talk.programs = [Program()]
        async with talk.following():
            assert attachment.take_line(make_line("late")) == []
            assert attachment.take_held() == [], "the terminal has shown it"
            again = make_line("again", attempt=1)
            assert attachment.take_line(again) == []
            assert attachment.take_held() == [again], "nobody attached to that attempt"

    run(monkeypatch, True, [], test)


def test_a_program_that_is_over_before_anybody_attached_is_read_from_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(talk: Talk) -> None:
        one, two = make_line("one"), make_line("two")
        assert talk.attachment.take_line(one) == []
        talk.attachment.see_pod(make_pod(phase="Succeeded", terminated={"exitCode": 0}))
        assert talk.attachment.take_line(two) == [one, two]

    run(monkeypatch, True, [], test)


@pytest.mark.parametrize(
    ("typed", "seen", "leaves"),
    [
        ([b"a\x10", b"\x11b"], b"a", True),
        ([b"a\x10\x11"], b"", True),
        ([b"a\x10", b"b", b"\x11end"], b"a\x10b\x11end", False),
        ([b"\x03end"], b"\x03end", False),
    ],
)
def test_ctrl_p_ctrl_q_leaves_and_every_other_key_is_the_programs(
    monkeypatch: pytest.MonkeyPatch, typed: list[bytes], seen: bytes, leaves: bool
) -> None:
    async def test(talk: Talk) -> None:
        program = Program(ends_after=b"end")
        talk.programs = [program]
        async with talk.following():
            assert (program.seen, talk.left.is_set()) == (seen, leaves)
            assert "Ctrl-P Ctrl-Q detaches" in talk.err.getvalue()

    run(monkeypatch, True, typed, test)


def test_a_lost_terminal_is_attached_again_and_says_so_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(talk: Talk) -> None:
        talk.programs = [Program(breaks_after=b"go"), Program()]
        async with talk.following():
            assert "\n\ntrainmaster: not attached any more" in talk.err.getvalue()
            before = talk.is_talking
            await talk.clock.sleep(1)
            # The second connection is told nothing, so it stays.
            assert (before, talk.is_talking) == (False, True)

    run(monkeypatch, True, [b"go"], test)


def test_a_pipe_is_sent_up_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(talk: Talk) -> None:
        program = Program()
        talk.programs = [program]
        talk.attachment.see_pod(RUNNING)
        await talk.attachment.follow(talk.left.set)
        assert (program.seen, program.is_closed) == (b"onetwo\x10\x11", True)
        assert talk.err.getvalue() == ""

    run(monkeypatch, False, [b"one", b"two\x10\x11", b""], test)


def test_a_pipe_that_breaks_is_not_sent_again_and_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(talk: Talk) -> None:
        program = Program(breaks_after=b"two")
        talk.programs = [program]
        talk.attachment.see_pod(RUNNING)
        await talk.attachment.follow(talk.left.set)
        assert not program.is_closed
        assert "lost after 6 bytes of input" in talk.err.getvalue()

    run(monkeypatch, False, [b"one", b"two"], test)


def test_nothing_is_printed_between_the_lines_of_a_program_that_has_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(talk: Talk) -> None:
        talk.attachment.silent.clear()
        talk.view.print_news(JobNews("progress", "40 %"))
        talk.view.print_line(Shown(0, "node", 1, "hello", "[1] "))
        assert (talk.out.getvalue(), talk.err.getvalue()) == ("[1] hello\r\n", "")
        talk.attachment.silent.set()
        talk.view.print_news(JobNews("state", "Running"))
        assert talk.err.getvalue() == "trainmaster: Running\n"

    run(monkeypatch, True, [], test)
