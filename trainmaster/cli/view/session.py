"""Follows one training job until it is over, or until the user leaves.

Three concurrent streams feed the model: the job, its Pods, and their logs. A broken stream is reopened. The job is over
when its status says so and all of its logs have been read. Signals and keys arrive through `Answers`. The terminal is
always restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli.view.contract import FollowingView, Shown
from trainmaster.cli.view.endings import FollowingEnd
from trainmaster.cli.view.model import SUSPENDED, Model
from trainmaster.client.contract import Client, ListOptions, PatchType, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.client.http import Unreachable
from trainmaster.jobs.logs.contract import Entry, Line
from trainmaster.jobs.logs.folding import LauncherFold
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope

if TYPE_CHECKING:
    from trainmaster.cli.view.attaching import Attachment

Lines: TypeAlias = Callable[[bool], AsyncGenerator[Entry, None]]
"""All lines of the job; the argument says whether to follow."""
_DRAIN_SECONDS = 10.0
"""How long to wait for the last lines of a finished job."""
_PATIENCE = 30.0
"""How many seconds to retry a server that does not answer."""
_LOOK_SECONDS = 1.0
_SHORT_SECONDS = 0.15
"""The logs of a job that is over by then are read at once; for other jobs the first line is delayed by this."""


@dataclass
class Answers:
    """The user's decisions, as futures of the session's event loop."""

    detach: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Followed:
    end: FollowingEnd
    why: str = ""


class FollowingSession:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        model: Model,
        view: FollowingView,
        lines: Lines,
        *,
        is_gone: Callable[[], str] = lambda: "",
        fold: bool = True,
        attachment: Attachment | None = None,
    ) -> None:
        """`is_gone` returns why the server will not come back by itself; "" if it may. `fold`: show one line instead of
        what torchrun prints about a failed worker."""
        self._client = client
        self._clock = clock
        self._model = model
        self._view = view
        self._lines = lines
        self._is_gone = is_gone
        self._fold = LauncherFold() if fold else None
        self._attachment = attachment
        self._over = asyncio.Event()
        self._empty = asyncio.Event()
        """Set when no Pod of the job is left."""
        self._gone = asyncio.Event()
        self._why_gone = ""
        self._offline_since: float | None = None
        self.answers = Answers()

    async def follow(self) -> Followed:
        self._view.open()
        try:
            async with Scope("run") as scope:
                if not self._model.screen.is_over:
                    scope.spawn(self._watch_trainjob(), name="run.trainjob")
                if self._attachment is None and await self._is_short(scope):
                    await self._read_lines(follow=False)
                    return Followed(FollowingEnd.OVER)
                if self._model.screen.is_over:
                    self._over.set()
                scope.spawn(self._watch_pods(), name="run.pods")
                reading = [scope.spawn(self._read_lines(), name="run.lines")]
                if self._attachment is not None:
                    scope.spawn(self._attachment.follow(self.answers.detach.set), name="run.attachment")
                    reading.append(scope.spawn(self._wait_silent(self._attachment), name="run.silent"))
                scope.spawn_forever(self._refresh(), name="run.refresh")
                followed = await self._wait(scope, reading)
                scope.cancel()
            return followed
        finally:
            for line in () if self._attachment is None else self._attachment.take_held():
                self._print_line(line)
            self._show()
            self._view.close()

    async def _is_short(self, scope: Scope) -> bool:
        """Whether the job is over within a moment. Until then only the job is followed, because opening all streams
        takes more CPU time than a short job."""
        screen = self._model.screen
        if not screen.is_over:
            over = scope.spawn(self._over.wait(), name="run.short")
            detach = scope.spawn(self.answers.detach.wait(), name="run.short.detach")
            await asyncio.wait((over, detach), timeout=_SHORT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            detach.cancel()
        if not screen.is_over:
            return False
        selector = f"{self._model.kind.pod_label}={screen.name}"
        try:
            for pod in (await self._client.list(PODS, screen.namespace, ListOptions(label_selector=selector))).items:
                self._model.see_pod(pod)
        except (StatusError, OSError):
            return False  # the streams handle a server that does not answer
        self._show()
        return True

    async def _wait(self, scope: Scope, reading: Sequence[asyncio.Task[None]]) -> Followed:
        over = scope.spawn(self._over.wait(), name="run.over")
        detach = scope.spawn(self.answers.detach.wait(), name="run.detach")
        stop = scope.spawn(self.answers.stop.wait(), name="run.stop")
        gone = scope.spawn(self._gone.wait(), name="run.gone")
        await asyncio.wait((over, detach, stop, gone), return_when=asyncio.FIRST_COMPLETED)
        if self.answers.detach.is_set():
            return Followed(FollowingEnd.DETACHED)
        if self.answers.stop.is_set() and not self._over.is_set():
            await self._stop()
            stopped = scope.spawn(self._wait_stopped(), name="run.stopped")
            await asyncio.wait((over, detach, gone, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not self._over.is_set() and not self._gone.is_set():
                return Followed(FollowingEnd.STOPPED)
        if self._gone.is_set():
            return Followed(FollowingEnd.LOST, self._why_gone)
        await asyncio.wait(reading, timeout=_DRAIN_SECONDS)
        return Followed(FollowingEnd.OVER)

    async def _stop(self) -> None:
        """Suspends the job: ranks have the grace period to save, and the job can be resumed later."""
        screen, kind = self._model.screen, self._model.kind
        try:
            await self._client.patch(
                kind.gvr, screen.name, PatchType.MERGE, kind.build_suspension(True), screen.namespace
            )
        except NotFound:
            self._model.see_deleted()
            self._over.set()

    async def _wait_silent(self, attachment: Attachment) -> None:
        """Until the job is over and everything that its program printed is on the terminal."""
        await self._over.wait()
        await attachment.silent.wait()

    async def _wait_stopped(self) -> None:
        await self._empty.wait()

    # ---- streams ----------------------------------------------------------------

    async def _watch_trainjob(self) -> None:
        name = self._model.screen.name

        def begin(items: list[Object]) -> None:
            for item in items:
                self._see_trainjob(item)
            if not items:
                self._end_deleted()

        def change(kind: str, obj: Object) -> None:
            if kind == "DELETED":
                self._end_deleted()
            else:
                self._see_trainjob(obj)

        await self._keep_watching(self._model.kind.gvr, f"metadata.name={name}", "", begin, change)

    def _see_trainjob(self, trainjob: Object) -> None:
        self._model.see_trainjob(trainjob)
        self._show()
        if self._model.screen.is_over:
            self._over.set()

    def _end_deleted(self) -> None:
        self._model.see_deleted()
        self._show()
        self._over.set()

    async def _watch_pods(self) -> None:
        known: dict[str, Object] = {}

        def begin(items: list[Object]) -> None:
            present = {item["metadata"]["uid"] for item in items}
            for uid in set(known) - present:
                self._model.see_pod(known.pop(uid), gone=True)
            for item in items:
                change("ADDED", item)
            self._note_pods(known)

        def change(kind: str, obj: Object) -> None:
            uid = obj["metadata"]["uid"]
            if kind == "DELETED":
                known.pop(uid, None)
            else:
                known[uid] = obj
                if self._attachment is not None:
                    self._attachment.see_pod(obj)
            self._model.see_pod(obj, gone=kind == "DELETED")
            self._note_pods(known)
            self._show()

        selector = f"{self._model.kind.pod_label}={self._model.screen.name}"
        await self._keep_watching(PODS, "", selector, begin, change)

    def _note_pods(self, known: dict[str, Object]) -> None:
        if known:
            self._empty.clear()
        elif self._model.screen.state == SUSPENDED or self.answers.stop.is_set():
            self._empty.set()

    async def _keep_watching(
        self,
        gvr: GVR,
        field_selector: str,
        label_selector: str,
        begin: Callable[[list[Object]], None],
        change: Callable[[str, Object], None],
    ) -> None:
        async def take_all(items: list[Object]) -> None:
            self._note_answer()
            begin(items)

        async def take(event: WatchEvent) -> None:
            change(event.type, event.object)

        await follow(
            self._client,
            self._clock,
            gvr,
            take_all,
            take,
            namespace=self._model.screen.namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            trouble=self._note_silence,
            longest_pause=2.0,
        )

    async def _read_lines(self, *, follow: bool = True) -> None:
        stream = self._lines(follow)
        async with aclosing(stream):
            async for entry in stream:
                if isinstance(entry, Line):
                    self._see_line(entry)
        for entry in self._fold.flush() if self._fold is not None else ():
            self._print(entry)

    def _see_line(self, entry: Line) -> None:
        if entry.job == "node":
            self._model.see_line(entry.rank, entry.text, entry.attempt)
        for line in (entry,) if self._fold is None else self._fold.feed(entry):
            self._print(line)

    def _print(self, entry: Line) -> None:
        for line in (entry,) if self._attachment is None else self._attachment.take_line(entry):
            self._print_line(line)

    def _print_line(self, entry: Line) -> None:
        screen = self._model.screen
        prefix = ""
        if entry.job != "node":
            prefix = f"[{entry.job}] "
        elif screen.nodes != 1:
            prefix = f"[{entry.rank}] "
        self._view.print_line(Shown(entry.attempt, entry.job, entry.rank, entry.text, prefix))
        self._view.refresh()

    # ---- unreachable server --------------------------------------------------------

    def _note_answer(self) -> None:
        self._offline_since = None
        self._model.screen.offline = ""

    def _note_silence(self, error: StatusError | OSError) -> None:
        """Gives up if retrying is pointless."""
        if isinstance(error, StatusError) and not isinstance(error, Unreachable) and error.code in (401, 403):
            self._give_up(error.message)
        if isinstance(error, StatusError) and not isinstance(error, Unreachable):
            return
        now = self._clock.monotonic()
        if self._offline_since is None:
            self._offline_since = now
        if why := self._is_gone():
            self._give_up(why)
        elif now - self._offline_since > _PATIENCE:
            self._give_up(f"it has not answered for {_PATIENCE:.0f} s: {error}")
        self._model.screen.offline = f"the server does not answer and is asked again: {error}"
        self._view.refresh()

    def _give_up(self, why: str) -> None:
        self._why_gone = self._why_gone or why
        self._gone.set()

    async def _refresh(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_SECONDS if not self._view.can_ask else 0.25)
            self._view.refresh()

    def _show(self) -> None:
        for news in self._model.take_news():
            self._view.print_news(news)
        self._view.refresh()
