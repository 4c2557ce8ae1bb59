"""Suspends and resumes jobs, by changing their spec. Used by the commands suspend and resume."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import add_names, get_jobs
from trainmaster.cli.jobtable import read_shown_states
from trainmaster.cli.servers.connection import add_server, call
from trainmaster.cli.waiting import RESUMED, SUSPENDED, add_timeout, read_timeout, wait_for
from trainmaster.client.contract import Client
from trainmaster.jobs.control import set_suspended
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.queueing.names import QUEUED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    parser.add_argument("--wait", action="store_true", help="wait until it is done")
    add_timeout(parser)
    add_server(parser)


def run(options: argparse.Namespace, context: CommandContext, *, suspend: bool) -> int:
    word = "suspended" if suspend else "resumed"
    seconds = read_timeout(options)

    async def work(client: Client) -> list[str]:
        jobs = await get_jobs(client, options.namespace, options.names)
        for job in jobs:
            _check(job, suspend)
        if not suspend:
            await _check_held(client, jobs)
        for job in jobs:
            changed = await set_suspended(client, job, suspend)
            context.say(f"{job.name} {word}" + ("" if changed else " already"))
        return await wait_for(client, jobs, SUSPENDED if suspend else RESUMED, seconds) if options.wait else []

    problems = call(context, options, work)
    for problem in problems:
        context.note(f"trainmaster: {problem}")
    return exits.FAILED if problems else exits.OK


def _check(job: TrainingJob, suspend: bool) -> None:
    state, name = job.state, job.label
    if state.is_final:
        step = "" if suspend else f"; `trainmaster restart {name}` submits it again"
        raise exits.Failure(f"{name} has ended ({state.word}): there is nothing to {_verb(suspend)}{step}")


async def _check_held(client: Client, jobs: Sequence[TrainingJob]) -> None:
    """What Kueue suspends, it suspends again."""
    states = await read_shown_states(client, jobs)
    for job in jobs:
        if job.uid in states and states[job.uid].reason == QUEUED:
            why = f"{job.name} waits {states[job.uid].message}"
            look = f"`trainmaster explain {job.label} -n {job.namespace}` shows what helps"
            raise exits.Failure(f"{why}; Kueue resumes it by itself: {look}")


def _verb(suspend: bool) -> str:
    return "suspend" if suspend else "resume"
