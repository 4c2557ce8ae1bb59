"""The child processes of one test control plane: start, wait until ready, kill.

They are killed rather than asked: their state lies in a folder that is deleted next, and a polite end takes seconds.
Should the test run itself be killed, Linux kills them too (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02

REPLACED: set[int] = set()
"""Processes that a test started in place of one of a wider fixture; that fixture stops them (tests/conftest.py)."""


class NotReady(AssertionError):
    """A program ended or did not become ready; the text holds the end of its log."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _answers(url: str, token: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # scheduler and controller manager sign their own certificates
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context):
            return True
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass
    return False


class Processes:
    def __init__(self, work: Path) -> None:
        self.work = work
        self.before: Sequence[str] = ()
        """Stands before every command; a cluster with a real node has a network of its own."""
        self.ready_after: dict[str, float] = {}
        """Program -> seconds from the first start until it was ready."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._began: float | None = None

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._running.items()}

    def start(
        self,
        name: str,
        program: Path,
        arguments: list[str],
        environ: Mapping[str, str] | None = None,
        *,
        before: Sequence[str] | None = None,
        prepare: Callable[[], None] = die_with_parent,
    ) -> None:
        """`before` in place of our own; `prepare` runs in the child first, and has it end with us."""
        if self._began is None:
            self._began = time.monotonic()
        with self.log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [*(self.before if before is None else before), program, *arguments],
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environ or {})},
                preexec_fn=prepare,
            )

    def log(self, name: str) -> Path:
        return self.work / f"{name}.log"

    def wait_ready(self, name: str, url: str, *, token: str = "", seconds: float = 90) -> None:
        """Asks a health address until it answers 2xx."""
        self.wait_until(name, lambda: _answers(url, token), what=f" at {url}", seconds=seconds)

    def wait_until(self, name: str, is_ready: Callable[[], bool], *, what: str = "", seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._running[name].poll() is None:
            if is_ready():
                self.ready_after[name] = round(time.monotonic() - (self._began or 0.0), 3)
                return
            time.sleep(_POLL_SECONDS)
        tail = self.log(name).read_text(errors="replace")[-3000:]
        raise NotReady(f"{name} did not become ready{what}; end of its log:\n{tail}")

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def mark_replaced(self, name: str) -> None:
        REPLACED.add(self._running[name].pid)

    def stop(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()
