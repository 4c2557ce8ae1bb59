"""What the ranks of a job were doing: before they were stopped, when they failed, or now (docs/evidence.md)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.evidence import Evidence
from trainmaster.rest.routes.history import Uid
from trainmaster.rest.routes.jobs import JobKind, Name, Namespace
from trainmaster.rest.services import jobs
from trainmaster.rest.services.evidence import collect_evidence, read_evidence
from trainmaster.rest.services.kept_jobs import get_record
from trainmaster.rest.services.namespaces import find_namespace

router = APIRouter(prefix="/api/v1", tags=["evidence"])

OfAttempt = Annotated[
    int | None, Query(alias="attempt", description="Default: the last one that has any.", ge=0, le=2**31 - 1)
]


@router.get("/jobs/{name}/evidence", summary="What its ranks were doing when it was last looked at")
async def read_job_evidence(
    name: Name,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    attempt: OfAttempt = None,
) -> Evidence:
    """Collected before a job is stopped at its deadline or because it stands still, of ranks that failed, and on
    request."""
    space = find_namespace(caller, namespace)
    job = await jobs.get_job(caller.client, space, jobs.build_reference(name, kind))
    found = await read_evidence(backend.evidence, job.uid, attempt)
    return Evidence(name=job.name, namespace=space, uid=job.uid, **found)


@router.post("/jobs/{name}/evidence", summary="Look now at what its ranks are doing")
async def collect_job_evidence(
    name: Name, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, kind: JobKind = None
) -> Evidence:
    """Takes two seconds at most, and does not stop them. For callers who may run programs in the job's Pods."""
    space = find_namespace(caller, namespace)
    job = await jobs.get_job(caller.client, space, jobs.build_reference(name, kind))
    found = await collect_evidence(backend.evidence, caller, job)
    return Evidence(name=job.name, namespace=space, uid=job.uid, **found)


@router.get("/history/{uid}/evidence", summary="What its ranks were doing when it was last looked at")
async def read_record_evidence(
    uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, attempt: OfAttempt = None
) -> Evidence:
    record = await get_record(caller, backend.history, uid, namespace)
    found = await read_evidence(backend.evidence, record.uid, attempt)
    return Evidence(name=record.name, namespace=record.namespace, uid=record.uid, **found)
