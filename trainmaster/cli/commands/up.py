"""Start the control plane of a home: the store, the Kubernetes API over TLS, the controllers and the node.

In the foreground it runs until Ctrl-C or SIGTERM. Pods continue when it stops, and the next start adopts them. With
--detach it returns once the server is ready, and the log is logs/server.log in the home.
"""

from __future__ import annotations

import argparse
import gc
import os
import shlex

from trainmaster.app.home.folder import ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.cli.flags import add_settings, load_settings, repeat_flags
from trainmaster.cli.servers import detached
from trainmaster.kit.late_methods import late_methods


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_settings(parser)
    parser.add_argument("-d", "--detach", action="store_true", help="run in the background; return when it is ready")
    # Used by the background process to report to the waiting one that it is ready, or why it is not.
    parser.add_argument("--report-to", type=int, metavar="FD", help=argparse.SUPPRESS)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    effective = load_settings(options, context, home)  # reports mistakes before anything is started
    if options.detach:
        _announce(context, detached.start(home, context.environ, repeat_flags(options)).wait())
        return exits.OK
    # Imported here because the server would slow down every other command. Garbage collection is off meanwhile, which
    # saves a twentieth of the time; `embedded` turns it on when the server is ready.
    gc.disable()
    with late_methods():
        from trainmaster.app import embedded
    reporter = _Reporter(options.report_to)

    def ready(info: ServerInfo, notes: list[str]) -> None:
        for note in notes:
            context.note(note)
        _announce(context, info)
        reporter.send(detached.READY)

    try:
        embedded.run(home, effective, context.environ, ready)
    except BaseException as error:
        reporter.send(str(error))
        raise
    finally:
        reporter.close()
    context.say("stopped; Pods that were running live on, and the next `trainmaster up` takes them over")
    return exits.OK


class _Reporter:
    """Sends one message through a pipe to the waiting process, if there is one."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def send(self, text: str) -> None:
        if self._descriptor is not None:
            os.write(self._descriptor, text.encode())
            self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _announce(context: CommandContext, info: ServerInfo) -> None:
    context.say(f"trainmaster {info.version} serves {info.server} (pid {info.pid})")
    context.say(f"kubeconfig: {info.kubeconfig}")
    context.say(f"try: kubectl --kubeconfig {shlex.quote(info.kubeconfig)} get namespaces")
