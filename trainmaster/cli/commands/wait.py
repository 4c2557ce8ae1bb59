"""Wait until TrainJobs are in a state; the exit code is the result.

  trainmaster wait my-job                               until it is complete
  trainmaster wait a b --for finished --timeout 2h      until both have finished, in any state

Continues across restarts of the server, and returns immediately if a job can no longer reach the state.

Exit codes: 0 all jobs are in the state, 1 a job ended in another state or was deleted, 6 timeout, 7 no such TrainJob.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import add_names, get_jobs
from trainmaster.cli.servers.connection import add_server, call
from trainmaster.cli.waiting import COMPLETE, GOALS, add_timeout, read_goal, read_timeout, wait_for
from trainmaster.client.contract import Client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    parser.add_argument(
        "--for",
        dest="goal",
        type=read_goal,
        choices=GOALS,
        default=COMPLETE,
        help="state to wait for (default: complete); Succeeded, as v1 jobs call it, is complete",
    )
    add_timeout(parser)
    add_server(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    seconds = read_timeout(options)

    async def work(client: Client) -> list[str]:
        jobs = await get_jobs(client, options.namespace, options.names)
        for job in jobs:
            state = job.state
            why = f": {state.sentence}" if state.sentence and not state.is_final else ""
            context.note(f"{job.name} is {state.word}{why}")
        return await wait_for(client, jobs, options.goal, seconds)

    problems = call(context, options, work)
    for problem in problems:
        context.note(f"trainmaster: {problem}; `trainmaster logs` and `trainmaster describe` say more")
    if not problems:
        context.say(f"{', '.join(options.names)}: {options.goal}")
    return exits.FAILED if problems else exits.OK
