"""The outermost layer around the application: what applies to every request, whatever its route.

    doors             over plain HTTP: only loopback names, no tokens; writes come from our own page, or bring a token
    authentication    all paths except the public ones need a valid token or login, even paths that do not exist
    read-only         logins that may change nothing are refused what does
    rate limit        callers that send too many requests are refused; administrators are not limited
    body size         a body that is too large or does not arrive in time is refused
    audit log         records what a request wrote or was refused, and the caller
    durability        an answer is sent once everything that it may contain is on disk
    errors            every error is a problem document; an unexpected one has an id, and its traceback is in the log
    headers           a request id, no sniffing, no framing, no caching

Because it is one layer, a new route cannot omit any of it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.api.status import StatusError
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.rest.audit_trail import Trail
from trainmaster.rest.callers import Caller
from trainmaster.rest.contract import Backend
from trainmaster.rest.logins.requests import (
    READING,
    SINGLE_HEADERS,
    build_use_tls,
    check_origin,
    check_plain_door,
    read_credentials,
    strip_prefix,
)
from trainmaster.rest.problems import Problem, build_unexpected, from_status

log = logging.getLogger(__name__)

_SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_FRAMED_BY_NONE = b"frame-ancestors 'none'"
_NO_FRAMES = (b"x-frame-options", b"DENY")
_JOINED = {b"x-forwarded-for": b",", b"cookie": b"; "}
"""Headers of which proxies and browsers may send several lines, and how they become one."""
_NO_STORE = (b"cache-control", b"no-store")


@dataclass(frozen=True, slots=True)
class PathRules:
    """What the edge has to know about routes."""

    public: frozenset[str]
    """Exact paths that need no caller; prefixes do not count."""
    harmless: frozenset[tuple[str, str]] = frozenset()
    """Methods and paths that read-only logins may use although the method is one that writes."""
    token_answers: tuple[tuple[str, re.Pattern[str]], ...] = ()
    """Methods and paths whose answers contain tokens."""


class Edge:
    """ASGI."""

    def __init__(self, app: ASGIApp, backend: Backend, rules: PathRules) -> None:
        self._app = app
        self._backend = backend
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        base = self._backend.pages.base_path
        path = strip_prefix(scope["path"], base)
        if path is None:
            await send(_build_redirect(base))
            await send({"type": "http.response.body", "body": b""})
            return
        if path != scope["path"]:
            scope = {**scope, "path": path, "raw_path": scope["raw_path"].removeprefix(base.encode())}
        await _Exchange(self._app, self._backend, self._rules, scope, receive, send).run()

    def stop(self) -> None:
        """Ends streaming answers; others are completed."""
        self._backend.streams.close()


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, app: ASGIApp, backend: Backend, rules: PathRules, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._app = app
        self._backend = backend
        self._rules = rules
        self._scope = scope
        self._receive_from = receive
        self._send_to = send
        self._id = backend.ids.uid()
        self._trail = Trail(backend.audit, backend.clock, self._id, scope["method"], scope["path"])
        self._caller: Caller | None = None
        self._cookie = ""
        """Renewed, if the request had an old one."""
        self._most_bytes = backend.limits.body_bytes
        self._read = 0
        self._whole = False
        self._instead: Problem | None = None
        self._started = False
        self._replaced = False
        self._done = False

    async def run(self) -> None:
        public = self._scope["path"] in self._rules.public
        if public:
            # Unauthenticated callers may send only small bodies.
            self._most_bytes = min(self._most_bytes, self._backend.limits.stranger_body_bytes)
        state = self._scope.setdefault("state", {})
        state["request_id"] = self._id
        state["trail"] = self._trail
        try:
            headers = _read_headers(self._scope)
            self._find_client(headers.get(b"x-forwarded-for", b""))
            self._check_door(headers)
            if not public:
                await self._authenticate(headers)
            self._check_announced(headers.get(b"content-length", b""))
            await self._app(self._scope, self._receive, self._send)
        except Problem as problem:
            await self._refuse(problem)
        except StatusError as error:
            await self._refuse(from_status(error))
        except asyncio.CancelledError:
            raise
        except Exception:  # the caller gets an id, the log the traceback
            log.exception("request failed", extra={"action": "rest.failed", "request": self._id})
            await self._refuse(build_unexpected(self._id))

    def _check_door(self, headers: dict[bytes, bytes]) -> None:
        """Before anybody is identified, and for public paths too."""
        method, path = self._scope["method"], self._scope["path"]
        if self._is_plain:
            check_plain_door(headers)
            if any(method == one and paths.match(path) for one, paths in self._rules.token_answers):
                raise build_use_tls("the answer would contain a token, which must not cross plain HTTP")
        if method not in READING and b"authorization" not in headers:
            check_origin(headers)

    @property
    def _is_plain(self) -> bool:
        """From our own port, never from a header."""
        return bool(self._scope["scheme"] != "https")

    async def _authenticate(self, headers: dict[bytes, bytes]) -> None:
        state, logins = self._scope["state"], self._backend.logins
        credential = await logins.recognise(read_credentials(headers, is_plain=self._is_plain))
        self._caller = caller = state["caller"] = await logins.identify(credential)
        state["credential"] = credential
        # For long streams, whose token may be revoked in the meantime.
        state["identify"] = partial(logins.identify, credential)
        self._trail.identity, caller.client.trail = caller.identity, self._trail
        self._recognise(caller)
        if not caller.is_administrator:
            self._backend.rates.take(caller.identity.user)
        method, path = self._scope["method"], self._scope["path"]
        if caller.read_only and method not in READING and (method, path) not in self._rules.harmless:
            detail = "this login is read-only, and the request would change something"
            raise Problem(403, "read-only", detail, hint="log in again without read-only, if you may")
        self._cookie = await logins.renew(credential)

    def _recognise(self, caller: Caller) -> None:
        """Tells the server whose connection this is."""
        recognise = self._scope.get("recognise")
        if recognise is not None:
            try:
                recognise(caller.identity.user, caller.is_administrator)
            except EdgeRefusal as refusal:
                raise Problem(
                    429, "too-many-connections", refusal.message, hint="close some", retry_after=refusal.retry_after
                ) from None

    def _find_client(self, forwarded_for: bytes) -> None:
        """Sets `scope["client"]` to the client's address, also behind trusted proxies."""
        peer = self._scope.get("client") or ("", 0)
        address = self._backend.limits.proxies.get_client(peer[0], forwarded_for.decode("latin-1"))
        self._scope["client"] = (address, peer[1] if address == peer[0] else 0)
        self._trail.address = address

    def _check_announced(self, length: bytes) -> None:
        if length.isdigit() and (len(length) > 15 or int(length) > self._most_bytes):
            raise self._build_too_large()

    def _build_too_large(self) -> Problem:
        limit = self._most_bytes
        hint = f"at most {limit} bytes are taken; keep data in files or volumes and send only code"
        return Problem(413, "too-large", f"the body has more than {limit} bytes", hint=hint)

    async def _receive(self) -> Message:
        """Errors of the body cannot be raised here, because the framework would report them as invalid JSON."""
        if self._whole:
            return await self._receive_from()
        try:
            async with asyncio.timeout(self._backend.limits.body_seconds):
                message = await self._receive_from()
        except TimeoutError:
            self._instead = Problem(408, "too-slow", "the body did not arrive in time", hint="send it in one go")
            return {"type": "http.disconnect"}
        if message["type"] == "http.request":
            self._read += len(message.get("body") or b"")
            self._whole = not message.get("more_body")
            if self._read > self._most_bytes:
                self._instead = self._build_too_large()
                return {"type": "http.disconnect"}
        return message

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self._instead is not None:
                self._replaced = True
                await self._refuse(self._instead)
                return
            self._trail.end(message["status"])
            if self._caller is not None:
                await self._caller.settle()
            self._started = True
            message = {**message, "headers": self._add_headers(list(message.get("headers", ())))}
        elif self._replaced:
            return
        elif message.get("body") and self._caller is not None:
            # A stream may contain what was written after it started.
            await self._caller.settle()
            self._done = not message.get("more_body")
        elif not message.get("more_body"):
            self._done = True
        await self._send_to(message)

    def _add_headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        present = {name.lower(): value for name, value in headers}
        added = [*_SECURITY, (b"x-request-id", self._id.encode())]
        if b"cache-control" not in present:
            added.append(_NO_STORE)
        if _FRAMED_BY_NONE in present.get(b"content-security-policy", _FRAMED_BY_NONE):
            # The page's own policy may name sites that frame it.
            added.append(_NO_FRAMES)
        if self._cookie and b"set-cookie" not in present:
            added.append((b"set-cookie", self._cookie.encode()))
        return [*headers, *added]

    async def _refuse(self, problem: Problem) -> None:
        if self._done:
            return
        if self._started:
            # The answer has started; abort it, so that it is not taken for complete.
            raise ConnectionAbortedError(problem.detail)
        self._started = True
        self._trail.end(problem.status)
        body = problem.to_body(self._id)
        headers = [(name.encode(), value.encode()) for name, value in problem.to_headers().items()]
        headers.append((b"content-length", str(len(body)).encode()))
        start = {"type": "http.response.start", "status": problem.status, "headers": self._add_headers(headers)}
        await self._send_to(start)
        await self._send_to({"type": "http.response.body", "body": body})


def _build_redirect(base: str) -> Message:
    """From the prefix to what is below it; relative, so that it holds for whoever is in front."""
    location = base.rpartition("/")[2].encode() + b"/"
    headers = [(b"location", location), (b"content-length", b"0"), _NO_STORE]
    return {"type": "http.response.start", "status": 307, "headers": headers}


def _read_headers(scope: Scope) -> dict[bytes, bytes]:
    """By name. Raises Problem for a repeated header that matters: layers might use different values."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in SINGLE_HEADERS and name in found:
            raise Problem(400, "bad-request", f"the header {name.decode()} stands twice", hint="send it once")
        joint = _JOINED.get(name) if name in found else None
        found[name] = value if joint is None else found[name] + joint + value
    return found
