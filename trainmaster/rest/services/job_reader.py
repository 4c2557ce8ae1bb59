"""The state of a job and the log of a worker, from the API server while the job exists, otherwise from history.

The states are the guide's three: an unfinished job is Running, and the message has the details (Pending, Suspended, and
why). Callers without permission to read TrainJobs of a namespace get nothing, not even from history.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Literal

from trainmaster.api.labels import COMPLETION_INDEX, REPLICATED_JOB_NAME
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.resources import PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, ListOptions, LogOptions
from trainmaster.history.record import DELETED, JobRecord
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.lookups import count_nodes, get_training_job
from trainmaster.jobs.models.pods import Pod, read_waiting
from trainmaster.jobs.models.training import COMPLETE, TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import FieldProblem, Problem, invalid, not_found
from trainmaster.rest.services.job_views import ON_HOLD
from trainmaster.rest.services.records import LogEnd, RecordSource

State = Literal["Running", "Complete", "Failed"]
RUNNING: State = "Running"
NODE_JOB = "node"
_REMEMBERED = 1024
_ARCHIVE_SECONDS = 2.0
"""Seconds that the record of a deleted job may take to appear."""


@dataclass(frozen=True, slots=True)
class JobState:
    name: str
    state: State
    message: str
    created_at: str
    completed_at: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerLog:
    name: str
    worker: int
    text: str
    truncated: bool = False
    """Whether the beginning is missing."""


class JobReader:
    def __init__(self, records: RecordSource, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._gone: OrderedDict[tuple[str, str], float] = OrderedDict()

    def note_deleted(self, namespace: str, name: str) -> None:
        """Remembers that the job was just deleted, because its record may not exist yet."""
        self._gone[namespace, name] = self._clock.boot()
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    async def find(self, client: Client, namespace: str, reference: str) -> TrainingJob | JobRecord:
        """The job, or its record in history. Raises Problem 404."""
        try:
            return await get_training_job(client, namespace, reference)
        except NotFound:
            record = await self.find_record(namespace, reference)
        if record is None:
            name = reference.rpartition("/")[2]
            raise not_found(
                f"there is no job {name!r} in the namespace {namespace!r}, and history has none",
                hint="trainjob_name in the answer of create is its name; namespace is that of the create",
            )
        return record

    async def find_record(self, namespace: str, reference: str) -> JobRecord | None:
        """Waits briefly for the record of a job that was just deleted through this API."""
        name = reference.rpartition("/")[2]
        while True:
            record = await self._records.find(namespace, reference)
            deleted = self._gone.get((namespace, name))
            if deleted is None or self._clock.boot() - deleted > _ARCHIVE_SECONDS:
                return record
            if record is not None and record.deletion is not None:
                return record
            await self._clock.sleep(0.1)

    async def get_state(self, client: Client, namespace: str, name: str) -> JobState:
        job = await self.find(client, namespace, name)
        if isinstance(job, JobRecord):
            return describe_record(job)
        ended = describe_ended(job)
        if ended is not None:
            return ended
        return JobState(job.name, RUNNING, await _explain(client, job), job.created_at)

    async def get_log(
        self, client: Client, namespace: str, name: str, worker: int, tail_lines: int | None = None
    ) -> WorkerLog:
        found = await self.find(client, namespace, name)
        job = read_training_job(found.document["trainjob"]) if isinstance(found, JobRecord) else found
        count = await count_workers(client, job)
        if worker >= count:
            there = "one, 0" if count == 1 else f"{count}, 0 to {count - 1}"
            raise invalid([FieldProblem(f"there is no worker {worker}; this job has {there}", parameter="worker")])
        text = None
        if not isinstance(found, JobRecord):
            text = await _read_live(client, job, worker, tail_lines)
        if text is None:
            record = found if isinstance(found, JobRecord) else await self._records.find(namespace, name)
            kept = None if record is None else await self._records.find_log(record, NODE_JOB, worker)
            if kept is not None:
                text = kept
            elif isinstance(found, JobRecord) or job.is_finished:
                raise not_found(f"no log of worker {worker} was kept", hint="it may never have started")
            else:
                raise _build_waiting(worker, await _explain(client, job))
        raw, truncated = text
        decoded = raw.decode(errors="replace")
        if tail_lines is not None:
            lines = decoded.splitlines(keepends=True)
            truncated = truncated or len(lines) > tail_lines
            decoded = "".join(lines[-tail_lines:] if tail_lines else ())
        return WorkerLog(name, worker, decoded, truncated)


def describe_ended(job: TrainingJob) -> JobState | None:
    """None if it has not ended."""
    end, found = job.end, job.state_ignoring_deletion
    if end is None:
        return None
    state: State = "Complete" if found.word == COMPLETE else "Failed"
    return JobState(job.name, state, found.message or found.reason or state, job.created_at, end[1])


def describe_record(record: JobRecord) -> JobState:
    outcome, deletion = describe_outcome(record), record.deletion
    gone = "" if deletion is None else f" (deleted {deletion.at} by {deletion.by or 'somebody unknown'})"
    return replace(outcome, message=outcome.message + gone)


def describe_outcome(record: JobRecord) -> JobState:
    """Without who deleted the job and when."""
    ended = describe_ended(read_training_job(record.document["trainjob"]))
    if record.state == DELETED or ended is None:
        return JobState(record.name, "Failed", "deleted before its end", record.created, record.finished or None)
    return JobState(record.name, ended.state, ended.message, record.created, ended.completed_at)


async def _explain(client: Client, job: TrainingJob) -> str:
    """What an unfinished job is doing, for people."""
    if job.is_deleting:
        return "Deleting: it was deleted, and its workers are ending"
    if job.is_suspended:
        return f"Suspended: {ON_HOLD}"
    if job.waiting:
        return f"Pending: {job.waiting.get('reason', '')}: {job.waiting.get('message', '')}"
    if job.stalled:
        return f"Running: stalled since {read_text(job.stalled, 'since')}: {read_text(job.stalled, 'message')}"
    for step in job.steps if isinstance(job, TrainJob) else ():
        if step.get("name") == NODE_JOB and (step.get("ready") or step.get("succeeded")):
            return "Running: its workers are at work"
    pods = await _list_workers(client, job)
    if not pods:
        return "Pending: its workers are being made"
    running = sum(pod.is_running for pod in pods)
    if running:
        return f"Running: {running} of {len(pods)} workers are at work"
    return f"Pending: {next((why for why in map(_find_reason, pods) if why), 'its workers are starting')}"


def _find_reason(pod: Pod) -> str:
    """Why a Pod is not running; "" if unknown."""
    if pod.unscheduled:
        return read_text(pod.unscheduled, "message") or read_text(pod.unscheduled, "reason")
    for container in pod.all_container_statuses:
        waiting = read_waiting(container)
        if waiting:
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    return ""


async def _list_workers(client: Client, job: TrainingJob, worker: int | None = None) -> list[Pod]:
    """The workers of the newest attempt first."""
    selector = f"{job.pod_label}={job.name}"
    if isinstance(job, TrainJob):
        selector += f",{REPLICATED_JOB_NAME}={NODE_JOB}" + (
            f",{COMPLETION_INDEX}={worker}" if worker is not None else ""
        )
    found = await client.list(PODS, job.namespace, ListOptions(label_selector=selector))
    placed = [(place, Pod(pod)) for pod in found.items if (place := job.find_place(pod)) is not None]
    chosen = [(place.attempt, pod) for place, pod in placed if worker in (None, place.index)]
    return [pod for _, pod in sorted(chosen, key=lambda one: (one[0], one[1].created_at), reverse=True)]


async def count_workers(client: Client, job: TrainingJob) -> int:
    """The number of nodes that the job requests, otherwise the runtime's."""
    # If the runtime is deleted or not readable, the default number of nodes is 1.
    return (await count_nodes(client, [job])).get(job.uid, 1)


async def _read_live(
    client: Client, job: TrainingJob, worker: int, tail_lines: int | None
) -> tuple[bytes, bool] | None:
    """The log of the worker's newest Pod; None if there is none or it has not started."""
    for pod in await _list_workers(client, job, worker):
        if not _has_started(pod):
            continue
        end = LogEnd()
        options = LogOptions(container=NODE_JOB if job.has_jobset else "", tail_lines=tail_lines)
        try:
            async for piece in client.logs(pod.name, job.namespace, options):
                end.add(piece)
        except StatusError as error:
            if error.code in (400, 404):
                continue
            raise
        return end.read()
    return None


def _has_started(pod: Pod) -> bool:
    return any(
        {"running", "terminated"} & {*read_fields(one, "state"), *read_fields(one, "lastState")}
        for one in pod.container_statuses
    )


def _build_waiting(worker: int, why: str) -> Problem:
    return Problem(
        409,
        "not-started",
        f"worker {worker} has not started: {why}",
        hint="ask again; the job's status says what it waits for",
        retry_after=1,
    )
