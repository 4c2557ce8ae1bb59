"""Examines the processes of a container, within a time and in a number of bytes.

Two looks at /proc with the stacks in between: what was used meanwhile tells a program that computes from one that
waits. A process whose stacks cannot be read has a sentence that says why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.shim.evidence import dumps, proc, recorder, spy
from trainmaster.shim.evidence.proc import Facts, ProcessLook
from trainmaster.shim.loop import get_monotonic

_APART_SECONDS = 0.2
"""Between the two looks at least, because the kernel counts CPU time in hundredths of a second."""
_MARGIN_SECONDS = 0.3
"""Of the time, for what comes after the stacks."""
_TEXT = 240
NO_SPY = "py-spy is not installed with the server"
NO_TIME = "there was no time for it"


@dataclass(frozen=True, slots=True)
class _Size:
    """How much of the stacks is kept."""

    processes: int
    threads: int
    frames: int


_NOTHING = _Size(0, 0, 0)
_SIZES = (
    _Size(64, 64, 96),
    _Size(40, 48, 48),
    _Size(24, 32, 24),
    _Size(12, 16, 12),
    _Size(6, 8, 6),
    _Size(3, 4, 4),
    _NOTHING,
)
"""Tried in order until the result is small enough."""


@dataclass(frozen=True, slots=True)
class VisitRequest:
    pids: tuple[int, ...]
    """Of the container, parents before their children; its main process first."""
    spy: int = -1
    """A descriptor of py-spy's program; -1 if there is none."""
    seconds: float = 1.5
    most_bytes: int = 64 << 10


def examine(request: VisitRequest, pause: Callable[[float], None] = time.sleep) -> bytes:
    """JSON with `processes` and `collective`."""
    began = get_monotonic()
    until = began + max(0.0, request.seconds - _MARGIN_SECONDS)
    first = _look_at_all(request.pids)
    pythons = [pid for pid in first if proc.runs_python(pid)]
    found = _collect_stacks(request, pythons, until)
    pause(max(0.0, min(began + _APART_SECONDS, began + request.seconds) - get_monotonic()))
    last = _look_at_all(tuple(first))
    seconds = get_monotonic() - began
    processes = []
    for pid, look in last.items():
        process = proc.describe(first[pid], look, seconds)
        if pid in found:
            process |= found[pid]
            for thread in process["stacks"]:
                _add_state(thread, look)
        processes.append(process)
    collective = next(filter(None, (recorder.find_collective(proc.read_variables(pid)) for pid in pythons)), None)
    return fit(processes, collective, request.most_bytes)


def _look_at_all(pids: Sequence[int]) -> dict[int, ProcessLook]:
    looks = ((pid, proc.look(pid)) for pid in pids)
    return {pid: look for pid, look in looks if look is not None}


def _collect_stacks(request: VisitRequest, pids: Sequence[int], until: float) -> dict[int, Facts]:
    """For every Python process its stacks with their source, or an error."""
    runs = spy.read_stacks(request.spy, pids, until) if request.spy >= 0 else {}
    found: dict[int, Facts] = {}
    for pid in pids:
        run = runs.get(pid)
        if run is not None and not run.error:
            found[pid] = {"source": "py-spy", "error": "", "stacks": run.threads}
            continue
        why = NO_SPY if request.spy < 0 else NO_TIME if run is None else run.error
        if get_monotonic() > until:
            found[pid] = {"source": "", "error": why, "stacks": []}
            continue
        try:
            threads = dumps.ask(pid)
            found[pid] = {"source": "faulthandler", "error": "", "stacks": threads}
        except dumps.NoDump as error:
            found[pid] = {"source": "", "error": f"{why}, and {error}", "stacks": []}
    return found


def _add_state(thread: Facts, look: ProcessLook) -> None:
    """What the kernel says about the thread."""
    known = look.threads.get(thread["tid"])
    if known is not None:
        thread["state"], thread["waits_in"] = known.state, known.wchan


def fit(processes: Sequence[Facts], collective: Facts | None, most: int) -> bytes:
    """As much of it as fits."""
    content = b""
    for size in _SIZES:
        kept = [
            _shorten(process, size if number < size.processes else _NOTHING) for number, process in enumerate(processes)
        ]
        content = json.dumps({"processes": kept, "collective": collective}, separators=(",", ":")).encode()
        if len(content) <= most:
            return content
    while len(content) > most and kept:
        del kept[-max(1, len(kept) // 4) :]
        left_out = len(processes) - len(kept)
        whole = {"processes": kept, "left_out": left_out, "collective": None}
        content = json.dumps(whole, separators=(",", ":")).encode()
    return content


def _shorten(process: Facts, size: _Size) -> Facts:
    result = dict(process)
    stacks = result.get("stacks")
    if stacks is None:
        return result
    ordered = sorted(stacks, key=lambda thread: _get_rank(thread, int(process["pid"])))
    kept = ordered[: size.threads]
    result["stacks"] = [_shorten_thread(thread, size.frames) for thread in kept]
    if len(kept) < len(ordered):
        result["threads_left_out"] = len(ordered) - len(kept)
    return result


def _get_rank(thread: Facts, pid: int) -> tuple[bool, bool]:
    """The main thread first, then those that do something."""
    is_main = thread.get("tid") == pid or thread.get("name") == "MainThread"
    return not is_main, not thread.get("active", False)


def _shorten_thread(thread: Facts, most: int) -> Facts:
    """The innermost frames say what it does, the outermost one which program it is."""
    frames = thread["frames"]
    kept = frames if len(frames) <= most else [*frames[: most - 1], frames[-1]]
    texts = [
        {"function": frame["function"][:_TEXT], "file": frame["file"][-_TEXT:], "line": frame["line"]} for frame in kept
    ]
    result = {**thread, "name": thread["name"][:_TEXT], "frames": texts}
    if len(kept) < len(frames):
        result["frames_left_out"] = len(frames) - len(kept)
    return result
