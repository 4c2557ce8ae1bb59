"""The server for `trainmaster run`: the one of the home, started if necessary, or a given cluster.

This module imports little, so that a server starts before the client is loaded. Every failure is one sentence with a
command that helps, and the exit code RUN_NO_SERVER.
"""

from __future__ import annotations

import argparse
import errno
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.app.home.folder import AlreadyRunning, Home, HomeError, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.servers.detached import Starting, start
from trainmaster.cli.servers.flags import is_cluster
from trainmaster.version import __version__

if TYPE_CHECKING:
    from trainmaster.client.kubeconfig import ClusterConfig
    from trainmaster.kit.clock import Clock

_STARTING_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_DISK = 70
"""The exit code of a server whose disk failed or is full (docs/store.md)."""


class StartingServer:
    """A server that may still be starting. `find` waits for it, so that the caller can do other work before."""

    def __init__(self, context: CommandContext, options: argparse.Namespace) -> None:
        self._context = context
        self._options = options
        self._starting: Starting | None = None
        self.home: Home | None = None
        """None for a cluster."""
        if is_cluster(options):
            return
        with explaining_errors(self._context.home(options)) as home:
            self.home = home
            info = home.find_running()
            if info is None:
                self._start(home)
            elif info.server:
                check_version(info, home)

    @property
    def is_starting(self) -> bool:
        return self._starting is not None

    def _start(self, home: Home) -> None:
        try:
            self._starting = start(home, self._context.environ)
        except AlreadyRunning:
            return  # another process has started it

    async def find(self, clock: Clock) -> ClusterConfig:
        # Imported here so that the server starts before the client is loaded.
        from trainmaster.cli.servers.connection import get_server
        from trainmaster.client.kubeconfig import ConfigError, load_kubeconfig

        home = self.home
        if home is None:
            try:
                return get_server(self._context, self._options)
            except exits.Failure as error:
                raise exits.Failure(str(error), exits.RUN_NO_SERVER) from None
        with explaining_errors(home):
            info = self._wait() if self._starting is not None else home.find_running()
            deadline = clock.monotonic() + _STARTING_SECONDS
            while info is not None and not info.kubeconfig and clock.monotonic() < deadline:
                # Started by another process, which does not tell us when it is ready.
                await clock.sleep(_LOOK_SECONDS)
                info = home.find_running()
            if info is None or not info.kubeconfig:
                text = f"the server of {home.root} does not become ready: the end of {home.server_log} says why"
                raise exits.Failure(text, exits.RUN_NO_SERVER)
            check_version(info, home)
            try:
                config = load_kubeconfig([Path(info.kubeconfig)])
            except ConfigError as error:
                raise HomeError(str(error)) from None
        if self._options.namespace is None:
            self._options.namespace = config.namespace
        return config

    def _wait(self) -> ServerInfo:
        assert self._starting is not None
        try:
            return self._starting.wait()
        except exits.Failure as error:
            if error.code == exits.ALREADY_RUNNING and self.home is not None:
                info = self.home.find_running()
                if info is not None:
                    return info
            raise


@contextmanager
def explaining_errors(home: Home) -> Iterator[Home]:
    """Turns errors of the home, its disk or its settings into a Failure."""
    try:
        yield home
    except exits.Failure as error:
        raise exits.Failure(_explain_start(error, home), exits.RUN_NO_SERVER) from None
    except HomeError as error:
        raise exits.Failure(str(error), exits.RUN_NO_SERVER) from None
    except OSError as error:
        what = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another with --home"
        text = f"the home {home.root} cannot be used: {error.strerror}: {what}"
        raise exits.Failure(text, exits.RUN_NO_SERVER) from None


def explain_ended(home: Home | None) -> str:
    """Explains why a server that no longer answers has ended; "" if it is still running."""
    if home is None or home.find_running() is not None:
        return ""
    doctor = shlex.join(["trainmaster", "doctor", "--home", str(home.root)])
    return f"the server of {home.root} has ended: the end of {home.server_log} says why, `{doctor}` what is wrong here"


def _explain_start(error: exits.Failure, home: Home) -> str:
    if error.code == _DISK:
        return f"the disk below {home.root} is full or broken: free some space, or choose another home with --home"
    text = f"no server could be started: {error}"
    if str(error).startswith("the server of "):
        text = str(error)  # it runs another version
    if " port " in text:
        text += f" of `trainmaster up --detach --home {home.root}`, or change server.port in {home.config}"
    return text


def check_version(info: ServerInfo, home: Home) -> None:
    if info.version != __version__:
        text = (
            f"the server of {home.root} is trainmaster {info.version}, and this is {__version__}: restart "
            f"it with `trainmaster down --home {home.root} && trainmaster up --detach --home {home.root}` "
            "(jobs go on meanwhile)"
        )
        raise exits.Failure(text, exits.RUN_NO_SERVER)
