"""End the drain of this machine: the jobs that it suspended continue from their checkpoints, in their old places.

Jobs that a person has suspended stay suspended. A machine that was only cordoned takes Pods again, too.

Exit codes: 0 success, 3 no server.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.cli.maintenance.watching import list_labels, refuse_cluster
from trainmaster.cli.servers.connection import add_cluster, call
from trainmaster.client.contract import Client
from trainmaster.jobs.drain_progress import read_drain
from trainmaster.jobs.draining import end_drain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_cluster(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    refuse_cluster(options, "undrain")

    async def work(client: Client) -> None:
        suspended = (await read_drain(client)).suspended
        drain, is_changed = await end_drain(client)
        if drain is not None:
            context.say(f"the machine was {drain.describe()} and takes jobs again")
        elif is_changed:
            context.say("the machine was cordoned and takes jobs again")
        else:
            context.say("the machine is not drained")
        if suspended:
            context.say(f"resumed: {list_labels(suspended)}")

    call(context, options, work)
    return exits.OK
