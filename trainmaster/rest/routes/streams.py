"""Live logs and events of a job as server-sent events (docs/rest.md, "Streams")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from trainmaster.history.record import JobRecord
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.logs.contract import JobLogOptions
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.openapi import Responses
from trainmaster.rest.routes.jobs import JobKind, Name, Namespace, Worker
from trainmaster.rest.services.jobs import build_reference, check_worker, get_job
from trainmaster.rest.services.live import job_events, log_cursor
from trainmaster.rest.services.live.items import encode_items
from trainmaster.rest.services.live.log_access import MOST_WORKERS, follow_job_log, follow_record_log
from trainmaster.rest.services.live.log_pieces import encode_pieces
from trainmaster.rest.services.namespaces import check_reader, find_namespace
from trainmaster.rest.sse import MEDIA_TYPE, EventStream

router = APIRouter(prefix="/api/v1", tags=["streams"])

LastId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="id of the last event that you have; EventSource sends it by itself."),
]
LastIdQuery = Annotated[
    str, Query(alias="last_event_id", description="The same for clients that cannot set headers.", max_length=32_768)
]
Since = Annotated[
    str,
    Query(
        alias="since_time",
        description="Nothing that was printed before (RFC 3339, UTC).",
        pattern=r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z)?$",
        max_length=30,
    ),
]
_LOG = 'id: eJ...\nevent: log\ndata: {"lines":[{"attempt":0,"job":"node","worker":0,"text":"loss 0.31"}]}\n\n'
_STATE = 'id: 4b1b6ab4.812.9f3c\nevent: state\ndata: {"state":"Running","reason":null}\n\n'


def describe_stream(example: str) -> Responses:
    content = {MEDIA_TYPE: {"schema": {"type": "string"}, "example": example}}
    return {
        200: {"description": "Events, until the job is over.", "content": content},
        204: {"description": "That was all: the id is that of the last event."},
    }


@router.get(
    "/jobs/{name}/logs/stream",
    summary="What its workers print, as it comes",
    responses=describe_stream(_LOG),
    response_class=Response,
)
async def stream_logs(
    name: Name,
    request: Request,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    worker: Worker = None,
    since: Since = "",
    last_id: LastId = None,
    last_event_id: LastIdQuery = "",
) -> Response:
    """Events `log`, `mark` and `end`. From the first line on, through restarts, until the job is over; a deleted
    job's from history. With `Last-Event-ID` it goes on after that event: nothing twice, nothing lost."""
    space = find_namespace(caller, namespace)
    backend.streams.check(caller.identity.user)
    cursor = log_cursor.parse_cursor(last_id or last_event_id)
    found = await backend.reader.find(caller.client, space, build_reference(name, kind))
    job = read_training_job(found.document["trainjob"]) if isinstance(found, JobRecord) else found
    log_cursor.check_job(job.uid, cursor.uid)
    if cursor.over:
        return Response(status_code=204)
    await check_worker(caller.client, job, worker, most=MOST_WORKERS)
    wanted, kept = JobLogOptions(follow=True, rank=worker, since_time=since), backend.history.kept
    if isinstance(found, JobRecord):
        source = follow_record_log(backend.sources, caller, found, wanted, kept, cursor)
    else:
        source = follow_job_log(backend.sources, caller, backend.clock, found, wanted, kept, cursor)
    check = _build_check(request, space)
    return EventStream(source, encode_pieces, backend.streams, caller.identity.user, check)


@router.get(
    "/jobs/{name}/events/stream",
    summary="What happens to it, as it comes",
    responses=describe_stream(_STATE),
    response_class=Response,
)
async def stream_events(
    name: Name,
    request: Request,
    caller: CallerOf,
    backend: BackendOf,
    namespace: Namespace = None,
    kind: JobKind = None,
    last_id: LastId = None,
    last_event_id: LastIdQuery = "",
) -> Response:
    """Events `state` (its state or progress has changed), `event` (Kubernetes events about it) and `end`."""
    space = find_namespace(caller, namespace)
    backend.streams.check(caller.identity.user)
    cursor = job_events.parse_cursor(last_id or last_event_id)
    if cursor.over:
        await check_reader(caller, space)
        return Response(status_code=204)
    job = await get_job(caller.client, space, build_reference(name, kind))
    log_cursor.check_job(job.uid, cursor.uid)
    source = job_events.follow_events(backend.sources, caller, backend.clock, job, cursor)
    check = _build_check(request, space)
    return EventStream(source, encode_items, backend.streams, caller.identity.user, check)


def _build_check(request: Request, namespace: str) -> Callable[[], Awaitable[None]]:
    """Builds a check that the token is still valid and its user may still read jobs there."""
    identify = request.state.identify

    async def check() -> None:
        await check_reader(await identify(), namespace)

    return check
