"""The evidence of a job as text. Pure. Whatever came from a program is shown without control characters."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api.meta import Object
from trainmaster.bundles.walking import format_bytes
from trainmaster.cli.terminal import clean
from trainmaster.history.evidence import REASONS, Document

Part = Object

_STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for the disk or a device",
    "T": "is stopped by a signal",
    "t": "is stopped by a debugger",
    "Z": "has ended",
    "I": "is idle",
}
_MOST_THREADS = 8
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen")


def describe(document: Document, label: str) -> Iterator[str]:
    seconds = document.get("seconds")
    took = f", in {seconds:.1f} s" if seconds is not None else ""
    yield f"{label}, attempt {document['attempt']}: {REASONS[document['reason']]}, {document['at']}{took}"
    for rank in document["ranks"]:
        yield ""
        yield from _describe_rank(rank)


def find_place(rank: Part) -> str:
    """Where the rank's own code is: the innermost frame of a main thread that belongs to no library; "" if unknown. Of
    several processes the last one, because launchers come before what they start."""
    for process in reversed(rank["processes"]):
        for thread in (process.get("stacks", ()))[:1]:
            frames = thread["frames"]
            own = [frame for frame in frames if not any(part in frame["file"] for part in _LIBRARIES)]
            if own:
                return _format_frame(own[0], short=True)
    return ""


def _describe_rank(rank: Part) -> Iterator[str]:
    place = find_place(rank)
    name = rank["job"] if not rank["job_index"] else f"{rank['job']}-{rank['job_index']}"
    yield clean(f"rank {rank['worker']} of {name}{f': {place}' if place else ''}")
    if rank["end"]:
        yield from _entry("ended", _describe_end(rank["end"]))
    yield from _entry("memory", _describe_memory(rank["memory"]))
    for gpu in rank["gpus"]:
        percent = "unknown use" if gpu["percent"] is None else f"{gpu['percent']} %"
        memory = "" if gpu["memory_mib"] is None else f", {format_bytes(gpu['memory_mib'] << 20)}"
        yield from _entry(f"gpu {gpu['index']}", f"{percent}{memory}")
    if rank["collective"]:
        yield from _entry("collective", _describe_collective(rank["collective"]))
    if rank["error"]:
        yield from _entry("processes", f"unknown: {rank['error']}")
    for process in rank["processes"]:
        yield from _describe_process(process)
    if rank.get("processes_left_out"):
        yield from _entry("processes", f"{rank['processes_left_out']} more were left out")
    if rank["lines"]:
        yield "  last lines"
        yield from (f"    {clean(line)}".rstrip() for line in rank["lines"])


def _entry(label: str, text: str) -> Iterator[str]:
    if text:
        yield f"  {label:<11} {clean(text)}"


def _describe_end(end: Part) -> str:
    how = f"by signal {end['signal']}" if end["signal"] else f"with exit code {end['code']}"
    why = ", killed by the kernel because the memory was used up" if end["oom_killed"] else ""
    return f"{how}{why}, {end['at'] or 'unknown when'}"


def _describe_memory(memory: Part) -> str:
    used, limit, peak, kills = (memory[name] for name in ("used", "limit", "peak", "oom_kills"))
    parts = []
    if used is not None:
        parts.append(f"{format_bytes(used)}{f' of {format_bytes(limit)}' if limit else ''}")
    elif limit:
        parts.append(f"limit {format_bytes(limit)}")
    if peak is not None:
        parts.append(f"at most {format_bytes(peak)}")
    if kills:
        parts.append(f"the kernel killed {kills} process{'es' * (kills != 1)} because it was used up")
    return ", ".join(parts)


def _describe_collective(found: Part) -> str:
    if found.get("note"):
        return str(found["note"])
    return f"{found['name']} (number {found['sequence']} of {found['group'] or 'its group'}) is {found['state']}"


def _describe_process(process: Part) -> Iterator[str]:
    state = _STATES.get(process["state"], process["state"])
    where = f" in {process['waits_in']}" if process["waits_in"] else ""
    count = process["threads"]
    threads = f"{count} thread{'s' * (count != 1)}"
    yield from _entry(f"pid {process['pid']}", process["command"] or process["name"])
    use = f"{process['cpu_percent']} % of a CPU, {threads}, {format_bytes(process['rss'])}"
    yield from _entry("", f"{state}{where}, {use}")
    if process.get("error"):
        yield from _entry("", f"no stacks: {process['error']}")
    stacks = process.get("stacks", [])
    for thread in stacks[:_MOST_THREADS]:
        yield f"    {clean(_head_thread(thread))}"
        for frame in thread["frames"]:
            yield f"      {clean(_format_frame(frame))}"
    left_out = len(stacks[_MOST_THREADS:]) + int(process.get("threads_left_out") or 0)
    if left_out:
        yield f"    {left_out} more thread{'s' * (left_out != 1)}: -o json shows those that were kept"


def _head_thread(thread: Part) -> str:
    notes: list[str] = []
    if state := str(thread.get("state", "")):
        where = f" in {thread['waits_in']}" if thread.get("waits_in") else ""
        notes.append(f"{_STATES.get(state, state)}{where}")
    if thread.get("gil"):
        notes.append("holds the GIL")
    number = f" ({thread['tid']})" if thread["tid"] else ""
    return f"{thread['name'] or 'thread'}{number}{': ' * bool(notes)}{', '.join(notes)}"


def _format_frame(frame: Part, *, short: bool = False) -> str:
    file = frame["file"].rpartition("/")[2] if short else frame["file"]
    return f"{frame['function']} ({file}:{frame['line']})"
