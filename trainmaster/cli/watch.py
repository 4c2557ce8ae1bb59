"""Show a job live, as `run` does: state and reason, ranks, progress, what it prints. Ends with its exit code.

For a job that was detached, or that somebody submitted in another way. Works on any cluster (--kubeconfig).
"""

from __future__ import annotations

import argparse
import asyncio

from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import Context
from trainmaster.cli.server import add_server, explain, find_server, is_cluster
from trainmaster.cli.view.following import Job, show
from trainmaster.client.http import HttpClient
from trainmaster.kit.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server(parser)
    parser.add_argument("name", metavar="JOB", help="name of the TrainJob")
    parser.add_argument(
        "-o", "--output-format", choices=("text", "json"), default="text", help="json: an object a line"
    )


def run(options: argparse.Namespace, context: Context) -> int:
    return asyncio.run(_watch(options, context))


async def _watch(options: argparse.Namespace, context: Context) -> int:
    config = find_server(context, options)
    client = HttpClient(config)
    home = None if is_cluster(options) else context.home(options)
    try:
        trainjob = await client.get(TRAIN_JOBS, options.name, options.namespace)
        job = Job(options, context, client, SystemClock(), trainjob, home)
        return await show(job, options.output_format, fresh=False)
    except NotFound:
        text = f"there is no job {options.name!r} in namespace {options.namespace}; see `trainmaster list`"
        raise exits.Failure(text, exits.NOT_FOUND) from None
    except StatusError as error:
        raise explain(error, config, options) from None
    finally:
        await client.close()
