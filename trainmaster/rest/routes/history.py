"""Records of jobs that have ended or were deleted (docs/history.md)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.logs.contract import JobLogOptions
from trainmaster.jobs.logs.stream import watch_kept_lines
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.history import LogLines, RecordDeleted, RecordDetail, RecordQuery, Records, RecordSummary
from trainmaster.rest.models.jobs import JobAttempts, RestartAnswer, RestartRequest
from trainmaster.rest.routes.jobs import Attempt, Key, Namespace, Tail, Worker
from trainmaster.rest.services import jobs
from trainmaster.rest.services.attempts import build_attempts, list_attempts
from trainmaster.rest.services.creation.keys import hash_key
from trainmaster.rest.services.history import RecordsWanted, list_pods
from trainmaster.rest.services.kept_jobs import delete_kept, get_record, rerun_kept
from trainmaster.rest.services.log_answers import read_end
from trainmaster.rest.services.namespaces import check_reader, find_namespace, list_readable

router = APIRouter(prefix="/api/v1/history", tags=["history"])

Uid = Annotated[str, Path(description="uid of the record: that of the job.", min_length=1, max_length=64)]


@router.get("", summary="Jobs that have ended or were deleted", response_model_by_alias=True)
async def list_records(caller: CallerOf, backend: BackendOf, asked: Annotated[RecordQuery, Query()]) -> Records:
    """Without `namespace` those of all namespaces in which the caller may read TrainJobs; for a tenant, its own."""
    if asked.namespace is None:
        spaces = await list_readable(caller)
    else:
        spaces = (find_namespace(caller, asked.namespace),)
    for space in spaces:
        await check_reader(caller, space)
    wanted = RecordsWanted(
        namespaces=spaces,
        name=asked.name,
        state=asked.state or "",
        deleted=asked.deleted,
        limit=asked.limit,
        token=asked.continue_,
        query=asked.q,
        runtime=asked.runtime,
        user=asked.user,
        since=asked.since,
        until=asked.until,
    )
    items, more = await backend.history.select(wanted)
    return Records(items=[RecordSummary(**item) for item in items], **{"continue": more or None})


@router.get("/{uid}", summary="One record, whole")
async def read_record(uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None) -> RecordDetail:
    record = await get_record(caller, backend.history, uid, namespace)
    return RecordDetail(**await backend.history.describe(record))


@router.delete("/{uid}", summary="Delete the record of a deleted job, with its logs and outputs")
async def delete_record(uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None) -> RecordDeleted:
    """For callers who may delete such jobs. Records of jobs that exist are not deleted."""
    record = await get_record(caller, backend.history, uid, namespace)
    await delete_kept(caller, backend.history, record)
    return RecordDeleted(uid=uid, name=record.name, namespace=record.namespace)


@router.post("/{uid}/rerun", summary="Run the same job again")
async def rerun_record(
    uid: Uid,
    caller: CallerOf,
    backend: BackendOf,
    body: RestartRequest | None = None,
    namespace: Namespace = None,
    key: Key = None,
) -> RestartAnswer:
    """From its record, whether the job still exists or not; its code has to exist. Without `name` it gets its own name
    if that is free, else one with a number."""
    space = find_namespace(caller, namespace)
    await check_reader(caller, space)
    new_name = jobs.check_name((body or RestartRequest()).name)
    record = await backend.history.get(space, uid)
    hashed = hash_key(caller, space, f"rerun {uid} {key}") if key else ""
    made = await rerun_kept(caller.client, record, new_name, hashed)
    return RestartAnswer(name=made["metadata"]["name"], namespace=space, attempt=0, created=True)


@router.get("/{uid}/attempts", summary="When each attempt began and ended, and why it failed")
async def list_record_attempts(
    uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None
) -> JobAttempts:
    record = await get_record(caller, backend.history, uid, namespace)
    job = read_training_job(record.document["trainjob"])
    found = await list_attempts(job, list_pods(record), (), backend.history.kept)
    points = await backend.history.list_points(uid)
    return JobAttempts(name=record.name, namespace=record.namespace, items=build_attempts(found, points))


@router.get("/{uid}/logs", summary="What its workers printed")
async def read_record_logs(
    uid: Uid,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    worker: Worker = None,
    attempt: Attempt = None,
    tail_lines: Tail = None,
) -> LogLines:
    record = await get_record(caller, backend.history, uid, namespace)
    wanted = JobLogOptions(attempt=attempt, rank=worker, tail=tail_lines)
    entries = watch_kept_lines(record.uid, wanted, backend.history.kept)
    printed = await read_end(entries, tail_lines)
    return LogLines(
        name=record.name,
        namespace=record.namespace,
        lines=printed.lines,  # type: ignore[arg-type]  # pydantic makes models of them
        truncated=printed.truncated,
    )
