"""`trainmaster service stopping`: drains the machine if systemd shuts it down, until the next start of the server.

The unit calls it before it stops the server. systemd's own state tells a shutdown from `systemctl stop`: during a
shutdown, and when the manager of a user ends, it is `stopping`.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.maintenance.watching import DrainWatch
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ConfigError, load_kubeconfig
from trainmaster.jobs.draining import start_drain
from trainmaster.kit.clock import SystemClock

STOPPING = "stopping"
REASON = "the machine shuts down"


def run(options: argparse.Namespace, context: CommandContext, state: str) -> int:
    """`state`: what `systemctl is-system-running` said."""
    home = context.home(options)
    if state.split()[:1] != [STOPPING]:
        context.say("the machine does not shut down: jobs go on")
        return exits.OK
    info = home.find_running()
    if info is None or not info.kubeconfig:
        context.say(f"no server runs in {home.root}")
        return exits.OK
    try:
        asyncio.run(_drain(Path(info.kubeconfig), home.history, options.save_seconds, context))
    except (StatusError, ConfigError, OSError) as error:
        raise exits.Failure(f"the jobs cannot be asked to save: {error}") from error
    return exits.OK


async def _drain(kubeconfig: Path, archive: Path, seconds: float, context: CommandContext) -> None:
    client, clock = HttpClient(load_kubeconfig([kubeconfig])), SystemClock()
    try:
        await start_drain(client, clock.now(), "", REASON, until_start=True)
        await DrainWatch(client, archive, clock, context.say).wait(seconds)
        context.say("nothing runs any more; jobs continue when the server starts again")
    finally:
        await client.close()
