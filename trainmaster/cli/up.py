"""Start the control plane of a home: the store, the Kubernetes API over TLS, the controllers and the node.

In the foreground it runs until Ctrl-C or SIGTERM. Running Pods live on when it stops, and the next start takes them
over. With --detach it returns once the server is ready and writes its log to logs/server.log in the home.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import subprocess
import sys

from trainmaster.app.home import PRIVATE_FILE, AlreadyRunning, Home, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import Context, add_home
from trainmaster.cli.flags import add_settings, load_settings, repeat_flags

_READY = "ready"
_LOG_LINES = 15
_LOG_BYTES = 16 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_settings(parser)
    parser.add_argument("-d", "--detach", action="store_true", help="run in the background; return when it is ready")
    # How the background process tells the waiting one that it is ready, or why it is not.
    parser.add_argument("--report-to", type=int, metavar="FD", help=argparse.SUPPRESS)


def run(options: argparse.Namespace, context: Context) -> int:
    home = context.home(options)
    effective = load_settings(options, context, home)  # before anything is started: a typing error is told at once
    if options.detach:
        return _run_detached(options, context, home)
    # Loaded by name and only here: a server's imports would slow down every other command.
    embedded = importlib.import_module("trainmaster.app.embedded")
    reporter = _Reporter(options.report_to)

    def ready(info: ServerInfo, notes: list[str]) -> None:
        for note in notes:
            context.note(note)
        _announce(context, info)
        reporter.send(_READY)

    try:
        embedded.run(home, effective.settings, context.environ, ready)
    except BaseException as error:
        reporter.send(str(error))
        raise
    finally:
        reporter.close()
    context.say("stopped; Pods that were running live on, and the next `trainmaster up` takes them over")
    return exits.OK


class _Reporter:
    """One message through a pipe to the process that waits, if there is one."""

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


def _announce(context: Context, info: ServerInfo) -> None:
    context.say(f"trainmaster {info.version} serves {info.server} (pid {info.pid})")
    context.say(f"kubeconfig: {info.kubeconfig}")
    context.say(f"try: kubectl --kubeconfig {shlex.quote(info.kubeconfig)} get namespaces")


def _run_detached(options: argparse.Namespace, context: Context, home: Home) -> int:
    running = home.find_running()
    if running is not None:
        raise AlreadyRunning(running)
    home.prepare()
    _rotate_log(home)
    reader, writer = os.pipe()
    # -P: the directory we stand in is not a place to import from.
    command = [sys.executable, "-P", "-m", "trainmaster.cli", "up", "--home", str(home.root), *repeat_flags(options)]
    with open(os.open(home.server_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE), "ab") as log:
        child = subprocess.Popen(
            [*command, "--report-to", str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.root,
            env=dict(context.environ),
            pass_fds=(writer,),
            start_new_session=True,
        )
    os.close(writer)
    with open(reader) as pipe:
        report = pipe.read()  # ends when the child has reported, or is gone
    if report == _READY:
        child.returncode = 0  # it lives on by design; without this Popen warns that nobody waits for it
        info = home.find_running()
        if info is None:
            raise exits.Failure(f"the server became ready and was stopped at once: see {home.server_log}")
        _announce(context, info)
        return exits.OK
    code = child.wait()
    raise exits.Failure(report or _explain_end(home, code), code if code > 0 else exits.FAILED)


def _rotate_log(home: Home) -> None:
    """Keeps one older log, so that restarts do not make it grow for ever."""
    if home.server_log.exists() and home.server_log.stat().st_size > _LOG_BYTES:
        home.server_log.replace(home.server_log.with_suffix(".log.1"))


def _explain_end(home: Home, code: int) -> str:
    tail = home.server_log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return f"the server ended with status {code} before it was ready; the end of {home.server_log}:\n" + "\n".join(tail)
