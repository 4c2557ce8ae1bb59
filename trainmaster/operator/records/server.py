"""The port of the records: reads only, over HTTPS, for API servers, with the limits of every port.

    GET /apis, /apis/GROUP, /apis/GROUP/VERSION             discovery
    GET .../[namespaces/NS/]jobrecords                      list, in pages
    GET .../namespaces/NS/jobrecords/UID                    one record, whole
    GET .../namespaces/NS/jobrecords/UID/log                what its processes printed

Everything that does not come from an API server is 401: `front_proxy`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import aclosing
from dataclasses import dataclass, replace
from http import HTTPStatus

import orjson

from trainmaster.api import status
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_RECORDS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ActingIdentity
from trainmaster.edge.connection import Connection
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import IncomingRequest
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.server import EdgeServer, open_listener
from trainmaster.history import objects
from trainmaster.history.archive import Filter, RecordLine
from trainmaster.history.paging import build_token, read_token
from trainmaster.history.record import JobRecord
from trainmaster.kit.clock import Clock
from trainmaster.operator.records.access import TRAIN_JOB, RecordAccess
from trainmaster.operator.records.documents import build_discovery, build_list, build_single, read_fields_wanted
from trainmaster.operator.records.front_proxy import FrontProxyWatch, read_caller
from trainmaster.operator.records.reading import ArchiveReader
from trainmaster.operator.records.routes import RecordAction, RecordRoute, parse_route
from trainmaster.operator.records.streaming import LogRequest, read_log_request, read_pieces
from trainmaster.operator.status_server import encode_answer

log = logging.getLogger(__name__)

LIMITS = EdgeLimits(
    # One line for each group of whoever asks, who may be in very many.
    header_bytes=128 * 1024,
    headers=2000,
    # No request has one that is answered; those of clients that try to delete a record fit.
    body_bytes=16 * 1024,
    connections=1000,
    # Longer than API servers keep an idle connection (90 s): a request that meets a closing connection would fail.
    idle_seconds=120.0,
)
_MOST_ITEMS = 1000
_STREAMS = 16
_API_SERVER = "an API server"


@dataclass(frozen=True, slots=True)
class Answer:
    content: Object
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class LogAnswer:
    uid: str
    request: LogRequest


class RecordService:
    """Answers requests whose sender is known."""

    def __init__(self, reader: ArchiveReader, access: RecordAccess, clock: Clock) -> None:
        self.reader = reader
        self._access = access
        self._clock = clock

    async def answer(self, route: RecordRoute, path: str, accept: str, caller: ActingIdentity) -> Answer | LogAnswer:
        """Raises StatusError."""
        if route.action is RecordAction.DISCOVER:
            return Answer(*build_discovery(path.rstrip("/"), accept))
        if route.action is RecordAction.LIST:
            return Answer(await self._list(route, accept, caller))
        record = await self._get(route, caller)
        if route.action is RecordAction.LOG:
            request = read_log_request(route.query, self._clock.now())
            await self._access.check_log(caller, route.namespace)
            return LogAnswer(record.uid, request)
        item = objects.build_complete_object(await self.reader.complete(record))
        return Answer(build_single(item, accept, route.query, self._clock.now()))

    async def _list(self, route: RecordRoute, accept: str, caller: ActingIdentity) -> Object:
        wanted = _read_filter(route)
        kinds = await self.reader.list_kinds(route.namespace)
        allowed = await self._access.choose_kinds(caller, route.namespace, kinds)
        found: list[RecordLine] = []
        if route.namespace in ("", wanted.namespace):
            # One more, to know whether there is another page.
            found = await self.reader.select(replace(wanted, kinds=allowed, limit=wanted.limit + 1))
        page = found[: wanted.limit]
        token = build_token(page[-1]) if len(found) > len(page) else ""
        items = [objects.build_object(line) for line in page]
        return build_list(items, token, accept, route.query, self._clock.now())

    async def _get(self, route: RecordRoute, caller: ActingIdentity) -> JobRecord:
        """Whoever may not read the job learns nothing about whether there is a record."""
        record = await self.reader.find(route.namespace, route.name)
        if record is None:
            await self._access.check_get(caller, TRAIN_JOB, route.namespace, "")
            raise status.not_found(JOB_RECORDS, route.name)
        await self._access.check_get(caller, record.kind, route.namespace, record.name)
        return record


def _read_filter(route: RecordRoute) -> Filter:
    """What a list shall have. Raises StatusError 400."""
    wanted, limit = read_fields_wanted(route.query), route.query.find_integer("limit") or 0
    if limit < 0:
        raise status.bad_request("limit: a number of records, 0 or more")
    try:
        after = read_token(route.query.get("continue"))
    except ValueError as error:
        raise status.bad_request(f"continue is {error}") from None
    return Filter(
        wanted.get("metadata.namespace", route.namespace),
        wanted.get("record.name", ""),
        wanted.get("record.state", ""),
        limit=min(limit or _MOST_ITEMS, _MOST_ITEMS),
        kind=wanted.get("record.kind", ""),
        uid=wanted.get("metadata.name", ""),
        after=after,
    )


class RecordsPort(EdgeServer[IncomingRequest]):
    """Serves while it is entered. Entering raises OSError if the port is not available."""

    make_request = IncomingRequest

    def __init__(
        self, service: RecordService, front: FrontProxyWatch, tls: ssl.SSLContext, host: str, port: int, clock: Clock
    ) -> None:
        """`tls`: verifies certificates of clients by the CA of `front`."""
        super().__init__(LIMITS, clock, tls=tls, name="records")
        self._service = service
        self._front = front
        self._where = (host, port)
        self._streams = asyncio.Semaphore(_STREAMS)

    def open_socket(self) -> socket.socket:
        try:
            return open_listener(*self._where)
        except OSError as error:
            where = f"port {self._where[1]}: {error.strerror}"
            raise OSError(f"cannot serve records on {where}; choose another operator.records_port") from None

    def serve(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        connection.task = self._scope.spawn_guarded(self._answer(request, connection), name="records.request")

    async def _answer(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        try:
            answer = await self._make_answer(request, connection)
            if isinstance(answer, LogAnswer):
                await self._send_log(answer, request, connection)
                return
        except StatusError as error:
            self._send_error(error, request, connection)
            return
        except Exception:
            log.exception("request failed", extra={"action": "records.failed"})
            text = "the record could not be read; the log of the operator says where"
            self._send_error(StatusError(500, "InternalError", text), request, connection)
            return
        body = orjson.dumps(answer.content)
        head = _build_head(answer.content_type, f"Content-Length: {len(body)}", request.keep_alive)
        await connection.answer_in_pieces(head, [body], request.keep_alive)

    async def _make_answer(
        self, request: IncomingRequest, connection: Connection[IncomingRequest]
    ) -> Answer | LogAnswer:
        caller = read_caller(self._front.trusted, request, self._clock.now().timestamp())
        self.gatekeeper.recognise(connection.visitor, _API_SERVER, is_privileged=True)
        route = parse_route(request.method, request.target)
        path, accept = request.target.partition("?")[0], request.headers.get("accept", "")
        return await self._service.answer(route, path, accept, caller)

    def _send_error(
        self, error: StatusError, request: IncomingRequest, connection: Connection[IncomingRequest]
    ) -> None:
        is_stranger = error.code == HTTPStatus.UNAUTHORIZED
        keep_alive = request.keep_alive and not is_stranger
        connection.task = None
        answer = encode_answer(error.code, error.to_object(), keep_alive)
        connection.answer(answer, keep_alive, linger=is_stranger)

    async def _send_log(
        self, answer: LogAnswer, request: IncomingRequest, connection: Connection[IncomingRequest]
    ) -> None:
        """Raises StatusError as long as nothing was sent."""
        if self._streams.locked():
            raise status.too_many_requests(f"{_STREAMS} logs are being read, and more are not; try again", 1)
        has_begun = False
        pieces = read_pieces(self._service.reader.directory, answer.uid, answer.request)
        try:
            async with self._streams, aclosing(pieces):
                first = await anext(pieces, b"")
                head = _build_head(answer.request.content_type, "Transfer-Encoding: chunked", request.keep_alive)
                connection.begin_stream(head)
                has_begun = True
                if first:
                    await connection.send(first)
                    async for piece in pieces:
                        await connection.send(piece)
            connection.end_stream(request.keep_alive)
        except ConnectionResetError:
            return
        except Exception as error:
            if not has_begun and not isinstance(error, OSError):
                raise
            log.warning("logs not read", extra={"action": "records.failed", "error": str(error)})
            if not has_begun:
                raise status.unavailable("the logs cannot be read; the log of the operator says why") from error
            # The reader notices that the answer is not complete.
            connection.abort()

    def refuse(self, refusal: EdgeRefusal, connection: Connection[IncomingRequest]) -> None:
        content = StatusError(refusal.code, refusal.reason, refusal.message).to_object()
        connection.answer(encode_answer(refusal.code, content, False), keep_alive=False, linger=True)


def _build_head(content_type: str, length: str, keep_alive: bool) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {content_type}", length, "X-Content-Type-Options: nosniff"]
    return "\r\n".join((*lines, *([] if keep_alive else ["Connection: close"]), "", "")).encode()
