"""Shows a job: connects the view with the sources of its logs and outputs. Used by `run` and `watch`."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.api.meta import Fields, Object
from trainmaster.app.home.folder import Home
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.view.endings import build_detached
from trainmaster.cli.view.model import Model
from trainmaster.cli.view.opening import Showing, build_address, show_job, wants_panel
from trainmaster.client.contract import Client
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.logs.contract import JobLogOptions, Kept, KeptLog
from trainmaster.jobs.logs.lines import Stamped
from trainmaster.jobs.logs.stream import watch_lines
from trainmaster.jobs.lookups import count_nodes
from trainmaster.kit.clock import Clock

if TYPE_CHECKING:
    from trainmaster.cli.view.attaching import Attachment


@dataclass(frozen=True, slots=True)
class FollowedJob:
    options: argparse.Namespace
    context: CommandContext
    client: Client
    clock: Clock
    trainjob: Object
    home: Home | None
    """None for a cluster."""
    code: Path | None = None
    """The directory with its code, if this command has sent it."""

    @property
    def name(self) -> str:
        return str(self.trainjob["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.trainjob["metadata"]["namespace"])


class FreshLogs:
    """Logs of deleted Pods of a job that was just submitted, read from log files. The archive, which takes a while to
    load, has no more about it yet."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def list_logs(self, job: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        from trainmaster.history import logs

        return logs.list_logs(self._directory, sorted(jobsets)) if jobsets else ()

    def read(self, log: KeptLog) -> Iterator[Stamped]:
        from trainmaster.history import logs

        assert isinstance(log, logs.ArchivedLog), "one of list_logs"
        return logs.read_lines(log)


def _find_kept(home: Home | None, *, fresh: bool) -> Kept | None:
    if home is None:
        return None
    if fresh:
        return FreshLogs(home.history)
    from trainmaster.history.kept_logs import KeptLogs

    return KeptLogs(home.history)


def say_detached(job: FollowedJob, form: str) -> int:
    """For `run --detach`: prints the job's name, and commands to continue with."""
    address = build_address(job.options, job.name)
    if form == "json":
        job.context.say(json.dumps({"type": "submitted", "name": job.name, "namespace": job.namespace}))
        return exits.OK
    job.context.say(f"trainjob.trainer.kubeflow.org/{job.name}")
    for line in build_detached(address):
        job.context.note(line)
    return exits.OK


def _tell_submitted(job: FollowedJob, form: str, model: Model, *, has_panel: bool) -> None:
    """Prints the job's name first, unless the panel shows it."""
    screen = model.screen
    if form == "json":
        job.context.say(json.dumps({"type": "submitted", "name": job.name, "namespace": job.namespace}))
    elif not has_panel:
        nodes = f"{screen.nodes} node{'s' * (screen.nodes != 1)}"
        job.context.note(f"trainmaster: {job.name} is submitted ({nodes}, {screen.runtime})")


def _describe_outputs(job: FollowedJob) -> list[str]:
    """The last lines, about the job's outputs."""
    if job.home is None:
        return []
    uid = job.trainjob["metadata"]["uid"]
    from trainmaster.history.results import LOST, RESULTS, list_outputs

    history = job.home.history
    if not list_outputs(history, uid) and not (history / RESULTS / uid / LOST).is_dir():
        return []  # as in most short jobs, which should not wait until the archive is loaded
    from trainmaster.cli import outputs

    return outputs.list_closing_lines(job.home, uid, job.name, job.namespace)


async def _count_nodes(job: FollowedJob) -> int:
    found = read_training_job(job.trainjob)
    return found.nodes or (await count_nodes(job.client, [found])).get(found.uid, 1)


def list_earlier_metrics(job: FollowedJob) -> list[dict[str, float]]:
    """The metrics that the job reported before its current report, oldest first. On a cluster they are not known."""
    if job.home is None:
        return []
    from trainmaster.history.archive import FILE, Archive, ArchiveError
    from trainmaster.history.curves.series import read_point

    history, current = job.home.history, read_point(job.trainjob)
    if current is None or not (history / FILE).exists():
        return []
    try:
        archive = Archive.open(history, read_only=True)
        try:
            points = archive.list_points(job.trainjob["metadata"]["uid"])
        finally:
            archive.close()
    except ArchiveError:
        return []
    earlier = [point.metrics for point in points if point.at < current.at]
    return [{name: value for name, value in metrics.items() if value is not None} for metrics in earlier]


async def _advise(job: FollowedJob, failure: Fields) -> list[str]:
    """What helps against a failure of the job."""
    from trainmaster.cli.advising import list_job_advice

    trainjob = {**job.trainjob, "status": {"failure": failure}}
    return await list_job_advice(job.client, read_training_job(trainjob), job.home, job.code)


async def show(job: FollowedJob, form: str, *, fresh: bool, attachment: Attachment | None = None) -> int:
    """Shows the job until it is over; returns the exit code. `fresh`: it was just submitted and has no older logs."""
    # Errors are shown on the screen; log lines would overwrite it.
    logging.getLogger("trainmaster").addHandler(logging.NullHandler())
    model = Model(job.name, job.namespace, nodes=await _count_nodes(job))
    if not fresh:
        model.see_earlier(list_earlier_metrics(job))
    model.see_trainjob(job.trainjob)
    if fresh:
        _tell_submitted(job, form, model, has_panel=attachment is None and wants_panel(job.context, form))
    kept = _find_kept(job.home, fresh=fresh)
    reference = read_training_job(job.trainjob).reference

    def is_gone() -> str:
        if job.home is None or job.home.find_running() is not None:
            return ""
        return f"no server runs in {shlex.quote(str(job.home.root))}"

    showing = Showing(
        context=job.context,
        client=job.client,
        clock=job.clock,
        model=model,
        address=build_address(job.options, job.name),
        lines=lambda follow: watch_lines(
            job.client, job.clock, job.namespace, reference, JobLogOptions(follow=follow, last_attempt=not fresh), kept
        ),
        is_gone=is_gone,
        form=form,
        closing=lambda: _describe_outputs(job),
        advise=lambda failure: _advise(job, failure),
        attachment=attachment,
    )
    return await show_job(showing)
