"""A process of the shim that visits a container: with its user and its namespaces, but not in its control groups.

Memory that it takes must not be the reason why the kernel kills a program that is at its limit, and a container that is
frozen can be examined. It ends by itself after a few seconds, whatever happens to it. Other processes of the Pod cannot
inspect it, because it still has the shim's memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
from typing import NoReturn

from trainmaster.shim import launch
from trainmaster.shim.attempt import Attempt
from trainmaster.shim.evidence.examining import VisitRequest, examine
from trainmaster.shim.sandbox import linux
from trainmaster.shim.sandbox.build import Sandbox

_GRACE_SECONDS = 1
"""After the time of the request, until the kernel ends the visitor."""


def fork_visitor(sandbox: Sandbox, attempt: Attempt, request: VisitRequest, output: int) -> int:
    """Its pid. It writes the result to `output`, or JSON with `error`."""
    pidfd = os.pidfd_open(attempt.pid)
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(pidfd)
        raise
    if pid == 0:
        _visit(sandbox, attempt, request, output, pidfd, parent)
    os.close(pidfd)
    return pid


def _visit(sandbox: Sandbox, attempt: Attempt, request: VisitRequest, output: int, pidfd: int, parent: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.alarm(int(request.seconds) + 1 + _GRACE_SECONDS)
        os.setsid()
        launch.reset_signals()
        linux.set_dumpable(False)
        sandbox.visit(attempt.spec, pidfd)
        linux.set_dumpable(False)
        linux.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(137)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _close_all_but({output, request.spy})
        _write(output, examine(request))
    except BaseException as error:  # noqa: BLE001 - whatever it was is the result; this process ends
        with contextlib.suppress(OSError):
            _write(output, json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}).encode())
    finally:
        os._exit(0)


def _close_all_but(kept: set[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(int(name))


def _write(output: int, content: bytes) -> None:
    os.set_blocking(output, True)
    while content:
        content = content[os.write(output, content) :]
