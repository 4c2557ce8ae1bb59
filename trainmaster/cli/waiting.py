"""Waits for jobs to reach a state, across broken connections and restarts of the server.

Used by wait, submit, delete, suspend, resume and restart. Waiting ends early if a job can no longer reach the state.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.spans import parse_span
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.jobs.models import training
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import SystemClock

COMPLETE, FAILED, RUNNING, FINISHED = "complete", "failed", "running", "finished"
SUSPENDED, RESUMED, DELETED = "suspended", "resumed", "deleted"
GOALS = (COMPLETE, FAILED, RUNNING, FINISHED, SUSPENDED, DELETED)

_CONDITIONS = {"succeeded": COMPLETE}
"""Conditions of v1 jobs that are named differently from the state that they mean."""

WaitCondition = Callable[[Object | None], str | None]
"""Takes the object, or None if it is deleted. Returns "" if the state is reached, a sentence if it never will be, or
None to continue waiting."""


class _Decided(Exception):
    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def read_goal(text: str) -> str:
    """Accepts a goal, and the condition that means it: Complete, Succeeded, condition=Failed."""
    word = text.lower().removeprefix("condition=")
    return _CONDITIONS.get(word, word)


def add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout", default="", metavar="SPAN", help="timeout such as 30s or 10m (default: none)")


def read_timeout(options: argparse.Namespace) -> float | None:
    if not options.timeout:
        return None
    try:
        return float(parse_span(options.timeout))
    except ValueError as error:
        raise exits.Failure(f"--timeout: {error}", exits.USAGE) from None


def build_wait_condition(goal: str, wanted: TrainingJob) -> WaitCondition:
    """A judge for this object by uid: a newer object of the same name does not count."""
    name, uid, model = wanted.name, wanted.uid, type(wanted)

    def judge(job: Object | None) -> str | None:
        if job is None or job["metadata"]["uid"] != uid:
            return "" if goal == DELETED else f"{name} was deleted"
        state = model(job).state
        if _is_met(goal, state.word):
            return ""
        if state.is_final and goal not in (DELETED, FINISHED):
            return f"{name} has ended: {state.word}" + (f", {state.sentence}" if state.sentence else "")
        return None

    return judge


def _is_met(goal: str, word: str) -> bool:
    return (
        word
        in {
            COMPLETE: (training.COMPLETE,),
            FAILED: (training.FAILED,),
            FINISHED: (training.COMPLETE, training.FAILED),
            # A complete job has been running, however briefly.
            RUNNING: (training.RUNNING, training.COMPLETE),
            SUSPENDED: (training.SUSPENDED,),
            RESUMED: (training.STARTING, training.WAITING, training.RUNNING, training.COMPLETE),
            DELETED: (),
        }[goal]
    )


async def wait_for(client: Client, jobs: Sequence[TrainingJob], goal: str, seconds: float | None = None) -> list[str]:
    """Waits until all of these objects (by uid) reach the goal. Returns a sentence about each that never will.

    Failure with TIMED_OUT after the timeout.
    """
    waits = [_wait_for_one(client, job, goal) for job in jobs]
    return [problem for problem in await limit(waits, seconds, f"not all are {goal}") if problem]


async def _wait_for_one(client: Client, job: TrainingJob, goal: str) -> str:
    judge = build_wait_condition(goal, job)
    problem = await wait_until(client, job.gvr, job.name, job.namespace, judge)
    if not problem and goal == SUSPENDED:
        # The condition is set when its Pods have been told to end.
        await _wait_for_pods(client, job)
    return problem


async def _wait_for_pods(client: Client, job: TrainingJob) -> None:
    """Returns when no Pod of the job is left that has not ended, or if the user may not see Pods."""
    left: dict[str, Object] = {}

    def look() -> None:
        if all(Pod(pod).is_over or job.find_place(pod) is None for pod in left.values()):
            raise _Decided("")

    async def begin(items: list[Object]) -> None:
        left.clear()
        left.update({item["metadata"]["uid"]: item for item in items})
        look()

    async def change(event: WatchEvent) -> None:
        uid = event.object["metadata"]["uid"]
        if event.type == "DELETED":
            left.pop(uid, None)
        else:
            left[uid] = event.object
        look()

    selector = f"{job.pod_label}={job.name}"
    try:
        await follow(
            client,
            SystemClock(),
            PODS,
            begin,
            change,
            namespace=job.namespace,
            label_selector=selector,
            trouble=_pass_on_refusals,
        )
    except _Decided:
        return
    except StatusError as error:
        if error.code != 403:
            raise


async def limit(waits: Sequence[Awaitable[str]], seconds: float | None, text: str) -> list[str]:
    try:
        async with asyncio.timeout(seconds):
            return list(await asyncio.gather(*waits))
    except TimeoutError:
        after = f"after {seconds:g} s {text}; `trainmaster list` shows how far they are"
        raise exits.Failure(after, exits.TIMED_OUT) from None


async def wait_until(client: Client, gvr: GVR, name: str, namespace: str, judge: WaitCondition) -> str:
    """Watches the object until the judge returns a result, and returns it."""

    async def begin(items: list[Object]) -> None:
        decide(items[0] if items else None)

    async def change(event: WatchEvent) -> None:
        decide(None if event.type == "DELETED" else event.object)

    def decide(seen: Object | None) -> None:
        answer = judge(seen)
        if answer is not None:
            raise _Decided(answer)

    try:
        await follow(
            client,
            SystemClock(),
            gvr,
            begin,
            change,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            trouble=_pass_on_refusals,
        )
    except _Decided as decided:
        return decided.problem


def _pass_on_refusals(error: Exception) -> None:
    if isinstance(error, StatusError) and error.code in (401, 403, 404):
        raise error
