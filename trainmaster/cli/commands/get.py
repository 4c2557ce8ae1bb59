"""Show TrainJobs by name: one row each, or the whole object with -o yaml or -o json.

  trainmaster get my-job -o yaml
  trainmaster get a b c

`trainmaster describe` shows the details of one job; `trainmaster list` lists all.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import exits
from trainmaster.cli.context import OBJECT_FORMS, CommandContext, add_output
from trainmaster.cli.jobs import add_names, get_jobs
from trainmaster.cli.jobtable import count_shown, read_shown_states, show
from trainmaster.cli.servers.connection import add_server, call
from trainmaster.client.contract import Client
from trainmaster.jobs.models.training import TrainingJob, TrainingState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    add_server(parser)
    add_output(parser, OBJECT_FORMS)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    async def work(client: Client) -> tuple[list[TrainingJob], dict[str, int], dict[str, TrainingState]]:
        jobs = await get_jobs(client, options.namespace, options.names)
        return jobs, await count_shown(client, options, jobs), await read_shown_states(client, jobs)

    found, nodes, states = call(context, options, work)
    show(context, options, found, nodes, states, single=len(found) == 1)
    return exits.OK
