"""Stop the server of this home and wait until it has ended.

Running Pods continue, and the next `trainmaster up` adopts them. With --stop-jobs every job is suspended and its
Pods are stopped first; resume one later with spec.suspend: false.
"""

from __future__ import annotations

import argparse

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.cli.servers.detached import stop_server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    parser.add_argument("--stop-jobs", action="store_true", help="suspend all jobs and stop their Pods first")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="seconds to wait (default 60)")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    info = home.find_running()
    if info is None:
        context.say(f"no server runs in {home.root}")
        return exits.OK
    if options.stop_jobs:
        # Imported here because only --stop-jobs needs an API client.
        from trainmaster.cli.stopping import stop_jobs

        stop_jobs(info, options.timeout, context)
    stop_server(home, info, options.timeout)
    left = (
        "" if options.stop_jobs else "; Pods that were running live on, and the next `trainmaster up` takes them over"
    )
    context.say(f"stopped the server of {home.root}{left}")
    return exits.OK
