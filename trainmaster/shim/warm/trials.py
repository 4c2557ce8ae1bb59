"""Imports in advance what earlier programs of an environment have imported, as far as that is safe.

A package is first imported in a child of the warm zygote, which then examines itself: an import with side effects
(`effects`) or output would leave all programs in a state that differs from that of a new process, or that cannot be
forked; one that reads a variable which differs between Pods would be right for one Pod only. Such a module is left out,
with those of its package that were imported after it; the programs import them themselves. The child also takes the
damage of imports that exit, hang or crash.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from trainmaster.shim.loop import get_monotonic
from trainmaster.shim.processes import kill_quietly
from trainmaster.shim.sandbox import linux
from trainmaster.shim.warm import conditions, effects

_ALL, _EACH, _PACKAGE, _TOTAL = 60.0, 20.0, 40.0, 120.0
"""Seconds for all packages in one trial, for one trial of a package, for all of its trials, and for everything."""
_LOOK_AGAIN = 0.05


def import_in_advance(
    modules: Sequence[str], varying: Collection[str], reads: Collection[str]
) -> tuple[list[str], list[str]]:
    """(packages of which something is imported now, what is left out with the reason). Order matters: modules are
    imported in the order in which the programs did it.

    `varying`: variables that differ between Pods; `reads`: those read so far, which grows while modules are imported.
    """
    examine = partial(find_problem, varying=varying, reads=reads)
    packages: dict[str, list[str]] = {}
    for name in modules:
        packages.setdefault(name.partition(".")[0], []).append(name)
    end = get_monotonic() + _TOTAL
    if not examine(list(modules), _ALL):
        _import_all(modules)
        return list(packages), []
    done: list[str] = []
    left_out: list[str] = []
    for package, members in packages.items():
        count, problem = _import_safe(members, examine, end)
        if count:
            done.append(package)
        if problem:
            left_out.append(f"{members[count]} ({problem})")
    return done, left_out


def _import_safe(modules: Sequence[str], examine: Callable[[Sequence[str], float], str], end: float) -> tuple[int, str]:
    """Imports the first modules, as many as are safe: (their number, what is wrong with the next one)."""
    safe, unsafe, count, problem = 0, len(modules) + 1, len(modules), ""
    end = min(end, get_monotonic() + _PACKAGE)
    while safe + 1 < unsafe:
        left = end - get_monotonic()
        if left <= 0:
            return safe, problem or "the others took too long"
        if found := examine(modules[:count], min(left, _EACH)):
            unsafe, problem = count, found
        else:
            _import_all(modules[safe:count])
            safe = count
        count = (safe + unsafe) // 2
    return safe, problem


def _import_all(modules: Sequence[str]) -> None:
    """Modules inside a package that cannot be imported here are left to the program."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            if "." not in name:
                raise


def find_problem(
    modules: Sequence[str], seconds: float, *, varying: Collection[str] = (), reads: Collection[str] = ()
) -> str:
    """What is wrong with importing these; empty if nothing."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    output = os.memfd_create("output", os.MFD_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _try(partial(_examine, modules, varying, reads), output, writer)
    os.close(writer)
    os.close(output)
    try:
        return _await_result(pid, reader, seconds)
    finally:
        os.close(reader)
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        kill_quietly(pid)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _await_result(pid: int, reader: int, seconds: float) -> str:
    """The child's result ends with a line feed. It may leave processes that keep the pipe open, so its end counts."""
    end, text = get_monotonic() + seconds, b""
    while get_monotonic() < end:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        while select.select([reader], [], [], 0 if ended else _LOOK_AGAIN)[0] and (part := os.read(reader, 4096)):
            text += part
            if text.endswith(b"\n"):
                return text[:-1].decode(errors="replace")
        if ended:
            return "it ends the program"
    return f"it takes longer than {seconds:.0f} s"


def _try(examine: Callable[[], str], output: int, writer: int) -> NoReturn:
    """In the child."""
    problem = "it ends the program"
    try:
        linux.set_parent_death_signal(signal.SIGKILL)
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        problem = examine()
        sys.stdout.flush()
        sys.stderr.flush()
        if not problem and os.fstat(1).st_size:
            problem = "it prints"
    except Exception as error:  # noqa: BLE001 - of any library
        problem = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
    finally:
        os.write(writer, problem.encode(errors="replace") + b"\n")
        os._exit(0)


def _examine(modules: Sequence[str], varying: Collection[str], reads: Collection[str]) -> str:
    before, known = effects.look(), set(reads)
    with effects.refusing_calls() as refused:
        try:
            _import_all(modules)
        except Exception:
            if not refused:
                raise
    if refused:
        return refused[0]
    late = {*varying, *conditions.WHILE_IMPORTING, conditions.ALL_VARIABLES} - known
    read = next((f"it reads {name}" for name in reads if name in late), "")
    return effects.find_change(before) or read or _try_fork()


def _try_fork() -> str:
    """Functions that libraries have registered for forks run here. One that hangs exceeds the time of the trial."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return "" if os.waitpid(pid, 0)[1] == 0 else "it cannot be forked"
