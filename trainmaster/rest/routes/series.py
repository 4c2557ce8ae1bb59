"""What jobs reported and used over time, while they exist and from their records."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.history.curves.usage import UsagePoint
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.series import Series, Usage
from trainmaster.rest.routes.history import Uid
from trainmaster.rest.routes.jobs import JobKind, Name, Namespace
from trainmaster.rest.services import jobs, series
from trainmaster.rest.services.kept_jobs import get_record
from trainmaster.rest.services.namespaces import find_namespace

router = APIRouter(prefix="/api/v1", tags=["curves"])

After = Annotated[
    int, Query(description="Only what was reported after this time, in seconds since 1970.", ge=0, le=2**40)
]
Range = Annotated[
    series.Span,
    Query(alias="range", description="hour: as measured; day: by minute; all: 512 points; now: no curves."),
]


@router.get("/jobs/{name}/series", summary="What it reported over time")
async def read_job_series(
    name: Name,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    after: After = 0,
) -> Series:
    """At most 512 points, which keep the peaks of every metric."""
    space = find_namespace(caller, namespace)
    job = await jobs.get_job(caller.client, space, jobs.build_reference(name, kind))
    points = await backend.history.list_points(job.uid, after)
    return Series(name=job.name, namespace=space, uid=job.uid, **series.build_series(points))


@router.get("/history/{uid}/series", summary="What it reported over time")
async def read_record_series(
    uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None, after: After = 0
) -> Series:
    record = await get_record(caller, backend.history, uid, namespace)
    points = await backend.history.list_points(record.uid, after)
    return Series(name=record.name, namespace=record.namespace, uid=record.uid, **series.build_series(points))


@router.get("/jobs/{name}/usage", summary="What its ranks use, now and over time")
async def read_job_usage(
    name: Name,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    span: Range = "hour",
) -> Usage:
    """CPU, memory and GPUs. Over time on a home only; what was measured in the last minute is lost with the server."""
    space = find_namespace(caller, namespace)
    job = await jobs.get_job(caller.client, space, jobs.build_reference(name, kind))
    now = await series.read_now(caller.client, job, backend.usage.measure)
    points: list[UsagePoint] = []
    if span != "now":
        moment = int(backend.clock.unix())
        since = max(0, moment - series.SECONDS.get(span, moment))
        kept = await backend.history.list_usage(job.uid, since)
        points = series.shorten(series.join(kept, backend.usage.list_pending(job.uid)), span)
    return Usage(name=job.name, namespace=space, uid=job.uid, now=now, **series.build_usage(points))  # type: ignore[arg-type]  # pydantic makes models of them


@router.get("/history/{uid}/usage", summary="What its ranks used over time")
async def read_record_usage(uid: Uid, caller: CallerOf, backend: BackendOf, namespace: Namespace = None) -> Usage:
    record = await get_record(caller, backend.history, uid, namespace)
    kept = await backend.history.list_usage(record.uid)
    points = series.shorten(series.join(kept, backend.usage.list_pending(record.uid)), "all")
    found = series.build_usage(points)
    return Usage(name=record.name, namespace=record.namespace, uid=record.uid, now=[], **found)
