"""TrainJobs as a table, or in the form that was asked for. Used by list and get."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import build_header, build_row, style_state
from trainmaster.cli.output import build_table, print_objects
from trainmaster.cli.terminal import find_width
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import SystemClock


def sort(jobs: Iterable[Object]) -> list[Object]:
    return sorted(jobs, key=lambda job: (job["metadata"]["namespace"], job["metadata"]["name"]))


def show(context: CommandContext, options: argparse.Namespace, jobs: list[Object], *, single: bool = False) -> None:
    if options.output not in ("table", "wide"):
        print_objects(context, TRAIN_JOBS, jobs, options.output, single=single)
    elif jobs:
        for line in build_lines(context, options, jobs):
            context.say(line)


def build_lines(
    context: CommandContext, options: argparse.Namespace, jobs: Iterable[Object], gone: Iterable[str] = ()
) -> list[str]:
    """The table, the header first. `gone` are uids of those that were deleted."""
    jobs = list(jobs)
    wide, everywhere = options.output == "wide", getattr(options, "all_namespaces", False)
    now, uids = SystemClock().now(), set(gone)
    header = build_header(wide=wide, all_namespaces=everywhere)
    rows = [
        build_row(job, now, wide=wide, all_namespaces=everywhere, gone=job["metadata"]["uid"] in uids) for job in jobs
    ]
    if find_width(context) is not None and not any(TrainJob(job).progress[0] is not None for job in jobs):
        # Room for the reason; in a pipe columns are always the same.
        at = header.index("PROGRESS")
        header, rows = header[:at] + header[at + 1 :], [[*row[:at], *row[at + 1 :]] for row in rows]
    return build_table(context, header, rows, styles={"STATE": style_state})
