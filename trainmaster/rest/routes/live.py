"""Everything that a live page needs beside single jobs: the server, the namespaces, and one stream for all topics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from trainmaster.kit.clock import format_time
from trainmaster.rest.context import BackendOf, CallerOf
from trainmaster.rest.models.server import Namespaces, Server
from trainmaster.rest.openapi import Responses
from trainmaster.rest.routes.jobs import Attempt, Namespace, Tail, Worker
from trainmaster.rest.routes.streams import LastId, LastIdQuery, describe_stream
from trainmaster.rest.services.live.live_stream import LiveStream, LogWish
from trainmaster.rest.services.live.topics import parse_positions, parse_topics
from trainmaster.rest.services.namespaces import find_namespace, list_readable_names
from trainmaster.rest.sse import EventStream
from trainmaster.version import __version__

router = APIRouter(prefix="/api/v1", tags=["live"])

Topics = Annotated[
    list[str] | None,
    Query(
        alias="topic",
        description="`jobs`, `machine`; `job:NAMESPACE/NAME`, `log:...`, `usage:...`; `KIND/` before NAME if needed.",
        max_length=64,
        examples=["jobs"],
    ),
]
_FRAME = 'id: jobs=4b1b6ab4.12\nevent: gone\ndata: {"topic":"jobs","namespace":"ann","name":"mnist"}\n\n'
_STREAM: Responses = describe_stream(_FRAME)


@router.get("/server", summary="This server: version, time, what it can do")
async def read_server(caller: CallerOf, backend: BackendOf) -> Server:
    found = backend.server
    return Server(
        version=__version__,
        mode=found.mode,
        name=found.name,
        time=format_time(backend.clock.now()),
        read_only=caller.read_only,
        abilities=list(found.abilities),
    )


@router.get("/namespaces", summary="Where I may read jobs")
async def list_namespaces(caller: CallerOf) -> Namespaces:
    return Namespaces(items=await list_readable_names(caller))


@router.get(
    "/stream",
    summary="Jobs, details and logs as they change, in one stream",
    responses=_STREAM,
    response_class=Response,
)
async def stream_topics(
    request: Request,
    caller: CallerOf,
    backend: BackendOf,
    topic: Topics = None,
    namespace: Namespace = None,
    worker: Worker = None,
    attempt: Attempt = None,
    tail_lines: Tail = None,
    last_id: LastId = None,
    last_event_id: LastIdQuery = "",
) -> Response:
    """Up to 16 topics. Each event's `data` has its `topic`; a topic that ends with `problem` does not end the others.
    With `Last-Event-ID` every topic goes on after that event."""
    backend.streams.check(caller.identity.user)
    topics = parse_topics(topic or ())
    positions = parse_positions(last_id or last_event_id, topics)
    space = None if namespace is None else find_namespace(caller, namespace)
    stream = LiveStream(caller, backend, topics, positions, space, LogWish(worker, attempt, tail_lines))
    if stream.is_over:
        return Response(status_code=204)
    identify = request.state.identify

    async def check() -> None:
        await stream.check(await identify())

    return EventStream(stream.watch(), stream.encode, backend.streams, caller.identity.user, check)
