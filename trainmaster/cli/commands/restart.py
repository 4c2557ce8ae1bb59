"""Restart jobs. A running one starts its next attempt; a finished one is submitted again under a new name.

  trainmaster restart my-job                 running: its processes are stopped and started again
  trainmaster restart my-job --name again    finished: the same job as `again` (default: my-job-2, my-job-3, ...)

A running job keeps its name, its record and the numbering of its attempts; programs have the grace period of their
Pods to save, and continue from a checkpoint if they load one. Its restart count is reset, its deadline is not. On a
cluster, a running job of a v1 kind, such as a PyTorchJob, is suspended and resumed, which also restarts its deadline. A
finished job is not changed; an annotation of the new job refers to it. Repeating the command is safe.

Exit codes: 0 success, 1 it cannot be restarted, 6 timed out (--wait), 7 no such TrainJob.
"""

from __future__ import annotations

import argparse
import asyncio

from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.api.status import Conflict
from trainmaster.api.training.restarts import read_first
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import add_names, get_job, get_jobs
from trainmaster.cli.output import name_object
from trainmaster.cli.servers.connection import add_server, call, is_cluster
from trainmaster.cli.waiting import SUSPENDED as SUSPENDED_GOAL
from trainmaster.cli.waiting import add_timeout, limit, read_timeout, wait_for, wait_until
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.jobs.control import ask_for_attempt, list_new_names, repeat, set_suspended
from trainmaster.jobs.lookups import find_jobset, read_parts
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.training import DELETING, SUSPENDED, TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import SystemClock

