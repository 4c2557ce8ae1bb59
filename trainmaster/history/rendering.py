"""Formats records for people and programs. Pure; shared by the command line and the REST API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

from trainmaster.api import code
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_status
from trainmaster.api.training.failing.failures import LAST_WORDS, summarize_failure
from trainmaster.history.archive import RecordLine
from trainmaster.history.curves import series
from trainmaster.history.curves.series import Point
from trainmaster.history.record import JobRecord
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.logs.contract import KeptLog
from trainmaster.jobs.models.pods import read_last_terminated, read_terminated
from trainmaster.jobs.models.training import FAILED, TrainingJob

_COLUMNS = ("NAMESPACE", "NAME", "STATE", "ENDED", "DELETED", "BY", "RUNTIME", "UID")
_EVENTS_SHOWN = 20


class RecordedLog(KeptLog, Protocol):
    """A log that a record has, here or elsewhere."""

    @property
    def bytes(self) -> int: ...


def build_table(lines: Sequence[RecordLine]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows, with a column for the kind if not all are TrainJobs."""
    if all(line.kind == "TrainJob" for line in lines):
        return _COLUMNS, [_to_row(line) for line in lines]
    namespace, *more = _COLUMNS
    rows = [_to_row(line) for line in lines]
    kinds = [line.kind for line in lines]
    return (namespace, "KIND", *more), [(row[0], kind, *row[1:]) for kind, row in zip(kinds, rows, strict=True)]


def _to_row(line: RecordLine) -> tuple[str, ...]:
    deletion = line.deletion
    return (
        line.namespace,
        line.name,
        line.state,
        line.finished or "-",
        deletion.at if deletion else "-",
        (deletion.by or "unknown") if deletion else "-",
        line.runtime or "-",
        line.uid[:8],
    )


def to_data(line: RecordLine | JobRecord) -> Object:
    return {
        "uid": line.uid,
        "namespace": line.namespace,
        "name": line.name,
        "kind": line.kind,
        "runtime": line.runtime,
        "state": line.state,
        "created": line.created,
        "finished": line.finished,
        "deletion": None if line.deletion is None else asdict(line.deletion),
    }


def to_full_data(record: JobRecord, logs: Sequence[RecordedLog], points: Sequence[Point] = ()) -> Object:
    more = {"logs": [log_to_data(log) for log in logs], "progress": series.to_data(points)}
    return {**to_data(record), **record.document, **more}


def log_to_data(log: RecordedLog) -> Object:
    place = log.place
    return {
        "attempt": place.attempt,
        "job": place.job,
        "rank": place.index,
        "pod": place.pod,
        "container": log.container,
        "restart": log.restart,
        "bytes": log.bytes,
    }


def name_log(log: RecordedLog) -> str:
    place = log.place
    restart = f" restart {log.restart}" if log.restart else ""
    return f"{place.job}-{place.index} attempt {place.attempt}{restart} {log.container}"


def name_logs(logs: Sequence[RecordedLog]) -> str:
    names = [name_log(log) for log in logs]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def describe(record: JobRecord, logs: Sequence[RecordedLog], points: Sequence[Point] = ()) -> Iterator[str]:
    """The details of one job as text."""
    document, job = record.document, read_training_job(record.document["trainjob"])
    yield f"Name:       {record.name}"
    yield f"Namespace:  {record.namespace}"
    yield f"UID:        {record.uid}"
    yield f"Runtime:    {record.runtime}" if record.runtime else f"Kind:       {record.kind}"
    yield from _describe_code(job.annotations)
    yield f"State:      {record.state}"
    yield from _describe_failure(job, record.state)
    yield f"Created:    {record.created}"
    yield f"Ended:      {record.finished or '-'}"
    if record.deletion is not None:
        why = f" ({record.deletion.why})" if record.deletion.why else ""
        yield f"Deleted:    {record.deletion.at} by {record.deletion.by or 'somebody unknown'}{why}"
    restarts = max((int(read_status(js).get("restarts") or 0) for js in document["jobsets"]), default=0)
    if restarts:
        yield f"Restarts:   {restarts}"
    yield from _describe_progress(points)
    yield from (f"Gap:        {gap}" for gap in document["gaps"])
    if document["pods"]:
        yield "Pods:"
        yield from (f"  {line}" for line in _describe_pods(document["pods"]))
    if logs:
        size = sum(log.bytes for log in logs)
        yield f"Logs:       {len(logs)}, {size} bytes: `trainmaster history logs {record.name}`"
    events = document["events"]
    if events:
        yield "Events:"
        for event in events[-_EVENTS_SHOWN:]:
            times = f" (x{event['count']})" if event["count"] > 1 else ""
            said = event["message"].partition(LAST_WORDS)[0]
            yield f"  {event['last'] or event['first']}  {event['reason']}  {event['about']}: {said}{times}"


def _describe_failure(job: TrainingJob, state: str) -> Iterator[str]:
    """Why it failed: which rank and how, followed by its last lines."""
    if job.end_condition is None or state != FAILED:
        return
    end = job.state_ignoring_deletion
    failure = end.failure or {}
    yield f"Why:        {summarize_failure(failure) if failure else f'{end.reason}: {end.message}'}"
    if failure.get("message"):
        yield "Last words:"
        lines = failure["message"].splitlines()
        # Remove control characters, which could otherwise affect the reader's terminal.
        yield from ("  " + "".join(char if char.isprintable() else " " for char in line) for line in lines)


def _describe_code(annotations: Mapping[str, str]) -> Iterator[str]:
    if digest := annotations.get(code.CODE_DIGEST):
        commit = annotations.get(code.GIT_COMMIT, "")
        changed = " with changes" if annotations.get(code.GIT_DIRTY) == "true" else ""
        yield f"Code:       {digest}" + (f", commit {commit}{changed}" if commit else "")


def _describe_progress(points: Sequence[Point]) -> Iterator[str]:
    if not points:
        return
    done = [point.progress for point in points if point.progress is not None]
    reached = f"{done[-1]} %, " if done else ""
    yield f"Progress:   {reached}{len(points)} points kept: `-o json` shows them"
    courses = series.list_courses(points)
    if courses:
        yield "Metrics:"
        width = max(len(course.name) for course in courses)
        for one in courses:
            bounds = f"(least {one.least:.6g}, most {one.most:.6g})"
            yield f"  {one.name:<{width}}  {one.first:.6g} -> {one.last:.6g}  {bounds}"


def _describe_pods(pods: Sequence[Fields]) -> Iterator[str]:
    for pod in pods:
        status = pod["status"]
        yield f"{pod['name']}  {status.get('phase', 'Unknown')}{_describe_end(status)}"


def _describe_end(status: Fields) -> str:
    for container in list_items(status, "containerStatuses"):
        ended = read_terminated(container) or read_last_terminated(container)
        if ended.get("exitCode"):
            return f"  {container['name']} ended with exit code {ended['exitCode']} ({ended.get('reason', '')})"
    return ""
