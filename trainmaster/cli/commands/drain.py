"""Drain this machine for maintenance: all jobs are asked to save and stop, and nothing starts until `undrain`.

  trainmaster drain --reason "new kernel"
  trainmaster drain --timeout 10m
  trainmaster drain --no-wait        return at once; the server goes on

The server does the work, so the command may be interrupted, and continues when called again. The state survives
restarts of the server and of the machine. Jobs come back where they were: `trainmaster undrain`.

Exit codes: 0 nothing runs any more (or --no-wait), 3 no server, 6 timed out (the machine stays drained).
"""

from __future__ import annotations

import argparse

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.cli.maintenance.watching import DrainWatch, find_user, list_labels, refuse_cluster
from trainmaster.cli.servers.connection import add_cluster, call
from trainmaster.cli.waiting import add_timeout, read_timeout
from trainmaster.client.contract import Client
from trainmaster.jobs.draining import LONGEST_REASON, start_drain
from trainmaster.kit.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="", metavar="TEXT", help="shown to everybody whose job waits")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until nothing runs any more")
    add_timeout(parser)
    add_home(parser)
    add_cluster(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    refuse_cluster(options, "drain")
    seconds = read_timeout(options)
    if len(options.reason) > LONGEST_REASON or not options.reason.isprintable():
        raise exits.Failure(f"--reason: at most {LONGEST_REASON} characters in one line", exits.USAGE)
    clock = SystemClock()

    async def work(client: Client) -> None:
        drain, is_new = await start_drain(client, clock.now(), find_user(), options.reason)
        begun = "drained" if is_new else f"already {drain.describe()}"
        context.say(f"the machine is {begun}; new jobs wait until `trainmaster undrain`")
        if options.no_wait:
            return
        state = await DrainWatch(client, context.home(options).history, clock, context.say).wait(seconds)
        names = f"; `trainmaster undrain` resumes {list_labels(state.suspended)}" if state.suspended else ""
        context.say(f"nothing runs any more{names}")

    call(context, options, work)
    return exits.OK
