"""Downloads wheels on the server: with the index's credentials, and without running any code of a package.

`fetch_program` does it in a separate process, with limits on memory, time and space. A thread waits for the process,
because the control plane's event loop starts no processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.node.disk.usage import measure_tree
from trainmaster.node.images.failures import find_index_problem, has_skipped_sources, is_lasting, list_fetch_failures

_PROGRAM = str(Path(__file__).with_name("fetch_program.py"))
FOLDER = "fetch"
"""Inside the slot: its output, which may contain credentials and must be removed."""
_POLL_SECONDS = 0.5
_MOST_OUTPUT = 65536


@dataclass(frozen=True, slots=True)
class Fetch:
    python: str
    """Of an environment that only the server has written to."""
    pip: str
    """Where to import pip from if the environment has none."""
    requirements: Sequence[str]
    sources: bool
    """Whether packages may be built afterwards, so that a newer sdist counts for more than an older wheel."""
    slot: Path
    """Contains `wheels` and everything else that is written."""
    environ: Mapping[str, str]
    space: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Fetched:
    pins: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    """Requirements that were left out, because the newest version of the package has no wheel."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Where packages come from, as variables of pip. They may contain credentials."""
    error: str = ""
    """The installer's output, which may contain credentials."""
    lasts: bool = False
    """Whether another try would fail too."""
    has_sources: bool = False
    """Whether the index has source archives of what it has no wheels of, so that a build may succeed."""


async def fetch(order: Fetch) -> Fetched:
    stop = threading.Event()
    work = asyncio.get_running_loop().run_in_executor(None, _run, order, stop)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        raise


def _run(order: Fetch, stop: threading.Event) -> Fetched:
    place = order.slot / FOLDER
    folders = {"wheels": str(order.slot / "wheels"), "empty": str(place / "empty"), "temporary": str(place / "tmp")}
    for folder in folders.values():
        os.makedirs(folder, mode=0o755, exist_ok=True)
    found, options = place / "found.json", place / "options.json"
    output, trace = place / "fetch.log", place / "pip.log"
    asked = {
        "pip": order.pip,
        "requirements": list(order.requirements),
        "sources": order.sources,
        "wheels": folders["wheels"],
        "empty": folders["empty"],
        "report": str(place / "report.json"),
        "found": str(found),
        "options": str(options),
        "space": order.space,
    }
    argv = [order.python, "-I", _PROGRAM, json.dumps(asked)]
    with open(output, "wb") as stream:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**order.environ, "TMPDIR": folders["temporary"], "PIP_LOG": str(trace)},
            cwd=folders["empty"],
            start_new_session=True,
        )
        problem = _watch(process, order, stop)
    known = json.loads(options.read_bytes()) if options.exists() else {}
    if problem:
        return Fetched(options=known, error=problem)
    if process.returncode == 0:
        names = json.loads(found.read_bytes())
        return Fetched(tuple(names["pins"]), tuple(names["sources"]), known)
    with open(output, "rb") as words:
        words.seek(max(0, output.stat().st_size - _MOST_OUTPUT))
        error = words.read().decode("utf-8", "replace")
    return _explain(error or f"it ended with {process.returncode}", trace, known)


def _explain(error: str, trace: Path, options: Mapping[str, str]) -> Fetched:
    """pip's output does not tell a package that does not exist from an index that does not answer; its log does."""
    log = trace.read_text(errors="replace") if trace.exists() else ""
    fetches = list_fetch_failures(log)
    problem = find_index_problem(fetches)
    error = f"{error}\nERROR: {problem}" if problem else error
    return Fetched(options=options, error=error, lasts=is_lasting(error, fetches), has_sources=has_skipped_sources(log))


def _watch(process: subprocess.Popen[bytes], order: Fetch, stop: threading.Event) -> str:
    """Why it was stopped early; "" if it ended by itself."""
    left = order.seconds
    while left > 0 and not stop.is_set():
        try:
            process.wait(_POLL_SECONDS)
            return ""
        except subprocess.TimeoutExpired:
            left -= _POLL_SECONDS
        if measure_tree(str(order.slot), enough=order.space).bytes > order.space:
            return _end(process, f"ERROR: it needs more than {order.space >> 20} MiB (setting node.packages_mib)")
    return _end(process, f"ERROR: downloading took longer than {order.seconds:.0f} s")


def _end(process: subprocess.Popen[bytes], why: str) -> str:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return why
