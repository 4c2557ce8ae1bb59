"""Estimates the memory of a job that requests none, and warns before it is submitted if this machine has less.

Without a request the scheduler lets every node in. The estimate is the size of the largest process of an earlier job
with the same program, which its record contains, else a usual size for the framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.api.training.steps import NODE, find_container, find_trainer, get_template_spec
from trainmaster.bundles.walking import format_bytes
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter
from trainmaster.jobs.compose.request import JobRequest
from trainmaster.node.host.hardware import read_free_memory

_USUAL = {"torch": 1 << 30, "jax": 1 << 29, "xgboost": 1 << 28, "": 1 << 26}
"""Bytes of one process that has imported the framework and trains a small model, without a GPU."""
_RECORDS = 50
"""How many earlier jobs are looked at."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    each: int
    """Bytes of one process."""
    source: str
    """Where the number comes from."""


def has_request(request: JobRequest, runtime: Object) -> bool:
    """Whether the scheduler knows how much memory a node needs."""
    container = find_container(find_trainer(get_template_spec(runtime)) or {}, NODE)
    resources = read_fields(container, "resources")
    given = {**read_fields(resources, "limits"), **read_fields(resources, "requests"), **request.resources}
    return "memory" in given


def confirm_memory(context: CommandContext, request: JobRequest, estimate: MemoryEstimate, *, yes: bool) -> None:
    """Warns if the job will probably not fit, and asks if there is a terminal. Failure if the user decides against
    it."""
    text = explain(request, estimate, read_free_memory())
    if not text:
        return
    context.note(f"trainmaster: warning: {text}")
    if terminal.is_terminal(context.stdin) and not terminal.confirm(context, "Submit it anyway?", yes=yes):
        raise exits.Failure("the job was not submitted", exits.RUN_USAGE)


def explain(request: JobRequest, estimate: MemoryEstimate, free: int) -> str:
    """Why the job will probably not fit; "" if it will."""
    processes = int(request.processes) if request.processes.isdecimal() else 1
    node = processes * estimate.each
    if request.nodes * node <= free:
        return ""
    count = f"{request.nodes} node{'s' * (request.nodes != 1)}"
    if processes > 1:
        count += f" with {processes} processes each"
    fitting = free // node
    helps = f"use --nodes {fitting} or less, or " if fitting else ""
    return (
        f"{count} will probably use {format_bytes(request.nodes * node)} of memory, {format_bytes(estimate.each)} per "
        f"process ({estimate.source}), and {format_bytes(free)} are free: {helps}request the real amount with --memory"
    )


def get_usual(framework: str) -> MemoryEstimate:
    return MemoryEstimate(_USUAL[framework], f"usual for {framework or 'a Python program'}")


def find_learned(history: Path, program: Sequence[str]) -> MemoryEstimate | None:
    """What the newest job with this program used, if its record knows."""
    if not (history / FILE).exists():
        return None
    try:
        archive = Archive.open(history, read_only=True)
        try:
            for line in archive.select(Filter(limit=_RECORDS)):
                record = archive.find(line.uid)
                if record is not None and (memory := read_memory(record.document, program)):
                    return MemoryEstimate(memory, f"as in {record.name}")
        finally:
            archive.close()
    except ArchiveError:
        return None  # a convenience
    return None


def read_memory(document: Fields, program: Sequence[str]) -> int:
    """The memory of the largest process of a recorded job, if it ran this program; 0 if not, or if it is unknown."""
    trainer = read_fields(document, "trainjob", "spec", "trainer")
    words = [*list_items(trainer, "command"), *list_items(trainer, "args")]
    if words[: len(program)] != list(program):
        return 0
    return max((int(read_text(pod, "memory") or 0) for pod in list_items(document, "pods")), default=0)
