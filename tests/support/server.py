"""A real `trainmaster up` in a process of its own, for tests that talk to it from outside.

    with start_server(tmp_path / "home") as server:
        ... server.kubeconfig, server.url, server.pid ...

Leaving the block stops it and checks that it ended tidily. `kill` ends it the hard way, and `start_server` on the same
home starts it again. Nothing of the developer's own settings reaches it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.scrub import KNOBS, scrub

STOP_SECONDS = 30


class NotStarted(AssertionError):
    """The server ended before it was ready; the text holds what it said."""


def clean_environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What `tools/scrub.py` lets through, without what only tests are told; and `extra`."""
    kept = {name: value for name, value in scrub(os.environ).items() if name not in KNOBS}
    return {**kept, **(extra or {})}


def command(*arguments: str, python: str = sys.executable) -> list[str]:
    """The command that is installed in that interpreter's environment."""
    return [python, "-P", "-m", "trainmaster.cli", *arguments]


@dataclass
class ServerProcess:
    home: Path
    process: subprocess.Popen[bytes]
    info: Mapping[str, Any]
    """server.json: pid, version, server, kubeconfig."""

    @property
    def url(self) -> str:
        return str(self.info["server"])

    @property
    def rest_url(self) -> str:
        return str(self.info["rest"]["url"])

    @property
    def pid(self) -> int:
        return int(self.info["pid"])

    @property
    def kubeconfig(self) -> Path:
        return Path(self.info["kubeconfig"])

    @property
    def ca(self) -> Path:
        return self.home / "pki" / "ca.crt"

    @property
    def log(self) -> str:
        return (self.home / "logs" / "test.log").read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: no clean-up of any kind runs."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, as `trainmaster down`; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop within {STOP_SECONDS} s:\n{self.log[-3000:]}") from None


def launch_server(
    home: Path,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    user: int | None = None,
    python: str = sys.executable,
) -> ServerProcess:
    """Starts it, as an ordinary `user` if asked, and returns when it is ready; the caller stops it."""
    logs = home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    before = [] if user is None else [sys.executable, "-m", "tests.support.as_user", str(user)]
    reader, writer = os.pipe()
    with (logs / "test.log").open("ab") as log:
        process = subprocess.Popen(
            [*before, *command("up", "--home", str(home), *flags, python=python), "--report-to", str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=clean_environ(environ),
            pass_fds=(writer,),
        )
    os.close(writer)
    with open(reader) as pipe:
        report = pipe.read()
    if report != "ready":
        code = process.wait(STOP_SECONDS)
        said = (logs / "test.log").read_text(errors="replace")[-3000:]
        raise NotStarted(f"trainmaster up ended with {code}: {report}\n{said}")
    return ServerProcess(home, process, json.loads((home / "server.json").read_text()))


@contextmanager
def start_server(
    home: Path,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    user: int | None = None,
    python: str = sys.executable,
) -> Iterator[ServerProcess]:
    server = launch_server(home, *flags, environ=environ, user=user, python=python)
    try:
        yield server
    except BaseException:
        server.kill()
        raise
    if server.process.returncode is None:
        code = server.stop()
        assert code == 0, f"the server ended with {code}:\n{server.log[-3000:]}"
