"""Shows how a drain proceeds, until nothing runs any more. Used by `trainmaster drain` and by the systemd unit.

The server does the work (`controllers.drain`). This only watches, so it may be interrupted at any time, and continues
when it is called again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path

from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.servers.flags import is_cluster
from trainmaster.cli.spans import show_span
from trainmaster.client.contract import Client
from trainmaster.history.newest_checkpoint import SavedCheckpoint, find_newest_checkpoint
from trainmaster.jobs.drain_progress import DrainState, Stopping, list_pods_left, read_drain
from trainmaster.kit.clock import Clock, parse_time

_POLL_SECONDS = 0.5


def find_user() -> str:
    """The name of the user who calls the command."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def refuse_cluster(options: argparse.Namespace, word: str) -> None:
    if is_cluster(options):
        other = {"drain": "kubectl drain NODE", "undrain": "kubectl uncordon NODE"}[word]
        raise exits.Failure(f"{word} is for the machine of a home; on a cluster use `{other}`", exits.USAGE)


class DrainWatch:
    def __init__(self, client: Client, archive: Path, clock: Clock, say: Callable[[str], None]) -> None:
        """`archive`: the directory with the results of jobs."""
        self._client = client
        self._archive = archive
        self._clock = clock
        self._say = say
        self._told: dict[str, Stopping] = {}
        """The jobs that were seen with Pods, by label."""

    async def wait(self, seconds: float | None) -> DrainState:
        """Returns when nothing runs any more. Failure with TIMED_OUT after the timeout; the drain goes on."""
        try:
            async with asyncio.timeout(seconds):
                return await self._wait()
        except TimeoutError:
            left = "; ".join(map(_describe_left, (await read_drain(self._client)).stopping))
            text = f"still running after {show_span(seconds or 0)}: {left}. The machine stays drained"
            advice = "`trainmaster drain` waits on, `trainmaster undrain` undoes it"
            raise exits.Failure(f"{text}: {advice}", exits.TIMED_OUT) from None

    async def _wait(self) -> DrainState:
        left: set[str] | None = None
        while True:
            try:
                now = await list_pods_left(self._client)
                if now != left:
                    state = await read_drain(self._client)
                    await self._tell(state)
                    left = now
                    if not state.stopping:
                        return state
            except StatusError as error:
                # A server that is being restarted goes on with the drain when it is back.
                if error.code < 500:
                    raise
            await self._clock.sleep(_POLL_SECONDS)

    async def _tell(self, state: DrainState) -> None:
        running = {one.label: one for one in state.stopping}
        suspended = {one.label: one for one in state.suspended}
        for label, one in {**suspended, **running}.items():
            before = self._told.get(label)
            self._told[label] = one
            if before is None and one.pods:
                self._say(_describe_start(one))
            elif before is not None and 0 < one.pods < before.pods:
                self._say(f"{label}: {_count(one.pods)} left")
            elif not one.pods and (before is None or before.pods):
                self._say(f"{label}: stopped; {await self._describe_checkpoint(one, state)}")
        for label in [label for label, one in self._told.items() if label not in running and label not in suspended]:
            del self._told[label]
            self._say(f"{label}: has ended")

    async def _describe_checkpoint(self, one: Stopping, state: DrainState) -> str:
        saved = await asyncio.to_thread(find_newest_checkpoint, self._archive, one.uid)
        return describe_checkpoint(saved, "" if state.drain is None else state.drain.since, self._clock.unix())


def _describe_start(one: Stopping) -> str:
    if one.kind == "Pod":
        command = f"kubectl delete pod {one.name} -n {one.namespace}"
        return f"{one.label}: belongs to no job, so it cannot be suspended; `{command}` ends it"
    return f"{one.label}: asked to save and stop, {_count(one.pods)}"


def describe_checkpoint(saved: SavedCheckpoint | None, since: str, now: float) -> str:
    """`since`: the beginning of the drain."""
    if saved is None:
        return "it has no checkpoint, so it begins again"
    step = f" of step {saved.step}" if saved.step is not None else ""
    age = f"{show_span(now - saved.saved_at)} ago"
    try:
        is_new = saved.saved_at >= parse_time(since).timestamp()
    except ValueError:
        is_new = False
    return f"checkpoint {saved.name}{step} saved {age}" + ("" if is_new else ", before it was asked")


def _describe_left(one: Stopping) -> str:
    return one.label if one.kind == "Pod" else f"{one.label} ({_count(one.pods)})"


def _count(pods: int) -> str:
    return f"{pods} Pod{'s' if pods != 1 else ''}"


def list_labels(jobs: Sequence[Stopping]) -> str:
    """The first ten by name, the others counted."""
    labels = [one.label for one in jobs[:10]]
    more = len(jobs) - len(labels)
    return ", ".join(labels) + (f" and {more} more" if more else "")