_TRIES = 5
_POLL_SECONDS = 0.2
_REACTION_SECONDS = 10.0
"""If there is no reaction within this time, another controller is in charge, which ignores our annotation."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    parser.add_argument(
        "--name", default="", dest="new_name", metavar="NAME", help="name of the new job, if the job has finished"
    )
    parser.add_argument("--wait", action="store_true", help="wait until the next attempt has started")
    add_timeout(parser)
    add_server(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.new_name and len(options.names) > 1:
        raise exits.Failure("--name is for one TrainJob", exits.USAGE)
    seconds = read_timeout(options)

    async def work(client: Client) -> None:
        jobs = await get_jobs(client, options.namespace, options.names)
        for job in jobs:
            _check(job, options)
        for job in jobs:
            await Restart(client, context, options, seconds).run(job)

    call(context, options, work)
    return exits.OK


def _check(job: TrainingJob, options: argparse.Namespace) -> None:
    name, state = job.label, job.state
    if state.word == DELETING:
        raise exits.Failure(f"{name} is being deleted; `trainmaster wait {name} --for deleted`, then submit it again")
    if (state.word == SUSPENDED or job.is_suspended) and not job.is_finished:
        raise exits.Failure(f"{name} is suspended: `trainmaster resume {name}` starts its processes anew")
    if options.new_name and not job.is_finished:
        raise exits.Failure(f"{name} has not ended and keeps its name: leave out --name", exits.USAGE)


class Restart:
    def __init__(
        self, client: Client, context: CommandContext, options: argparse.Namespace, seconds: float | None
    ) -> None:
        self._client, self._context, self._options = client, context, options
        self._seconds = seconds

    async def run(self, job: TrainingJob) -> None:
        """Retries if the job changes meanwhile, because it may have ended."""
        for _ in range(_TRIES):
            if job.is_finished:
                await self._repeat(job)
                return
            try:
                if isinstance(job, TrainJob):
                    await self._replace(job)
                elif is_cluster(self._options):
                    await self._suspend_and_resume(job)
                else:
                    await self._replace_pods(job)
            except Conflict:
                job = await get_job(self._client, self._options.namespace, job.reference)
            else:
                return
        raise exits.Failure(f"{job.name} changes all the time; try again")

    # It has not ended

    async def _replace(self, job: TrainJob) -> None:
        jobset = await find_jobset(self._client, job)
        attempt = await ask_for_attempt(self._client, job, jobset)
        self._context.say(f"{name_object(job.gvr, job.name)} restarted: attempt {attempt}")
        if jobset is not None and is_cluster(self._options):
            await self._delete_ignored_jobset(job, jobset)
        if self._options.wait:
            await self._await_attempt(job, jobset, attempt)

    async def _delete_ignored_jobset(self, job: TrainJob, jobset: JobSet) -> None:
        """Deletes the JobSet if upstream's controller is in charge: it recreates it, but ignores our annotation."""

        def judge(seen: Object | None) -> str | None:
            going = seen is None or JobSet(seen).uid != jobset.uid or JobSet(seen).is_deleting
            return "" if going else None

        try:
            async with asyncio.timeout(_REACTION_SECONDS):
                await wait_until(self._client, JOB_SETS, jobset.name, jobset.namespace, judge)
        except TimeoutError:
            seen = await find_jobset(self._client, job)
            if seen is not None and not seen.is_finished:
                self._context.note("the controller there does not know restarts; its JobSet is deleted instead")
                options = DeleteOptions("Foreground", None, jobset.uid, seen.resource_version)
                await self._client.delete(JOB_SETS, jobset.name, jobset.namespace, options)

    async def _await_attempt(self, job: TrainJob, before: JobSet | None, attempt: int) -> None:
        """Waits for the attempt. A new JobSet also counts, because upstream's controller does not number attempts."""
        old = "" if before is None else before.uid

        def judge(seen: Object | None) -> str | None:
            if seen is None:
                return None
            if JobSet(seen).uid != old:
                return ""
            return f"{job.name} has ended meanwhile" if JobSet(seen).is_finished else None

        wait = wait_until(self._client, JOB_SETS, job.name, job.namespace, judge)
        (problem,) = await limit([wait], self._seconds, f"attempt {attempt} of {job.name} has not begun")
        if problem:
            raise exits.Failure(problem)

    async def _replace_pods(self, job: TrainingJob) -> None:
        """For a kind without JobSets."""
        attempt = await ask_for_attempt(self._client, job, None)
        self._context.say(f"{name_object(job.gvr, job.name)} restarted: attempt {attempt}")
        if self._options.wait:
            wait = self._await_pods(job, attempt)
            (problem,) = await limit([wait], self._seconds, f"attempt {attempt} of {job.label} has not begun")
            if problem:
                raise exits.Failure(problem)

    async def _await_pods(self, job: TrainingJob, attempt: int) -> str:
        """Returns what went wrong."""
        while True:
            pods = (await read_parts(self._client, job)).pods
            if pods and all(read_first(pod) >= attempt for pod in pods):
                return ""
            if (await get_job(self._client, self._options.namespace, job.reference)).is_finished:
                return f"{job.label} has ended meanwhile"
            await SystemClock().sleep(_POLL_SECONDS)

    async def _suspend_and_resume(self, job: TrainingJob) -> None:
        """Works with training-operator too, which does not know our annotation. Pods have the same names again, so the
        old ones must be gone."""
        await set_suspended(self._client, job, True)
        try:
            problems = await wait_for(self._client, [job], SUSPENDED_GOAL, self._seconds)
            if not problems:
                await limit([self._await_no_pods(job)], self._seconds, f"the Pods of {job.label} have not ended")
        except (exits.Failure, asyncio.CancelledError):
            self._context.note(f"{job.label} stays suspended: `trainmaster resume {job.label}` starts it again")
            raise
        if problems:
            raise exits.Failure(problems[0])
        suspended = await get_job(self._client, self._options.namespace, job.reference)
        if suspended.uid == job.uid:
            await set_suspended(self._client, suspended, False)
        self._context.say(f"{name_object(job.gvr, job.name)} restarted: all its Pods are replaced")

    async def _await_no_pods(self, job: TrainingJob) -> str:
        while (await read_parts(self._client, job)).pods:
            await SystemClock().sleep(_POLL_SECONDS)
        return ""

    # It has ended

    async def _repeat(self, job: TrainingJob) -> None:
        names = [self._options.new_name] if self._options.new_name else list_new_names(job.name)
        made = await repeat(self._client, job, names)
        if made is not None:
            text = f"created: the same as {job.name}, which has ended ({job.state.word})"
            self._context.say(f"{name_object(job.gvr, made['metadata']['name'])} {text}")
            return
        taken = self._options.new_name or f"{job.name}-2 and the following"
        raise exits.Failure(f"{taken}: this name is taken; choose another with --name")
