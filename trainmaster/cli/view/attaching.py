"""`run --stdin`: connects this terminal, or standard input, with the program of rank 0.

On a terminal the program has one of its own: every key goes to it, Ctrl-C included, and its output is shown as it
comes. Ctrl-P Ctrl-Q leaves it, as in Docker. Otherwise standard input is passed on up to its end, and the output comes
from the log, as without `--stdin`.

The other end of the program's input is held by its shim, so the program outlives this command and the server: a lost
connection never looks like the end of the input. On a terminal it is opened again; data from a pipe cannot be sent
again, because it is unknown how much of it has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.api.training.steps import NODE
from trainmaster.cli.context import CommandContext
from trainmaster.cli.view import conversation
from trainmaster.cli.view.contract import Shown
from trainmaster.cli.view.model import JobNews
from trainmaster.cli.view.plain import Plain
from trainmaster.cli.view.ranks import DONE, FAILED, RUNNING, STOPPED, Rank, read_rank
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.client.pod_exec import ExecOptions, ExecSession, open_exec
from trainmaster.jobs.logs.contract import Line
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope

_LEAVE = b"\x10\x11"
"""Ctrl-P Ctrl-Q."""
_AGAIN_SECONDS = 1.0
_ENDED = (DONE, FAILED, STOPPED)


class Attachment:
    """Fed by the session that follows the job."""

    def __init__(
        self, context: CommandContext, config: ClusterConfig, clock: Clock, namespace: str, job: str, *, tty: bool
    ) -> None:
        """`job` is the replicated job whose first Pod runs the command."""
        self._context = context
        self._config = config
        self._clock = clock
        self._namespace = namespace
        self._job = job
        self.tty = tty
        self.silent = asyncio.Event()
        """Not set while keys go to the program."""
        self.silent.set()
        self._rank: Rank | None = None
        self._changed = asyncio.Event()
        self._met: set[int] = set()
        """Attempts whose output was shown as it came."""
        self._held: list[Line] = []
        """Lines of an attempt that may still be attached to, which shows them again."""
        self._sent = 0
        self._is_sent = False
        self._is_left = False
        self._is_line_open = False

    @property
    def is_talking(self) -> bool:
        return not self.silent.is_set()

    # From the session

    def see_pod(self, pod: Object) -> None:
        rank = read_rank(pod)
        if rank.key == (self._job, 0) and (self._rank is None or rank.attempt >= self._rank.attempt):
            self._rank = rank
            self._changed.set()

    def take_line(self, line: Line) -> list[Line]:
        """The lines to print now: none if the terminal shows them, or may still do so."""
        if not self.tty or (line.job, line.rank) != (self._job, 0):
            return [line]
        if line.attempt in self._met:
            return []
        self._held.append(line)
        rank = self._rank
        return self.take_held() if rank is not None and rank.attempt == line.attempt and rank.state in _ENDED else []

    def take_held(self) -> list[Line]:
        held, self._held = self._held, []
        return held

    def list_hints(self) -> list[str]:
        """For a job that goes on without this command."""
        if self._rank is None:
            return []
        flags = "-it" if self.tty else "-i"
        return [f"  kubectl attach {flags} {self._rank.pod} -n {self._namespace}   talks to its program"]

    # Talking

    async def follow(self, leave: Callable[[], None]) -> None:
        """Returns when there is nothing left to say: the program has ended, or its input cannot be continued. `leave`
        is called when the user wants to."""
        while True:
            rank = await self._wait_for_program()
            if rank is None:
                return
            try:
                await self._talk(rank, leave)
            except (StatusError, OSError) as error:
                if not self._may_try_again(rank, error):
                    return
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _wait_for_program(self) -> Rank | None:
        """The running first rank; None if there is no input left for it."""
        while not self._is_sent:
            self._changed.clear()
            if self._rank is not None and self._rank.state == RUNNING:
                return self._rank
            await self._changed.wait()
        return None

    def _may_try_again(self, rank: Rank, error: Exception) -> bool:
        if self.tty:
            if rank.attempt in self._met and not self._is_left:
                self._context.note(f"trainmaster: not attached any more, and trying again: {error}")
            return True
        if self._sent and not self._is_sent:
            text = f"the connection was lost after {self._sent} bytes of input, and it is unknown how many have arrived"
            self._context.note(f"trainmaster: {text}: the program still waits; stop the job, and start it again")
        return not self._sent

    async def _talk(self, rank: Rank, leave: Callable[[], None]) -> None:
        """Until the container ends. Raises StatusError or OSError if the connection does so before."""
        wanted = ExecOptions(container=NODE, stdin=True, tty=self.tty, output=self.tty)
        async with open_exec(self._config, self._namespace, rank.pod, wanted) as session, AsyncExitStack() as stack:
            if self.tty:
                self._met.add(rank.attempt)
                self._held = [line for line in self._held if line.attempt != rank.attempt]
                self._context.note(f"trainmaster: attached to {rank.pod}; Ctrl-P Ctrl-Q detaches")
                stack.callback(self._end_line)
                stack.enter_context(conversation.raw_terminal(self._context))
                stack.enter_context(conversation.following_size(session))
                stack.callback(self.silent.set)
                self.silent.clear()
            scope = await stack.enter_async_context(Scope("run.attached"))
            pieces = await stack.enter_async_context(conversation.reading(self._context))
            scope.spawn(self._pump(session, pieces, leave), name="run.stdin")
            async for channel, data in session.outputs():
                self._is_line_open = not data.endswith(b"\n")
                conversation.show_output(self._context, channel, data)

    def _end_line(self) -> None:
        """What this command prints next does not belong to the program's last line."""
        if self._is_line_open:
            self._is_line_open = False
            self._context.note("")

    async def _pump(self, session: ExecSession, pieces: asyncio.Queue[bytes], leave: Callable[[], None]) -> None:
        held = b""
        while data := await pieces.get():
            data = held + data
            if self.tty and _LEAVE in data:
                self._is_left = True
                leave()
                return
            # The first of the two keys waits for the next one.
            held = _LEAVE[:1] if self.tty and data.endswith(_LEAVE[:1]) else b""
            data = data[: len(data) - len(held)]
            self._sent += len(data)
            await session.write(data)
        session.close_input()
        self._is_sent = not self.tty


class AttachedView(Plain):
    """Plain lines, as far as they do not disturb the program that has the terminal."""

    def __init__(self, context: CommandContext, attachment: Attachment) -> None:
        super().__init__(context)
        self._attachment = attachment

    def print_line(self, line: Shown) -> None:
        # In raw mode the terminal does not add the carriage return.
        end = "\r\n" if self._attachment.is_talking else "\n"
        self._context.write(f"{line.prefix}{line.text}{end}", flush=True)

    def print_news(self, news: JobNews) -> None:
        if not self._attachment.is_talking:
            super().print_news(news)
