"""Jobs of `/api/v1`: list, read, suspend, resume, restart, delete, explain, and logs; also the runtimes."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Header, Path, Query, Response

from trainmaster.api.meta import Object
from trainmaster.jobs.logs.contract import JobLogOptions
from trainmaster.jobs.logs.stream import watch_lines
from trainmaster.jobs.lookups import read_parts
from trainmaster.jobs.models.pods import Pod
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.history import LogLines
from trainmaster.rest.models.jobs import (
    Deleted,
    Explanation,
    JobAttempts,
    JobDetail,
    Jobs,
    JobState,
    JobSummary,
    ReplaceAnswer,
    ReplaceRequest,
    RestartAnswer,
    RestartRequest,
    Runtimes,
)
from trainmaster.rest.models.runtimes import RuntimeDetail
from trainmaster.rest.openapi import Responses
from trainmaster.rest.problems import not_found
from trainmaster.rest.services import jobs
from trainmaster.rest.services.attempts import build_attempts, list_attempts
from trainmaster.rest.services.creation.keys import hash_key
from trainmaster.rest.services.creation.replacing import replace_waiting
from trainmaster.rest.services.deleting import delete_job
from trainmaster.rest.services.job_views import build_change
from trainmaster.rest.services.log_answers import read_end
from trainmaster.rest.services.namespaces import find_namespace
from trainmaster.rest.services.runtimes import read_runtime

router = APIRouter(prefix="/api/v1", tags=["jobs"])

Name = Annotated[str, Path(description="The job.", min_length=1, max_length=253)]
Namespace = Annotated[
    str | None, Query(description="Default: the caller's own.", min_length=1, max_length=63, examples=["ann"])
]
JobKind = Annotated[
    str | None,
    Query(
        alias="kind",
        description="Its kind, if jobs of several kinds have the name.",
        max_length=63,
        examples=["PyTorchJob"],
    ),
]
Label = Annotated[list[str] | None, Query(description="KEY or KEY=VALUE; all of them.", max_length=20)]
Limit = Annotated[int, Query(description="Most jobs of one page.", ge=1, le=500)]
Continue = Annotated[str, Query(alias="continue", description="`continue` of the page before.", max_length=4096)]
Worker = Annotated[int | None, Query(description="Only this worker, from 0 on; default: all.", ge=0, le=100_000)]
Attempt = Annotated[int | None, Query(description="Only this attempt, from 0 on; default: all.", ge=0, le=2**31 - 1)]
Tail = Annotated[int | None, Query(description="Only so many lines from the end.", ge=0, le=100_000)]
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Sending it again does nothing again.", max_length=255),
]
Known = Annotated[str | None, Header(alias="If-None-Match", description="ETag of the answer that you have.")]
RuntimeName = Annotated[str, Path(description="The runtime.", min_length=1, max_length=253)]
RuntimeKind = Annotated[
    Literal["ClusterTrainingRuntime", "TrainingRuntime"] | None,
    Query(alias="kind", description="Of the cluster, or of a namespace."),
]
NOT_MODIFIED: Responses = {304: {"description": "It is as you know it."}}


@router.get("/jobs", summary="Jobs, by filters and pages", response_model_by_alias=True)
async def list_jobs(
    caller: CallerOf,
    namespace: Namespace = None,
    kind: Annotated[str | None, Query(description="Only this kind; default: all.", max_length=63)] = None,
    state: Annotated[JobState | None, Query(description="Only those in this state.")] = None,
    framework: Annotated[str | None, Query(max_length=63)] = None,
    runtime: Annotated[str | None, Query(max_length=253)] = None,
    user: Annotated[str | None, Query(description="Whose jobs.", max_length=63)] = None,
    label: Label = None,
    limit: Limit = 100,
    token: Continue = "",
) -> Jobs:
    """Administrators who leave out `namespace` get all namespaces. A page may have fewer than `limit`."""
    everywhere = namespace is None and caller.tenant is None
    wanted = jobs.JobFilter(
        namespace="" if everywhere else find_namespace(caller, namespace),
        kind=kind or "",
        state=state,
        framework=framework,
        runtime=runtime,
        user=user,
        labels=tuple(label or ()),
        limit=limit,
        token=token,
    )
    page = await jobs.list_jobs(caller.client, wanted)
    return Jobs(items=[JobSummary(**item) for item in page.items], **{"continue": page.token or None})


@router.get("/jobs/{name}", summary="One job, whole", responses=NOT_MODIFIED, response_model=JobDetail)
async def read_job(
    name: Name, caller: CallerOf, namespace: Namespace = None, kind: JobKind = None, if_none_match: Known = None
) -> Response:
    """With an ETag: `If-None-Match` answers 304 while nothing has changed."""
    reference = jobs.build_reference(name, kind)
    found = await jobs.read_job(caller.client, find_namespace(caller, namespace), reference)
    return answer_tagged(JobDetail(**found).model_dump(), if_none_match)


@router.delete("/jobs/{name}", summary="Delete a job; its workers end, its record stays")
async def remove_job(
    name: Name, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, kind: JobKind = None
) -> Deleted:
    """Doing it again is no error."""
    space = find_namespace(caller, namespace)
    done = await delete_job(caller.client, backend.reader, space, jobs.build_reference(name, kind))
    return Deleted(name=name, namespace=space, message=done.message)


@router.post("/jobs/{name}/suspend", summary="Stop its workers and give their room to others")
async def suspend_job(name: Name, caller: CallerOf, namespace: Namespace = None, kind: JobKind = None) -> JobDetail:
    space, reference = find_namespace(caller, namespace), jobs.build_reference(name, kind)
    return JobDetail(**await jobs.suspend_job(caller.client, space, reference, True))


@router.post("/jobs/{name}/resume", summary="Let a suspended job go on")
async def resume_job(name: Name, caller: CallerOf, namespace: Namespace = None, kind: JobKind = None) -> JobDetail:
    space, reference = find_namespace(caller, namespace), jobs.build_reference(name, kind)
    return JobDetail(**await jobs.suspend_job(caller.client, space, reference, False))


@router.post("/jobs/{name}/restart", summary="The next attempt, or the same job again if it has ended")
async def restart_job(
    name: Name,
    caller: CallerOf,
    body: RestartRequest | None = None,
    namespace: Namespace = None,
    kind: JobKind = None,
    key: Key = None,
) -> RestartAnswer:
    space = find_namespace(caller, namespace)
    new_name = jobs.check_name((body or RestartRequest()).name)
    reference = jobs.build_reference(name, kind)
    hashed = hash_key(caller, space, f"restart {reference} {key}") if key else ""
    done = await jobs.restart_job(caller.client, space, reference, new_name=new_name, key=hashed)
    return RestartAnswer(name=done.name, namespace=space, attempt=done.attempt, created=done.created)


@router.post("/jobs/{name}/replace", summary="The same job with a change, in place of one that waits", status_code=201)
async def replace_job(
    name: Name,
    caller: CallerOf,
    body: ReplaceRequest,
    namespace: Namespace = None,
    kind: JobKind = None,
) -> ReplaceAnswer:
    """Creates the changed job under a new name, with its own copy of the code; then deletes the old one. A job that
    runs, or has ended, is not replaced."""
    space, new_name = find_namespace(caller, namespace), jobs.check_name(body.name)
    made = await replace_waiting(caller.client, space, jobs.build_reference(name, kind), body.patch, new_name)
    meta = made["metadata"]
    return ReplaceAnswer(name=meta["name"], namespace=space, uid=meta["uid"])


@router.get("/jobs/{name}/explain", summary="Why does it wait, and what would start it?")
async def explain_job(
    name: Name, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, kind: JobKind = None
) -> Explanation:
    space = find_namespace(caller, namespace)
    job = await jobs.get_job(caller.client, space, jobs.build_reference(name, kind))
    found = await backend.explain(caller.client, space, job.reference)
    if found is None:
        raise not_found(f"the job {name[:64]!r} has gone meanwhile")
    return Explanation(**{**found, "changes": [build_change(one) for one in found["changes"]]})


@router.get("/jobs/{name}/attempts", summary="When each attempt began and ended, and why it failed")
async def list_job_attempts(
    name: Name, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, kind: JobKind = None
) -> JobAttempts:
    """Pods of earlier attempts are gone: of these it tells what their kept logs and the job itself say."""
    space = find_namespace(caller, namespace)
    job = await jobs.get_job(caller.client, space, jobs.build_reference(name, kind))
    parts = await read_parts(caller.client, job)
    found = await list_attempts(job, list(map(Pod, parts.pods)), parts.uids, backend.history.kept)
    points = await backend.history.list_points(job.uid)
    return JobAttempts(name=name, namespace=space, items=build_attempts(found, points))


@router.get("/jobs/{name}/logs", summary="What its workers printed so far")
async def read_job_logs(
    name: Name,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    worker: Worker = None,
    attempt: Attempt = None,
    tail_lines: Tail = None,
) -> LogLines:
    """The last 8 MiB, or so many lines. GET .../logs/stream goes on with what comes."""
    space = find_namespace(caller, namespace)
    job = await jobs.get_job(caller.client, space, jobs.build_reference(name, kind))
    wanted = JobLogOptions(attempt=attempt, rank=worker, tail=tail_lines)
    entries = watch_lines(caller.client, backend.clock, space, job.reference, wanted, backend.history.kept)
    printed = await read_end(entries, tail_lines)
    return LogLines(name=name, namespace=space, lines=printed.lines, truncated=printed.truncated)  # type: ignore[arg-type]  # pydantic makes models of them


@router.get("/runtimes", summary="What jobs can run on")
async def list_runtimes(caller: CallerOf, backend: BackendOf, namespace: Namespace = None) -> Runtimes:
    space = find_namespace(caller, namespace)
    found = await jobs.list_runtimes(caller.client, space)
    return Runtimes(items=found, frameworks=backend.jobs.list_frameworks())  # type: ignore[arg-type]  # pydantic makes models of them


@router.get("/runtimes/{name}", summary="One runtime: what it offers, and who uses it")
async def read_one_runtime(
    name: RuntimeName,
    caller: CallerOf,
    namespace: Namespace = None,
    kind: RuntimeKind = None,
) -> RuntimeDetail:
    """Without `kind` that of the cluster, or else that of the namespace."""
    return RuntimeDetail(**await read_runtime(caller, name, namespace, kind))


def answer_tagged(data: Object, known: str | None) -> Response:
    """The tag is a hash of the content, so it survives restarts and is the same on every server."""
    body = orjson.dumps(data)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    # May be cached if it is revalidated each time.
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    tags = [part.strip().removeprefix("W/") for part in (known or "").split(",")]
    if tag in tags or tags == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")
