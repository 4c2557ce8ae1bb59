"""A server in the background: started by `up --detach` and by `run`, stopped by `down` and `purge`.

`start` returns immediately, so that the caller can do other work; `wait` returns when the server is ready, or says why
it is not. The child reports through a pipe: one message, or none if it ended too early.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from trainmaster.app.home.folder import PRIVATE_FILE, AlreadyRunning, Home, ServerInfo
from trainmaster.cli import exits

READY = "ready"
_LOG_LINES = 15
_LOG_BYTES = 16 * 1024 * 1024


class Starting:
    """A server that is starting."""

    def __init__(self, home: Home, child: subprocess.Popen[bytes], reader: int) -> None:
        self._home = home
        self._child = child
        self._reader = reader

    def wait(self) -> ServerInfo:
        """Waits until the server is ready. Failure with its own message if it does not start."""
        with open(self._reader) as pipe:
            report = pipe.read()  # returns when the child has reported or ended
        if report == READY:
            self._child.returncode = 0  # it is meant to outlive us; prevents a ResourceWarning of Popen
            info = self._home.find_running()
            if info is None:
                raise exits.Failure(f"the server became ready and was stopped at once: see {self._home.server_log}")
            return info
        code = self._child.wait()
        raise exits.Failure(report or _explain_end(self._home, code), code if code > 0 else exits.FAILED)


def start(home: Home, environ: Mapping[str, str], flags: Sequence[str] = ()) -> Starting:
    """Starts the server of the home without waiting for it. Raises AlreadyRunning if there is one."""
    running = home.find_running()
    if running is not None:
        raise AlreadyRunning(running)
    home.prepare()
    try:
        _rotate_log(home)
        descriptor = os.open(home.server_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
    except OSError as error:
        raise home.explain(error) from None
    reader, writer = os.pipe()
    # -P: do not import from the current directory.
    command = [sys.executable, "-P", "-m", "trainmaster.cli", "up", "--home", str(home.root), *flags]
    with open(descriptor, "ab") as log:
        child = subprocess.Popen(
            [*command, "--report-to", str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.root,
            env=dict(environ),
            pass_fds=(writer,),
            start_new_session=True,
        )
    os.close(writer)
    return Starting(home, child, reader)


def _rotate_log(home: Home) -> None:
    """Keeps one older log, so that it does not grow without bound over restarts."""
    if home.server_log.exists() and home.server_log.stat().st_size > _LOG_BYTES:
        home.server_log.replace(home.server_log.with_suffix(".log.1"))


def _explain_end(home: Home, code: int) -> str:
    tail = home.server_log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return f"the server ended with status {code} before it was ready; the end of {home.server_log}:\n" + "\n".join(tail)


def stop_server(home: Home, info: ServerInfo, timeout: float) -> None:
    """Asks the process to stop and waits until it has ended. A reused pid is never signalled."""
    if not info.pid:
        raise exits.Failure(f"a process holds {home.root} and does not say which: try again in a moment")
    try:
        descriptor = os.pidfd_open(info.pid)
    except (ProcessLookupError, OverflowError):
        return
    try:
        # The descriptor refers to one process from now on. If the home is still locked by that pid, it is the server.
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
