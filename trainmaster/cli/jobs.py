"""Finds training jobs by name, with suggestions or their record if there is none, and builds their table rows."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext
from trainmaster.cli.servers.flags import add_kind, is_cluster, read_job
from trainmaster.cli.spans import show_span
from trainmaster.client.contract import Client
from trainmaster.jobs.kinds import get_kind_name, split_kind, split_reference
from trainmaster.jobs.lookups import get_training_job, list_training_jobs
from trainmaster.jobs.models import training
from trainmaster.jobs.models.training import TrainingJob, TrainingState
from trainmaster.kit.clock import parse_time

if TYPE_CHECKING:
    from trainmaster.history.archive import RecordLine
    from trainmaster.history.record import JobRecord

_NEAR = 3
_STYLES = {
    training.COMPLETE: terminal.GOOD,
    training.RUNNING: terminal.GOOD,
    training.FAILED: terminal.BAD,
    training.WAITING: terminal.WAIT,
    training.STARTING: terminal.WAIT,
    training.SUSPENDED: terminal.DIM,
    training.DELETING: terminal.DIM,
    "Deleted": terminal.DIM,
}


def style_state(word: str) -> str:
    return _STYLES.get(word, "")


def add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", type=read_job, metavar="JOB", help="names of TrainJobs, or KIND/NAME")
    add_kind(parser)


async def get_job(client: Client, namespace: str, reference: str) -> TrainingJob:
    """`reference`: NAME or KIND/NAME. Failure with similar names if there is none."""
    try:
        return await get_training_job(client, namespace, reference)
    except NotFound:
        raise await build_missing(client, namespace, reference) from None


async def get_jobs(client: Client, namespace: str, references: Iterable[str]) -> list[TrainingJob]:
    """Each job once."""
    jobs = [await get_job(client, namespace, reference) for reference in references]
    return list({job.uid: job for job in jobs}.values())


async def build_missing(client: Client, namespace: str, reference: str) -> exits.MissingJob:
    model, name = split_reference(reference)
    try:
        found = await list_training_jobs(client)
    except StatusError:
        try:
            found = await list_training_jobs(client, namespace)
        except StatusError as error:
            if error.code == 404:
                text = "this server has no TrainJobs: neither Trainmaster nor Kubeflow Trainer is installed there"
                return exits.MissingJob(text, namespace, reference)
            found = []
    kind = "TrainJob" if model is None else get_kind_name(model)
    text = f'there is no {kind} "{name}" in namespace {namespace}'
    found = [job for job in found if model in (None, type(job))]
    elsewhere = [job.namespace for job in found if job.name == name]
    if elsewhere:
        text += f"; there is one in {', '.join(elsewhere)}: add `-n {elsewhere[0]}`"
    elif near := list_near(name, [job.name for job in found if job.namespace == namespace]):
        text += f"; did you mean {' or '.join(near)}?"
    else:
        text += ": `trainmaster list` shows those that exist, `trainmaster history list` those that were deleted"
    return exits.MissingJob(text, namespace, reference)


def find_record(
    options: argparse.Namespace, context: CommandContext, namespace: str, reference: str
) -> RecordLine | None:
    """The newest record of that job. None for a cluster, whose records are not in a home."""
    if is_cluster(options):
        return None
    # Imported here because only a home with a history needs SQLite.
    from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter

    directory = context.home(options).history
    if not (directory / FILE).exists():
        return None
    try:
        archive = Archive.open(directory, read_only=True)
        try:
            kind, name = split_kind(reference)
            return next(iter(archive.select(Filter(namespace, name, kind=kind, limit=1))), None)
        finally:
            archive.close()
    except ArchiveError:
        return None


def explain_missing(options: argparse.Namespace, context: CommandContext, missing: exits.MissingJob) -> exits.Failure:
    """The same error, or where to read about the job if it was deleted."""
    record = find_record(options, context, missing.namespace, missing.name)
    return missing if record is None else explain_deleted(missing, record)


def explain_deleted(missing: exits.MissingJob, record: RecordLine | JobRecord) -> exits.Failure:
    """Where to read about a job that was deleted."""
    job = missing.name if missing.namespace == "default" else f"{missing.name} -n {missing.namespace}"
    when = "" if record.deletion is None else f" at {record.deletion.at}"
    how = ", before it had ended" if record.state == "Deleted" else f" ({record.state})"
    return exits.Failure(
        f"{missing.namespace}/{missing.name} was deleted{when}{how}; its record is kept: "
        f"`trainmaster history get {job}` shows how it ended, `trainmaster logs {job}` what it printed, "
        f"`trainmaster history rerun {job}` submits it again",
        missing.code,
    )


def list_near(name: str, names: Iterable[str]) -> list[str]:
    """Names that are similar to a mistyped one."""
    import difflib

    known = list(names)
    near = [one for one in known if one.startswith(name)]
    near += [one for one in difflib.get_close_matches(name, known, n=_NEAR, cutoff=0.6) if one not in near]
    return near[:_NEAR]


def build_header(*, wide: bool, all_namespaces: bool, kinds: bool = False) -> tuple[str, ...]:
    header = (*(("KIND",) if kinds else ()), "NAME", "STATE", "NODES", "PROGRESS", "AGE")
    more = ("RUNTIME", "DURATION", "ETA") if wide else ()
    return (*(("NAMESPACE",) if all_namespaces else ()), *header, *more, "REASON")


def build_row(
    job: TrainingJob,
    now: datetime,
    *,
    wide: bool,
    all_namespaces: bool,
    kinds: bool = False,
    nodes: int | None = None,
    gone: bool = False,
    state: TrainingState | None = None,
) -> Sequence[str]:
    """`kinds`: with a column for the kind; `nodes`: their number, which the runtime may set; `state`: if others than
    the job know it."""
    state = state or job.state
    percent, left = job.progress
    row = [
        *((job.kind or "TrainJob", job.name) if kinds else (job.label,)),
        "Deleted" if gone else state.word,
        str(nodes or job.nodes or "-"),
        "-" if percent is None else f"{percent}%",
        show_age(job.created_at, now),
    ]
    if all_namespaces:
        row.insert(0, job.namespace)
    if wide:
        over = state.is_final or left is None
        row += [job.runtime.get("name", "-"), show_duration(job, now), "-" if over else show_span(left or 0)]
    return [*row, state.sentence or "-"]


def show_age(timestamp: str | None, now: datetime) -> str:
    return show_span((now - parse_time(timestamp)).total_seconds()) if timestamp else "-"


def show_duration(job: TrainingJob, now: datetime) -> str:
    """The time from its creation to its end, or until now."""
    end = job.end
    return show_span(((parse_time(end[1]) if end else now) - parse_time(job.created_at)).total_seconds())
