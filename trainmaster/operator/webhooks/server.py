"""The port of the webhooks: reviews over HTTPS, with the limits of every port. Every replica serves.

    POST /default            fills in what only an admission step can
    POST /validate           the rules
    POST /validate-reserved  labels and annotations that tenants may not set

The sender is the API server, which by default does not say who it is: a review carries no credential. So whoever
reaches the port may ask, and learns what the rules would answer, but changes nothing. With a CA for clients, only
holders of its certificates may connect.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Mapping

from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.edge.connection import Connection
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import IncomingRequest
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.server import EdgeServer, open_listener
from trainmaster.kit.buckets import TokenBuckets
from trainmaster.kit.clock import Clock
from trainmaster.operator.status_server import encode_answer
from trainmaster.operator.webhooks.configurations import DEFAULT_PATH, RESERVED_PATH, VALIDATE_PATH
from trainmaster.operator.webhooks.examiner import Examiner
from trainmaster.operator.webhooks.reviews import Review, ReviewVerdict, build_answer, parse

log = logging.getLogger(__name__)

LIMITS = EdgeLimits(
    header_bytes=16 * 1024,
    # An object and its predecessor, each as large as an API server takes them, and what is around them.
    body_bytes=8 * 1024 * 1024,
    stranger_body_bytes=64 * 1024,
    body_seconds=5.0,
    # Longer than API servers keep an idle connection (90 s): a request that meets a closing connection would fail.
    first_byte_seconds=120.0,
    idle_seconds=120.0,
    connections=1000,
    connections_per_address=500,
)
_LARGE_AT_ONCE = 8
"""So many bodies above `stranger_body_bytes` may arrive at the same time."""
_LOGGED_PER_MINUTE = 6
_PATHS = (DEFAULT_PATH, VALIDATE_PATH, RESERVED_PATH)


class WebhookServer(EdgeServer[IncomingRequest]):
    """Serves while it is entered. Entering raises OSError if the port is not available."""

    make_request = IncomingRequest

    def __init__(self, examiner: Examiner, tls: ssl.SSLContext, host: str, port: int, clock: Clock) -> None:
        super().__init__(LIMITS, clock, tls=tls, name="webhooks")
        self._examiner = examiner
        self._where = (host, port)
        self._large: set[Connection[IncomingRequest]] = set()
        self._complaints = TokenBuckets(clock, per_second=_LOGGED_PER_MINUTE / 60, burst=_LOGGED_PER_MINUTE)

    def open_socket(self) -> socket.socket:
        try:
            return open_listener(*self._where)
        except OSError as error:
            text = f"cannot serve webhooks on port {self._where[1]}: {error.strerror}; choose another --webhook-port"
            raise OSError(text) from None

    def admit_body(self, headers: Mapping[str, str], connection: Connection[IncomingRequest]) -> EdgeRefusal | None:
        if len(self._large) >= _LARGE_AT_ONCE:
            return EdgeRefusal(429, "TooManyRequests", "too many large reviews at once; try again", retry_after=1)
        self._large.add(connection)
        return None

    def closed(self, connection: Connection[IncomingRequest]) -> None:
        super().closed(connection)
        self._large.discard(connection)

    def serve(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        self._large.discard(connection)
        connection.task = self._scope.spawn_guarded(self._answer(request, connection), name="webhooks.request")

    async def _answer(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        path = request.target.partition("?")[0]
        try:
            _check(request, path)
            review = parse(request.body)
            code, content = 200, await self._review(path, review)
        except StatusError as error:
            code, content = error.code, error.to_object()
        connection.task = None
        connection.answer(encode_answer(code, content, request.keep_alive), request.keep_alive)

    async def _review(self, path: str, review: Review) -> Object:
        try:
            return build_answer(review, await self._examine(path, review))
        except StatusError as error:
            return build_answer(review, ReviewVerdict(error))
        except Exception as error:
            # The rules rely on what the API server checks before. What it did not send can have any shape.
            misfit = self._examiner.find_misfit(review)
            if misfit:
                text = f"the object does not fit the definition of {review.gvr.qualified}: {misfit}"
                return build_answer(review, ReviewVerdict(StatusError(400, "BadRequest", text)))
            if self._complaints.take("review"):
                log.exception("review failed", extra={"action": "webhooks.failed", "resource": review.gvr.qualified})
            text = f"the object could not be examined ({type(error).__name__}); the log of the operator says where"
            return build_answer(review, ReviewVerdict(StatusError(500, "InternalError", text)))

    async def _examine(self, path: str, review: Review) -> ReviewVerdict:
        if path == DEFAULT_PATH:
            return self._examiner.complete(review)
        if path == RESERVED_PATH:
            return self._examiner.examine_marks(review)
        return await self._examiner.examine(review)

    def refuse(self, refusal: EdgeRefusal, connection: Connection[IncomingRequest]) -> None:
        content = StatusError(refusal.code, refusal.reason, refusal.message).to_object()
        connection.answer(encode_answer(refusal.code, content, False), keep_alive=False, linger=True)


def _check(request: IncomingRequest, path: str) -> None:
    if path not in _PATHS:
        raise StatusError(404, "NotFound", f"there is only POST on {', '.join(_PATHS)}")
    if request.method != "POST":
        raise StatusError(405, "MethodNotAllowed", "only POST is supported here")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise StatusError(415, "UnsupportedMediaType", "the body of a review must be application/json")
