"""Stop the server of this home and wait until it has ended.

Running Pods live on, and the next `trainmaster up` takes them over. With --stop-jobs every job is suspended and its
Pods are stopped first; resume one later with spec.suspend: false.
"""

from __future__ import annotations

import argparse
import os
import select
import signal

from trainmaster.app.home import Home, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    parser.add_argument("--stop-jobs", action="store_true", help="suspend all jobs and stop their Pods first")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait (default 60)")


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    info = home.find_running()
    if info is None:
        context.say(f"no server runs in {home.root}")
        return exits.OK
    if options.stop_jobs:
        # Loaded by name and only here: talking to the API needs more than stopping a process does.
        from trainmaster.cli.stopping import stop_jobs

        stop_jobs(info, options.timeout, context)
    stop_server(home, info, options.timeout)
    left = (
        "" if options.stop_jobs else "; Pods that were running live on, and the next `trainmaster up` takes them over"
    )
    context.say(f"stopped the server of {home.root}{left}")
    return exits.OK


def stop_server(home: Home, info: ServerInfo, timeout: float) -> None:
    """Asks the process to stop and waits for its end. A recycled pid is never signalled."""
    if not info.pid:
        raise exits.Failure(f"a process holds {home.root} and does not say which: try again in a moment")
    try:
        descriptor = os.pidfd_open(info.pid)
    except (ProcessLookupError, OverflowError):
        return
    try:
        # The descriptor now names one process for good. If the home is still held under that pid, it is the server.
        current = home.find_running()
        if current is None or current.pid != info.pid:
            return
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        ended, _, _ = select.select([descriptor], [], [], timeout)
    except PermissionError:
        raise exits.Failure(f"process {info.pid} belongs to another user: stop it as that user") from None
    finally:
        os.close(descriptor)
    if not ended:
        raise exits.Failure(
            f"process {info.pid} has not ended within {timeout:g} s: see {home.server_log} or raise --timeout"
        )
