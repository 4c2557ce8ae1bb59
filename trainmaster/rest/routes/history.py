"""Records of jobs that have ended or were deleted (docs/history.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.logs.contract import JobLogOptions
from trainmaster.jobs.logs.stream import watch_kept_lines
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.history import LogLines, RecordDetail, Records, RecordSummary
from trainmaster.rest.models.jobs import JobAttempt, JobAttempts
from trainmaster.rest.routes.jobs import Attempt, Continue, Limit, Namespace, Tail, Worker
from trainmaster.rest.services.attempts import list_attempts
from trainmaster.rest.services.history import RecordsWanted, list_pods
from trainmaster.rest.services.log_answers import read_end
from trainmaster.rest.services.namespaces import check_reader, find_namespace

router = APIRouter(prefix="/api/v1/history", tags=["history"])

Uid = Annotated[str, Path(description="uid of the record: that of the job.", min_length=1, max_length=64)]


@router.get("", summary="Jobs that have ended or were deleted", response_model_by_alias=True)
async def list_records(
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    name: Annotated[str, Query(max_length=253)] = "",
    state: Annotated[Literal["Complete", "Failed", "Deleted"] | None, Query()] = None,
    deleted: Annotated[bool | None, Query(description="true: only those whose job is gone.")] = None,
    limit: Limit = 100,
    token: Continue = "",
) -> Records:
    space = find_namespace(caller, namespace)
    await check_reader(caller, space)
    wanted = RecordsWanted(space, name, state or "", deleted, limit, token)
    items, more = await backend.history.select(wanted)
    return Records(items=[RecordSummary(**item) for item in items], **{"continue": more or None})


@router.get("/{uid}", summary="One record, whole")
async def read_record(uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None) -> RecordDetail:
    space = find_namespace(caller, namespace)
    await check_reader(caller, space)
    record = await backend.history.get(space, uid)
    return RecordDetail(**await backend.history.describe(record))


@router.get("/{uid}/attempts", summary="When each attempt began and ended, and why it failed")
async def list_record_attempts(
    uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None
) -> JobAttempts:
    space = find_namespace(caller, namespace)
    await check_reader(caller, space)
    record = await backend.history.get(space, uid)
    job = read_training_job(record.document["trainjob"])
    found = await list_attempts(job, list_pods(record), (), backend.history.kept)
    return JobAttempts(name=record.name, namespace=space, items=[JobAttempt(**one) for one in found])


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
    space = find_namespace(caller, namespace)
    await check_reader(caller, space)
    record = await backend.history.get(space, uid)
    wanted = JobLogOptions(attempt=attempt, rank=worker, tail=tail_lines)
    entries = watch_kept_lines(record.uid, wanted, backend.history.kept)
    printed = await read_end(entries, tail_lines)
    return LogLines(name=record.name, namespace=space, lines=printed.lines, truncated=printed.truncated)  # type: ignore[arg-type]  # pydantic makes models of them
