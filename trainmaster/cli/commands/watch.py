"""Show the live view of a job, as `run` does: state and reason, ranks, progress, logs. Returns the job's exit code.

For a job that was detached or submitted in another way. Works on any cluster (--kubeconfig).
"""

from __future__ import annotations

import argparse
import asyncio

from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import explain_missing, get_job
from trainmaster.cli.servers.connection import add_server, explain, get_server, is_cluster
from trainmaster.cli.servers.flags import add_kind, read_job
from trainmaster.cli.view.following import FollowedJob, show
from trainmaster.cli.view.sharing import SharingClient
from trainmaster.kit.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server(parser)
    parser.add_argument("name", type=read_job, metavar="JOB", help="name of the TrainJob, or KIND/NAME")
    add_kind(parser)
    parser.add_argument(
        "-o", "--output-format", choices=("text", "json"), default="text", help="json: one object per line"
    )
    exits.keep_apart(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    return asyncio.run(_watch(options, context))


async def _watch(options: argparse.Namespace, context: CommandContext) -> int:
    try:
        config = get_server(context, options)
    except exits.Failure as error:
        raise exits.Failure(str(error), exits.RUN_NO_SERVER) from None
    client = SharingClient(config, carried=not is_cluster(options))
    home = None if is_cluster(options) else context.home(options)
    try:
        found = await get_job(client, options.namespace, options.name)
        job = FollowedJob(options, context, client, SystemClock(), dict(found.raw), home)
        return await show(job, options.output_format, fresh=False)
    except exits.MissingJob as missing:
        raise exits.Failure(str(explain_missing(options, context, missing)), exits.RUN_USAGE) from None
    except StatusError as error:
        raise exits.Failure(str(explain(error, config, options)), exits.RUN_NO_SERVER) from None
    finally:
        await client.close()
