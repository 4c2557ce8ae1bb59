"""Prints training jobs as a table or in another output format. Used by list and get."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import build_header, build_row, style_state
from trainmaster.cli.output import build_table, print_objects
from trainmaster.cli.terminal import find_width
from trainmaster.client.contract import Client
from trainmaster.jobs.lookups import count_nodes
from trainmaster.jobs.models.training import STATES, TrainingJob, TrainingState
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.queueing.names import get_queue
from trainmaster.kit.clock import SystemClock

_REASON_LINES = 3
"""On a terminal; enough for an exception and where it was raised."""
_STEADY = {"STATE": max(map(len, STATES)), "AGE": 4}
"""The widths of columns whose values change."""


def sort(jobs: Iterable[TrainingJob]) -> list[TrainingJob]:
    return sorted(jobs, key=lambda job: (job.namespace, job.name, job.word))


def has_kinds(jobs: Iterable[TrainingJob]) -> bool:
    return not all(isinstance(job, TrainJob) for job in jobs)


async def count_shown(client: Client, options: argparse.Namespace, jobs: Iterable[TrainingJob]) -> dict[str, int]:
    """The numbers of nodes that a table of these jobs needs, by uid."""
    return await count_nodes(client, jobs) if options.output in ("table", "wide") else {}


async def read_shown_states(client: Client, jobs: Iterable[TrainingJob]) -> dict[str, TrainingState]:
    """By uid, the states that others than the jobs know: Kueue those of jobs in its queues."""
    if not any(map(get_queue, jobs := list(jobs))):
        return {}
    # Imported here because most jobs are in no queue.
    from trainmaster.jobs.queueing.reading import read_states

    return await read_states(client, jobs)


def show(
    context: CommandContext,
    options: argparse.Namespace,
    jobs: list[TrainingJob],
    nodes: Mapping[str, int],
    states: Mapping[str, TrainingState],
    *,
    single: bool = False,
) -> None:
    """`states`: by uid, those that others than the jobs know."""
    if options.output not in ("table", "wide"):
        print_objects(context, [(job.gvr, job.raw) for job in jobs], options.output, single=single)
    elif jobs:
        for line in build_lines(context, options, jobs, nodes, states=states):
            context.say(line)


def build_lines(
    context: CommandContext,
    options: argparse.Namespace,
    jobs: Iterable[TrainingJob],
    nodes: Mapping[str, int],
    gone: Iterable[str] = (),
    kinds: bool | None = None,
    *,
    steady: bool = False,
    states: Mapping[str, TrainingState] = MappingProxyType({}),
) -> list[str]:
    """The lines of the table, header first. `nodes`: their number by uid; `gone`: uids of deleted jobs; `kinds`:
    whether to add a column for the kind (default: if not all are TrainJobs); `steady`: columns do not become wider when
    states change; `states`: by uid, those that others than the jobs know."""
    jobs = list(jobs)
    wide, everywhere = options.output == "wide", getattr(options, "all_namespaces", False)
    now, uids = SystemClock().now(), set(gone)
    if kinds is None:
        kinds = has_kinds(jobs)
    header = build_header(wide=wide, all_namespaces=everywhere, kinds=kinds)
    rows = [
        build_row(
            job,
            now,
            wide=wide,
            all_namespaces=everywhere,
            kinds=kinds,
            nodes=nodes.get(job.uid),
            gone=job.uid in uids,
            state=states.get(job.uid),
        )
        for job in jobs
    ]
    if find_width(context) is not None and not any(job.progress[0] is not None for job in jobs):
        # Fit the reason to the terminal; in a pipe the columns are always the same.
        at = header.index("PROGRESS")
        header, rows = header[:at] + header[at + 1 :], [[*row[:at], *row[at + 1 :]] for row in rows]
    least = _STEADY if steady else {}
    return build_table(context, header, rows, styles={"STATE": style_state}, most_lines=_REASON_LINES, least=least)
