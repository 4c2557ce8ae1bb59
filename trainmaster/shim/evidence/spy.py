"""Runs py-spy, which reads the Python stacks of a process out of its memory, for several processes at a time.

Without stopping them (`--nonblocking`): the process is not traced, its memory is only read (process_vm_readv), so
whatever happens to py-spy, the program does not notice. A stack that changes while it is read may be wrong or
unreadable; then it is read again. The program is executed from a descriptor, because the container does not see it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
from collections.abc import Sequence
from typing import NoReturn

from trainmaster.shim.evidence.proc import Facts
from trainmaster.shim.loop import get_monotonic
from trainmaster.shim.processes import kill_quietly
from trainmaster.shim.sandbox.linux import set_parent_death_signal

TRIES = 3
_MOST_OUTPUT = 4 << 20
_MOST_MEMORY = 1 << 30
_AT_ONCE = 4
_REFUSALS = ("Permission denied", "Operation not permitted", "EPERM", "os error 1)", "os error 13")
REFUSED = "the kernel does not permit it"


class SpyRun:
    """One run of py-spy for one process."""

    def __init__(self, program: int, pid: int) -> None:
        self.pid = pid
        self.error = ""
        self.threads: list[Facts] = []
        self._output = b""
        self._tries = 0
        self._child = 0
        self.pipe = -1
        self._begin(program)

    def _begin(self, program: int) -> None:
        self._tries += 1
        self._output = b""
        self.pipe, theirs = os.pipe2(os.O_CLOEXEC)
        self._child = os.fork()
        if self._child == 0:
            _execute(program, self.pid, theirs)
        os.close(theirs)

    def read(self, program: int) -> bool:
        """Reads what is there. False when it has ended, with a result or an error."""
        piece = os.read(self.pipe, 1 << 16)
        self._output += piece
        if piece and len(self._output) <= _MOST_OUTPUT:
            return True
        self.stop()
        try:
            self.threads = _read_threads(json.loads(self._output))
            self.error = ""
        except (ValueError, KeyError, TypeError, AttributeError):
            self.error = explain(self._output.decode(errors="replace"))
        if self.error and self.error != REFUSED and self._tries < TRIES and os.path.exists(f"/proc/{self.pid}"):
            self._begin(program)
            return True
        return False

    def stop(self) -> None:
        """Ends it, and waits for it."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1
            kill_quietly(self._child)
            os.waitpid(self._child, 0)


def read_stacks(program: int, pids: Sequence[int], until: float) -> dict[int, SpyRun]:
    """Of the processes in order, as far as the time is enough: `until` is a moment of the monotonic clock. Those that
    were not reached are missing."""
    done: dict[int, SpyRun] = {}
    running: dict[int, SpyRun] = {}
    todo = list(pids)
    try:
        while (todo or running) and get_monotonic() < until:
            while todo and len(running) < _AT_ONCE:
                run = SpyRun(program, todo.pop(0))
                running[run.pid] = run
            left = max(0.0, until - get_monotonic())
            ready, _, _ = select.select([run.pipe for run in running.values()], [], [], left)
            for run in [run for run in running.values() if run.pipe in ready]:
                if not run.read(program):
                    done[run.pid] = running.pop(run.pid)
    finally:
        for run in running.values():
            run.stop()
            run.error = "there was no time for it"
            done[run.pid] = run
    return done


def explain(output: str) -> str:
    """Why there are no stacks, from what py-spy printed."""
    if any(word in output for word in _REFUSALS):
        return REFUSED
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith("Error:")), lines[0] if lines else "it printed nothing")
    return f"py-spy cannot read it: {first.removeprefix('Error:').strip()[:200]}"


def _execute(program: int, pid: int, output: int) -> NoReturn:
    """In the child."""
    try:
        argv = ["py-spy", "dump", "--json", "--nonblocking", "--full-filenames", "--pid", str(pid)]
        set_parent_death_signal(signal.SIGKILL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        # It needs none, and a program of the Pod that got hold of it could start nothing outside of its control groups.
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.execve(program, argv, {})
    except OSError as error:
        os.write(output, f"Error: it cannot be executed: {error.strerror}".encode())
    finally:
        os._exit(127)


def _read_threads(found: list[Facts]) -> list[Facts]:
    return [
        {
            "name": str(thread["thread_name"] or ""),
            "tid": int(thread["os_thread_id"] or 0),
            "active": bool(thread["active"]),
            "gil": bool(thread["owns_gil"]),
            "frames": [
                {"function": str(frame["name"]), "file": str(frame["filename"]), "line": int(frame["line"])}
                for frame in thread["frames"]
            ],
        }
        for thread in found
    ]
