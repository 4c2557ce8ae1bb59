"""The API server over HTTP: serves requests through the handlers and encodes the results.

`ApiServer` is an `EdgeServer`, which handles connections, their limits and draining. It sends answers once they are
durable, and runs streams in tasks of its own scope.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import replace
from types import TracebackType

from trainmaster.api import status
from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.audit import WRITES, AuditLog, find_created_name
from trainmaster.apiserver.http.callers import CallerLimits, NotYetError, TooFastError
from trainmaster.apiserver.http.carrying import UPGRADE, CarrierSession, CarryResponse
from trainmaster.apiserver.http.gate import DurableGate
from trainmaster.apiserver.http.handlers import Handlers
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import (
    ApiRequest,
    Query,
    Response,
    build_status_error,
    encode,
    encode_head,
    encode_stream_head,
    encode_upgrade_head,
    error_response,
)
from trainmaster.apiserver.http.options import find_selected_name
from trainmaster.apiserver.http.routes import NO_ROUTE, Route, Router
from trainmaster.apiserver.http.standing import CHECK_SECONDS, StandingStream, StandingStreams
from trainmaster.apiserver.http.streams import websocket
from trainmaster.apiserver.http.streams.contract import Wire
from trainmaster.apiserver.http.streams.handler import S, UpgradeResponse, is_session
from trainmaster.apiserver.http.watching import StreamResponse
from trainmaster.apiserver.metrics import CONNECTIONS, DURATION, LONG_RUNNING, REQUESTS
from trainmaster.edge.connection import PIECE_BYTES, Connection
from trainmaster.edge.gatekeeper import Gatekeeper, Visitor
from trainmaster.edge.messages import PeerCertificate
from trainmaster.edge.multiplexing import CarriedTransport
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.server import EdgeServer, open_listener
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.kit.metrics import Metrics
from trainmaster.store.contract import Store

log = logging.getLogger(__name__)

Peer = Connection[ApiRequest]

_LATE_SECONDS = 0.5
"""Delay of 429 answers: callers that ignore Retry-After and open a connection per attempt would otherwise cost more
than requests that are served."""


class ApiServer(EdgeServer[ApiRequest]):
    """`handlers` defines what is served; this class defines how."""

    make_request = ApiRequest

    def __init__(
        self,
        handlers: Handlers,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        limits: ApiLimits | None = None,
        metrics: Metrics | None = None,
        tls: ssl.SSLContext | None = None,
        gatekeeper: Gatekeeper | None = None,
        where: tuple[str, int] = ("127.0.0.1", 0),
        audit: AuditLog | None = None,
    ) -> None:
        limits = limits or ApiLimits()
        super().__init__(limits, clock, gatekeeper=gatekeeper, tls=tls)
        self._handlers = handlers
        self._store = store
        self._where = where
        self._audit = audit
        self._router = Router()
        self._gate = DurableGate(store)
        self._standing = StandingStreams(limits, self._check_standing)
        self._callers = CallerLimits(limits, clock, self.gatekeeper)
        self._date = b""
        uid = ids.uid()
        self._id_prefix = uid[: uid.rindex("-") + 1]
        self._count = 0
        metrics = metrics or Metrics()
        self.metrics = metrics
        self._requests = metrics.counter(REQUESTS)
        self._durations = metrics.histogram(DURATION)
        metrics.gauge(CONNECTIONS, lambda: sum(not connection.is_carried for connection in self._connections))
        metrics.gauge(LONG_RUNNING, lambda: len(self._standing))

    # EdgeServer

    def open_socket(self) -> socket.socket:
        return open_listener(*self._where)

    def start(self) -> None:
        self._scope.spawn_forever(self._gate.run(), name="http.durable")
        self._set_date()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            if self._audit is not None:
                self._audit.close()

    def on_tick(self) -> None:
        self._set_date()
        if self.tick % CHECK_SECONDS == 0:
            self._forget_certificates()
            self._standing.review()

    def _set_date(self) -> None:
        self._date = self._clock.now().strftime("%a, %d %b %Y %H:%M:%S GMT").encode()

    def _forget_certificates(self) -> None:
        """The handshake checks their expiry only once, and a connection may outlive it."""
        for connection in self._connections:
            if connection.peer is not None and self._is_over(connection.peer):
                connection.forget_certificate()

    def _is_over(self, certificate: PeerCertificate) -> bool:
        ends = certificate.get("notAfter")
        return ends is not None and ssl.cert_time_to_seconds(ends) <= self._clock.unix()

    def _check_standing(self, request: ApiRequest) -> None:
        if request.peer is not None and self._is_over(request.peer):
            request.peer = None
        self._handlers.check(request)

    def admit_body(self, headers: Mapping[str, str], connection: Peer) -> EdgeRefusal | None:
        try:
            known = self._handlers.access.authenticator.identify(headers.get("authorization"), connection.peer)
        except StatusError:
            known = None
        if known is not None:
            return None
        limit = self.limits.stranger_body_bytes
        text = f"Unauthorized: without valid credentials a body has at most {limit} bytes (limits.stranger_body_bytes)"
        return EdgeRefusal(401, "Unauthorized", text)

    def refuse(self, refusal: EdgeRefusal, connection: Peer) -> None:
        payload = encode(error_response(build_status_error(refusal)), self._next_id(), self._date, keep_alive=False)
        self._requests.add("", "", "", str(refusal.code))
        connection.answer(payload, keep_alive=False, linger=True)

    def serve(self, request: ApiRequest, connection: Peer) -> None:
        request.id = self._next_id()
        request.started = self._clock.monotonic()
        self._serve(request, connection)

    def _serve(self, request: ApiRequest, connection: Peer) -> None:
        began = self._clock.monotonic()
        try:
            if request.route is NO_ROUTE:
                self._prepare(request)
            outcome = self._handlers.handle(request, self._callers.admit_caller)
        except NotYetError as error:
            work = self._serve_later(request, connection, error.seconds)
            connection.task = self._scope.spawn_guarded(work, name="http.turn")
            return
        except TooFastError as error:
            outcome = self._answer_late(error_response(error))
        except StatusError as error:
            outcome = error_response(error, self._store.revision)
        except Exception:  # noqa: BLE001 - the HTTP error layer: an answer in every case
            outcome = self._internal_error(request)
        self._callers.note(request, self._clock.monotonic() - began)
        if isinstance(outcome, Response):
            self._send_when_durable(request, connection, outcome)
        elif isinstance(outcome, StreamResponse):
            self._start_stream(request, connection, outcome)
        elif isinstance(outcome, UpgradeResponse):
            self._start_session(request, connection, outcome)
        elif isinstance(outcome, CarryResponse):
            self._start_carrying(request, connection)
        else:
            connection.task = self._scope.spawn_guarded(
                self._finish_later(request, connection, outcome), name="http.request"
            )

    async def _serve_later(self, request: ApiRequest, connection: Peer, seconds: float) -> None:
        await self._clock.sleep(seconds)
        connection.task = None
        request.has_waited = True
        self._serve(request, connection)

    def _prepare(self, request: ApiRequest) -> None:
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

    def _internal_error(self, request: ApiRequest) -> Response:
        log.exception("request failed", extra={"action": "http.internal_error", "request_id": request.id})
        return error_response(status.internal_error(request.id), self._store.revision)

    # Outcomes

    def _send_when_durable(self, request: ApiRequest, connection: Peer, response: Response) -> None:
        revision = response.revision
        if revision <= self._store.durable_revision:
            self._send(request, connection, response)
        else:
            self._gate.send_when_durable(revision, lambda: self._send(request, connection, response))

    def _send(self, request: ApiRequest, connection: Peer, response: Response) -> None:
        keep_alive = request.keep_alive and not self._draining
        self._account(request, response.status, response.body)
        if len(response.body) <= PIECE_BYTES and not response.parts:
            connection.answer(encode(response, request.id, self._date, keep_alive), keep_alive)
            return
        parts = response.parts or (response.body,)
        self._callers.charge(request, sum(map(len, parts)))
        head = encode_head(response, request.id, self._date, keep_alive)
        connection.task = self._scope.spawn_guarded(
            connection.answer_in_pieces(head, parts, keep_alive), name="http.long_answer"
        )

    def _account(self, request: ApiRequest, code: int, body: bytes | bytearray) -> None:
        route = request.route
        self._requests.add(route.verb, route.group, route.plural, str(code))
        self._durations.observe(self._clock.monotonic() - request.started, route.verb)
        if self._audit is not None and route.is_resource and (route.verb in WRITES or is_session(route)):
            entry = {
                "time": self._clock.now(),
                "requestId": request.id,
                "address": self._find_address(request),
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

    def _find_address(self, request: ApiRequest) -> str:
        """The client's address, also behind proxies."""
        peer = "" if request.visitor is None else request.visitor.address
        return self.gatekeeper.proxies.get_client(peer, request.headers.get("x-forwarded-for", ""))

    async def _answer_late(self, response: Response) -> Response:
        await self._clock.sleep(_LATE_SECONDS)
        return response

    async def _finish_later(self, request: ApiRequest, connection: Peer, work: Awaitable[Response]) -> None:
        try:
            response = await work
        except StatusError as error:
            response = error_response(error, self._store.revision)
        except Exception:  # noqa: BLE001 - the HTTP error layer: an answer in every case
            response = self._internal_error(request)
        connection.task = None
        self._send_when_durable(request, connection, response)

    # Streams

    def _admit_stream(self, request: ApiRequest, connection: Peer) -> bool:
        """Whether another stream may start; False if it was refused."""
        try:
            if self._draining:
                raise status.too_many_requests("the server is shutting down, please try again later", 1)
            self._standing.check_capacity(request)
        except StatusError as error:
            self._send_when_durable(request, connection, error_response(error))
            return False
        return True

    def _start_carrying(self, request: ApiRequest, connection: Peer) -> None:
        if connection.is_carried:
            error = status.bad_request("unable to upgrade: a carried connection cannot carry others")
            self._send_when_durable(request, connection, error_response(error))
            return

        def accept(transport: CarriedTransport) -> Peer | None:
            if request.peer is not None and connection.peer is None:
                connection.abort()  # its certificate counts no more, so the client has to connect anew
                return None
            visitor = Visitor(connection.visitor.address, connection.visitor.port)
            return self._make_connection(visitor) if self.gatekeeper.admit(visitor) else None

        def open_session(wire: Wire) -> CarrierSession:
            return CarrierSession(wire, accept, lambda: {"carried": True, "peercert": connection.peer})

        self._start_session(request, connection, UpgradeResponse(UPGRADE, open_session, CarrierSession.serve))

    def _start_session(self, request: ApiRequest, connection: Peer, upgrade: UpgradeResponse[S]) -> None:
        if self._admit_stream(request, connection):
            connection.task = self._scope.spawn_guarded(
                self._run_session(request, connection, upgrade), name="http.session"
            )

    async def _run_session(self, request: ApiRequest, connection: Peer, upgrade: UpgradeResponse[S]) -> None:
        session = upgrade.open(connection)
        self._account(request, 101, b"")
        connection.upgrade(encode_upgrade_head(request.id, self._date, upgrade.headers), session)
        task = connection.task

        def end(verdict: StatusError) -> None:
            session.verdict = verdict
            if task is not None:
                task.cancel()

        standing = StandingStream(request, end)
        self._standing.add(standing)
        try:
            await upgrade.serve(session)
        except (ConnectionResetError, TimeoutError):
            log.debug("session left", extra={"action": "http.session_left", "request_id": request.id})
        except asyncio.CancelledError:
            # The peer disconnected, lost its permission, or the server drains: tell it if it is still there.
            if session.verdict is not None:
                session.close(websocket.POLICY_VIOLATION, session.verdict.message)
            else:
                session.close(websocket.GOING_AWAY, "the server is shutting down")
        finally:
            self._standing.remove(standing)
            connection.end_session()

    def _start_stream(self, request: ApiRequest, connection: Peer, stream: StreamResponse) -> None:
        if not self._admit_stream(request, connection):
            stream.close()
            return
        connection.task = self._scope.spawn_guarded(self._run_stream(request, connection, stream), name="http.stream")

    async def _run_stream(self, request: ApiRequest, connection: Peer, stream: StreamResponse) -> None:
        head = encode_stream_head(stream.content_type, request.id, self._date, stream.headers)
        keep_alive, begun, refusal = request.keep_alive, False, None
        standing = self._add_standing(request, connection)
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
            # The peer disconnected, lost its permission, or the server drains; a drained stream still gets its closing
            # chunk.
            keep_alive, refusal = False, standing.verdict
        except StatusError as error:
            keep_alive, refusal = not begun and keep_alive, error
        except Exception:
            keep_alive, refusal = False, status.internal_error(request.id)
            log.exception("stream failed", extra={"action": "http.internal_error", "request_id": request.id})
        stream.close()
        if isinstance(stream.pieces, AsyncGenerator):
            await stream.pieces.aclose()
        self._standing.remove(standing)
        if begun:
            self._account(request, 200, b"")
            self._end_stream(connection, stream, standing.verdict, keep_alive)
        else:
            request.keep_alive = keep_alive
            empty = Response(b"", content_type=stream.content_type, headers=stream.headers)
            self._send_when_durable(request, connection, empty if refusal is None else error_response(refusal))

    def _add_standing(self, request: ApiRequest, connection: Peer) -> StandingStream:
        def end(verdict: StatusError) -> None:
            standing.verdict = verdict
            if connection.task is not None:
                connection.task.cancel()

        standing = StandingStream(request, end)
        self._standing.add(standing)
        return standing

    def _end_stream(
        self, connection: Peer, stream: StreamResponse, verdict: StatusError | None, keep_alive: bool
    ) -> None:
        if verdict is not None and not connection.closing:
            if stream.build_error is None:
                # A log cannot contain an error; aborting shows that it is incomplete.
                connection.abort()
                return
            connection.send_now(stream.build_error(verdict))
        connection.end_stream(keep_alive and not self._draining)


def _refine(route: Route, query: Query) -> Route:
    """Adds what only the query tells: a watch, and the name in a field selector."""
    verb = "watch" if route.verb == "list" and query.flag("watch") else route.verb
    selected = find_selected_name(query.get("fieldSelector"))
    if verb == route.verb and not selected:
        return route
    return replace(route, verb=verb, selected=selected)
