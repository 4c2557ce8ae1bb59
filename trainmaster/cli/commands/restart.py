"""Restart TrainJobs. One that runs begins its next attempt; one that has ended is submitted again under a new name.

  trainmaster restart my-job                 running: its processes are stopped and started anew
  trainmaster restart my-job --name again    ended: the same TrainJob as `again` (default: my-job-2, my-job-3, ...)

A running job keeps its name, its record and the count of its attempts; programs get the time to save that their Pods
grant, and go on from a checkpoint if they load one. Its budget of restarts begins anew, its deadline does not. A job
that has ended stays as it is: the new one says in an annotation which one it repeats. Asking twice does no harm.

Exit codes: 0 done, 1 it cannot be restarted, 6 timed out (--wait), 7 no such TrainJob.
"""

from __future__ import annotations

import argparse
import asyncio

from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.api.status import Conflict
from trainmaster.api.training.ends import is_finished
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import add_names, get_trainjob
from trainmaster.cli.output import name_object
from trainmaster.cli.servers.connection import add_server, call, is_cluster
from trainmaster.cli.waiting import add_timeout, limit, read_timeout, wait_until
from trainmaster.client.contract import Client, DeleteOptions
from trainmaster.jobs.control import ask_for_attempt, list_new_names, repeat
from trainmaster.jobs.lookups import find_jobset
from trainmaster.jobs.models.trainjobs import DELETING, SUSPENDED, TrainJob

_TRIES = 5
_REACTION_SECONDS = 10.0
"""After that somebody else's controller is taken to be in charge, which does not know our annotation."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    parser.add_argument("--name", default="", dest="new_name", metavar="NAME", help="of the new one, if it has ended")
    parser.add_argument("--wait", action="store_true", help="return when the next attempt has begun")
    add_timeout(parser)
    add_server(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.new_name and len(options.names) > 1:
        raise exits.Failure("--name is for one TrainJob", exits.USAGE)
    seconds = read_timeout(options)

    async def work(client: Client) -> None:
        jobs = [await get_trainjob(client, options.namespace, name) for name in dict.fromkeys(options.names)]
        for job in jobs:
            _check(job, options)
        for job in jobs:
            await Restart(client, context, options, seconds).run(job)

    call(context, options, work)
    return exits.OK


def _check(job: Object, options: argparse.Namespace) -> None:
    name, state = job["metadata"]["name"], TrainJob(job).state
    if state.word == DELETING:
        raise exits.Failure(f"{name} is being deleted; `trainmaster wait {name} --for deleted`, then submit it again")
    if (state.word == SUSPENDED or job["spec"].get("suspend")) and not is_finished(job):
        raise exits.Failure(f"{name} is suspended: `trainmaster resume {name}` starts its processes anew")
    if options.new_name and not is_finished(job):
        raise exits.Failure(f"{name} has not ended and keeps its name: leave out --name", exits.USAGE)


class Restart:
    def __init__(
        self, client: Client, context: CommandContext, options: argparse.Namespace, seconds: float | None
    ) -> None:
        self._client, self._context, self._options = client, context, options
        self._seconds = seconds

    async def run(self, job: Object) -> None:
        """A job that changes while it is looked at is looked at again: it may have ended."""
        for _ in range(_TRIES):
            if is_finished(job):
                await self._repeat(job)
                return
            try:
                await self._replace(job)
            except Conflict:
                job = await get_trainjob(self._client, self._options.namespace, job["metadata"]["name"])
            else:
                return
        raise exits.Failure(f"{job['metadata']['name']} changes all the time; try again")

    # It has not ended

    async def _replace(self, job: Object) -> None:
        meta = job["metadata"]
        jobset = await find_jobset(self._client, job)
        attempt = await ask_for_attempt(self._client, job, jobset)
        self._context.say(f"{name_object(TRAIN_JOBS, meta['name'])} restarted: attempt {attempt}")
        if jobset is not None and is_cluster(self._options):
            await self._see_to_it(job, jobset)
        if self._options.wait:
            await self._await_attempt(job, jobset, attempt)

    async def _see_to_it(self, job: Object, jobset: Object) -> None:
        """Upstream's controller makes a JobSet anew that is gone, and does not know our annotation."""
        meta = jobset["metadata"]

        def judge(seen: Object | None) -> str | None:
            going = seen is None or seen["metadata"]["uid"] != meta["uid"] or "deletionTimestamp" in seen["metadata"]
            return "" if going else None

        try:
            async with asyncio.timeout(_REACTION_SECONDS):
                await wait_until(self._client, JOB_SETS, meta["name"], meta["namespace"], judge)
        except TimeoutError:
            seen = await find_jobset(self._client, job)
            if seen is not None and not _has_ended(seen):
                self._context.note("the controller there does not know restarts; its JobSet is deleted instead")
                options = DeleteOptions("Foreground", None, meta["uid"], seen["metadata"]["resourceVersion"])
                await self._client.delete(JOB_SETS, meta["name"], meta["namespace"], options)

    async def _await_attempt(self, job: Object, before: Object | None, attempt: int) -> None:
        """Another JobSet means another attempt, whoever made it; upstream's controller does not number them."""
        meta = job["metadata"]
        old = "" if before is None else before["metadata"]["uid"]

        def judge(jobset: Object | None) -> str | None:
            if jobset is None:
                return None
            if jobset["metadata"]["uid"] != old:
                return ""
            return f"{meta['name']} has ended meanwhile" if _has_ended(jobset) else None

        wait = wait_until(self._client, JOB_SETS, meta["name"], meta["namespace"], judge)
        (problem,) = await limit([wait], self._seconds, f"attempt {attempt} of {meta['name']} has not begun")
        if problem:
            raise exits.Failure(problem)

    # It has ended

    async def _repeat(self, job: Object) -> None:
        meta = job["metadata"]
        names = [self._options.new_name] if self._options.new_name else list_new_names(meta["name"])
        made = await repeat(self._client, job, names)
        if made is not None:
            text = f"created: the same as {meta['name']}, which has ended ({TrainJob(job).state.word})"
            self._context.say(f"{name_object(TRAIN_JOBS, made['metadata']['name'])} {text}")
            return
        taken = self._options.new_name or f"{meta['name']}-2 and the following"
        raise exits.Failure(f"{taken}: this name is taken; choose another with --name")


def _has_ended(jobset: Object) -> bool:
    conditions = list_conditions(jobset)
    return is_true(conditions, "Completed") or is_true(conditions, "Failed")
