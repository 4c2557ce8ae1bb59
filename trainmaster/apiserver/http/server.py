"""The API server over HTTP: listens, serves every connection, ends in order.

`ApiServer` is an async context manager; entering binds the socket and returns when it accepts connections. It is the
`Application` behind each `Connection`: it turns a request into an outcome, lets answers out once they are durable, and
runs streams in tasks of its own scope. Works on asyncio's loop and on uvloop.

Leaving drains: no new connections, watches end cleanly, requests in progress are finished, idle connections are closed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter as Tally
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AsyncExitStack
from dataclasses import replace
from email.utils import format_datetime
from types import TracebackType
from typing import Self

from trainmaster.api import status
from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.audit import WRITES, AuditLog, find_created_name
from trainmaster.apiserver.http.gate import DurableGate
from trainmaster.apiserver.http.handlers import Handlers
from trainmaster.apiserver.http.limits import Limits
from trainmaster.apiserver.http.messages import (
    Query,
    Request,
    Response,
    encode,
    encode_head,
    encode_stream_head,
    encode_upgrade_head,
    error_response,
)
from trainmaster.apiserver.http.options import find_selected_name
from trainmaster.apiserver.http.protocol import PIECE_BYTES, Connection, Phase
from trainmaster.apiserver.http.routes import NO_ROUTE, Route, Router
from trainmaster.apiserver.http.streams import websocket
from trainmaster.apiserver.http.streams.handler import SUBRESOURCES, UpgradeResponse
from trainmaster.apiserver.http.watching import StreamResponse
from trainmaster.auth.contract import MASTERS
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.kit.metrics import Metrics
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import Store

log = logging.getLogger(__name__)


class ApiServer:
    """`handlers` says what is served; this class says how."""

    def __init__(
        self,
        handlers: Handlers,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        limits: Limits | None = None,
        metrics: Metrics | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        audit: AuditLog | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.tick = 0
        self._handlers = handlers
        self._store = store
        self._clock = clock
        self._tls = tls
        self._host, self._port = host, port
        self._audit = audit
        self._router = Router()
        self._gate = DurableGate(store)
        self._connections: set[Connection] = set()
        self._watchers: Tally[str] = Tally()
        self._draining = False
        self._date = b""
        uid = ids.uid()
        self._id_prefix = uid[: uid.rindex("-") + 1]
        self._count = 0
        self._stack = AsyncExitStack()
        self._scope = Scope("http")
        self._server: asyncio.Server | None = None
        metrics = metrics or Metrics()
        self.metrics = metrics
        self._requests = metrics.counter(
            "apiserver_request_total", "Requests answered.", ("verb", "group", "resource", "code")
        )
        self._durations = metrics.histogram(
            "apiserver_request_duration_seconds", "From a complete request to its answer.", ("verb",)
        )
        metrics.gauge("apiserver_connections", "Open connections.", lambda: len(self._connections))
        metrics.gauge("apiserver_longrunning_requests", "Open watches and followed logs.", self._watchers.total)

    # Life cycle

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._scope)
            self._scope.spawn_forever(self._gate.run(), name="http.durable")
            self._scope.spawn_forever(self._sweep(), name="http.sweep")
            self._set_date()
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Connection(self),
                self._host,
                self._port,
                ssl=self._tls,
                backlog=512,
                ssl_handshake_timeout=self.limits.header_seconds if self._tls else None,
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.drain()
        finally:
            for connection in tuple(self._connections):
                connection.abort()
            await self._stack.__aexit__(kind, error, trace)
            if self._audit is not None:
                self._audit.close()

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None, "the server is not running"
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    @property
    def url(self) -> str:
        host, port = self.address
        return f"{'https' if self._tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    async def drain(self) -> None:
        """Stops accepting, ends streams with their closing chunk, waits for requests in progress."""
        if self._draining:
            return
        self._draining = True
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            if connection.phase in (Phase.STREAMING, Phase.UPGRADED) and connection.task is not None:
                connection.task.cancel()
            elif not connection.busy:
                connection.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.drain_seconds
        while any(connection.busy for connection in self._connections) and loop.time() < deadline:
            await self._clock.sleep(0.01)

    async def _sweep(self) -> None:
        """Once a second: the Date header, and connections whose peer keeps us waiting."""
        while True:
            await self._clock.sleep(1.0)
            self.tick += 1
            self._set_date()
            for connection in tuple(self._connections):
                if connection.overdue():
                    self._cut(connection)

    def _cut(self, connection: Connection) -> None:
        if connection.phase in (Phase.HEADERS, Phase.BODY) and not connection.closing:
            error = StatusError(408, "Timeout", "the request was not received in time")
            self.refuse(error, connection)
        else:
            connection.abort()

    def _set_date(self) -> None:
        self._date = format_datetime(self._clock.now(), usegmt=True).encode()

    # protocol.Application

    def opened(self, connection: Connection) -> None:
        count = len(self._connections)
        if count >= 2 * self.limits.connections or self._draining:
            connection.abort()
            return
        connection.overload = count >= self.limits.connections
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def refuse(self, error: StatusError, connection: Connection) -> None:
        payload = encode(error_response(error), self._next_id(), self._date, keep_alive=False)
        self._requests.add("", "", "", str(error.code))
        connection.answer(payload, keep_alive=False, linger=True)

    def serve(self, request: Request, connection: Connection) -> None:
        request.id = self._next_id()
        request.started = self._clock.monotonic()
        try:
            if request.route is NO_ROUTE:
                self._prepare(request)
            if connection.overload:
                request.keep_alive = False
                raise status.too_many_requests("too many connections, please try again later", 1)
            outcome = self._handlers.handle(request)
        except StatusError as error:
            outcome = error_response(error, self._store.revision)
        except Exception:  # noqa: BLE001 - the HTTP error layer: an answer in every case
            outcome = self._internal_error(request)
        if isinstance(outcome, Response):
            self._let_out(request, connection, outcome)
        elif isinstance(outcome, StreamResponse):
            self._start_stream(request, connection, outcome)
        elif isinstance(outcome, UpgradeResponse):
            self._start_session(request, connection, outcome)
        else:
            connection.task = self._scope.spawn_guarded(
                self._finish_later(request, connection, outcome), name="http.request"
            )

    def _prepare(self, request: Request) -> None:
        target = request.target
        if not target.startswith("/"):
            raise status.bad_request("the request target must be an absolute path")
        raw_path, mark, raw_query = target.partition("?")
        try:
            route = self._router.route(request.method, raw_path)
        except UnicodeDecodeError:
            raise status.bad_request("the path is not valid UTF-8") from None
        if mark:
            request.query = Query(raw_query)
            if route.verb in ("list", "watch", "deletecollection"):
                route = _refine(route, request.query)
        request.route = route

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._id_prefix}{self._count:012x}"

    def _internal_error(self, request: Request) -> Response:
        log.exception("request failed", extra={"action": "http.internal_error", "request_id": request.id})
        return error_response(status.internal_error(request.id), self._store.revision)

    # Outcomes

    def _let_out(self, request: Request, connection: Connection, response: Response) -> None:
        revision = response.revision
        if revision <= self._store.durable_revision:
            self._send(request, connection, response)
        else:
            self._gate.pass_through(revision, lambda: self._send(request, connection, response))

    def _send(self, request: Request, connection: Connection, response: Response) -> None:
        keep_alive = request.keep_alive and not self._draining
        self._account(request, response.status, response.body)
        if len(response.body) <= PIECE_BYTES:
            connection.answer(encode(response, request.id, self._date, keep_alive), keep_alive)
            return
        head = encode_head(response, request.id, self._date, keep_alive)
        connection.task = self._scope.spawn_guarded(
            connection.answer_in_pieces(head, response.body, keep_alive), name="http.long_answer"
        )

    def _account(self, request: Request, code: int, body: bytes | bytearray) -> None:
        route = request.route
        self._requests.add(route.verb, route.group, route.plural, str(code))
        self._durations.observe(self._clock.monotonic() - request.started, route.verb)
        if self._audit is not None and route.is_resource and (route.verb in WRITES or _is_session(route)):
            entry = {
                "time": self._clock.now(),
                "requestId": request.id,
                "user": request.identity.user,
                "groups": request.identity.groups,
                "verb": route.verb,
                "group": route.group,
                "resource": f"{route.plural}/{route.subresource}" if route.subresource else route.plural,
                "namespace": route.namespace,
                "name": route.name or find_created_name(code, body),
                "dryRun": request.dry_run or request.query.get("dryRun") == "All",
                "code": code,
            }
            if request.impersonator:
                entry["impersonator"] = request.impersonator
            self._audit.write(entry)

    async def _finish_later(self, request: Request, connection: Connection, work: Awaitable[Response]) -> None:
        try:
            response = await work
        except StatusError as error:
            response = error_response(error, self._store.revision)
        except Exception:  # noqa: BLE001 - the HTTP error layer: an answer in every case
            response = self._internal_error(request)
        connection.task = None
        self._let_out(request, connection, response)

    def _may_stay(self, request: Request, connection: Connection) -> bool:
        """Counts one more long answer; False when it was refused instead."""
        user = request.identity.user
        limits = self.limits
        mine = limits.watchers if MASTERS in request.identity.groups else limits.watchers_per_user
        if self._watchers.total() >= limits.watchers or self._watchers[user] >= mine or self._draining:
            error = status.too_many_requests("too many open watches, please try again later", 1)
            self._let_out(request, connection, error_response(error))
            return False
        self._watchers[user] += 1
        return True

    def _note_left(self, request: Request) -> None:
        user = request.identity.user
        self._watchers[user] -= 1
        if not self._watchers[user]:
            del self._watchers[user]

    def _start_session(self, request: Request, connection: Connection, upgrade: UpgradeResponse) -> None:
        if self._may_stay(request, connection):
            connection.task = self._scope.spawn_guarded(
                self._run_session(request, connection, upgrade), name="http.session"
            )

    async def _run_session(self, request: Request, connection: Connection, upgrade: UpgradeResponse) -> None:
        session = upgrade.open(connection)
        self._account(request, 101, b"")
        connection.upgrade(encode_upgrade_head(request.id, self._date, upgrade.headers), session)
        try:
            await upgrade.serve(session)
        except (ConnectionResetError, TimeoutError):
            log.debug("session left", extra={"action": "http.session_left", "request_id": request.id})
        except asyncio.CancelledError:
            # The peer went away, or the server drains: whoever is still there is told.
            session.close(websocket.GOING_AWAY, "the server is shutting down")
        finally:
            self._note_left(request)
            connection.end_session()

    def _start_stream(self, request: Request, connection: Connection, stream: StreamResponse) -> None:
        if not self._may_stay(request, connection):
            stream.close()
            return
        connection.task = self._scope.spawn_guarded(self._run_stream(request, connection, stream), name="http.stream")

    async def _run_stream(self, request: Request, connection: Connection, stream: StreamResponse) -> None:
        head = encode_stream_head(stream.content_type, request.id, self._date, stream.headers)
        keep_alive, begun, refusal = request.keep_alive, False, None
        try:
            if stream.head_first:
                connection.begin_stream(head)
                begun = True
                stream.attach(connection)
            async for piece in stream.pieces:
                if not begun:
                    connection.begin_stream(head)
                    begun = True
                await connection.send(piece)
        except (ConnectionResetError, asyncio.CancelledError):
            # The peer went away, or the server drains: a drained stream still gets its closing chunk.
            keep_alive = False
        except StatusError as error:
            keep_alive, refusal = not begun and keep_alive, error
        except Exception:
            keep_alive, refusal = False, status.internal_error(request.id)
            log.exception("stream failed", extra={"action": "http.internal_error", "request_id": request.id})
        stream.close()
        if isinstance(stream.pieces, AsyncGenerator):
            await stream.pieces.aclose()
        self._note_left(request)
        if begun:
            self._account(request, 200, b"")
            connection.end_stream(keep_alive and not self._draining)
        else:
            request.keep_alive = keep_alive
            empty = Response(b"", content_type=stream.content_type, headers=stream.headers)
            self._let_out(request, connection, empty if refusal is None else error_response(refusal))


def _is_session(route: Route) -> bool:
    return route.plural == "pods" and route.subresource in SUBRESOURCES


def _refine(route: Route, query: Query) -> Route:
    """What only the query tells: a watch, and the one name a field selector asks for."""
    verb = "watch" if route.verb == "list" and query.flag("watch") else route.verb
    selected = find_selected_name(query.get("fieldSelector"))
    if verb == route.verb and not selected:
        return route
    return replace(route, verb=verb, selected=selected)
