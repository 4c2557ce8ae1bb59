"""The Client protocol over HTTP, for any Kubernetes API server including ours.

Answers 429 and 503 with Retry-After are retried after the given time, as every Kubernetes client does, and less often
the longer a server is busy. Every other error becomes the corresponding StatusError. A server that cannot be reached is
`Unreachable`, also a StatusError, so that callers have only one exception to catch.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

import orjson

from trainmaster.api import status
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_metadata, read_text
from trainmaster.api.status import StatusError
from trainmaster.client.contract import (
    ActingIdentity,
    DeleteOptions,
    ListOptions,
    LogOptions,
    ObjectList,
    PatchType,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)
from trainmaster.client.kubeconfig import ClusterConfig, build_tls
from trainmaster.client.server_time import ServerClock
from trainmaster.client.transport import Check, HttpAnswer, Interrupted, Stream, Transport, TransportError, Unsent
from trainmaster.client.watch_lines import cut_spec, keep_last_states
from trainmaster.edge import multiplexing
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import Clock, SystemClock
from trainmaster.kit.ids import Ids
from trainmaster.kit.pace import Pace
from trainmaster.version import __version__

_RETRIES = 10
_PAUSES = BackoffPolicy(first=0.1, cap=10.0)
"""The shortest pauses before a retry, for a server that allows one at once."""
_SPREAD = 0.2
"""The part by which a pause may be longer, so that callers who were refused together do not come again together."""
_JSON = "application/json"
_PARTIAL = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIAL_LIST = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Observe = Callable[[str, str, int], None]
"""Called with the method, path and status of every answer, for metrics; watches count when they are opened."""
PODS = GVR("", "v1", "pods")


class Unreachable(StatusError):
    """No answer was received. `sent` says whether the server may have processed the request."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(503, "ServiceUnavailable", message)
        self.sent = sent


def build_path(gvr: GVR, namespace: str = "", name: str = "", subresource: str = "") -> str:
    path = f"/apis/{gvr.group}/{gvr.version}" if gvr.group else f"/api/{gvr.version}"
    if namespace:
        path += f"/namespaces/{quote(namespace, safe='')}"
    path += f"/{gvr.plural}"
    if name:
        path += f"/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def _header_lines(headers: Sequence[tuple[str, str]]) -> str:
    for name, value in headers:
        if "\n" in value or "\r" in value:
            raise ValueError(f"line break in header {name}")
    return "".join(f"{name}: {value}\r\n" for name, value in headers)


class HttpClient:
    """Implements `client.contract.Client`."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Clock | None = None,
        user_agent: str = f"trainmaster/{__version__}",
        transport: Transport | None = None,
        identity: ActingIdentity | None = None,
        observe: Observe | None = None,
        check: Check | None = None,
        ids: Ids | None = None,
        patience: float | None = None,
        carried: bool = False,
    ) -> None:
        """`ids` spreads retries. `patience`: seconds after which a request without an answer is given up, streams
        excepted; None waits for as long as the connection exists, which a dead server behind a load balancer may keep
        open for ever. `carried`: everything goes through one connection, if the server is one of ours."""
        self._config = config
        self._ids = ids
        self._patience = patience
        self._fence = check
        self._pace: Pace | None = None
        self._observe = observe
        self._clock = clock or SystemClock()
        self._user_agent = user_agent
        self._shared = transport is not None
        self._transport = transport or Transport(
            config.server,
            tls=build_tls(config),
            server_name=config.tls_server_name,
            join=self._build_join if carried else None,
        )
        self._identity = identity
        self._head = ""
        self._head_token: str | None = None
        self.warnings: deque[str] = deque(maxlen=100)
        """The latest API warnings, newest last; whoever displays them clears this."""

    # Requests

    def _common_headers(self) -> str:
        token = self._config.read_token()
        if self._head and token == self._head_token:
            return self._head
        headers = [
            ("Host", self._transport.host_header),
            ("User-Agent", self._user_agent),
        ]
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        if self._identity is not None:
            headers += _impersonation(self._identity)
        self._head, self._head_token = _header_lines(headers), token
        return self._head

    def _payload(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: bytes = b"",
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> bytes:
        target = self._transport.prefix + path
        if query:
            target += "?" + urlencode(query)
        head = f"{method} {target} HTTP/1.1\r\n{self._common_headers()}Accept: {accept}\r\n"
        if body or method in ("POST", "PUT", "PATCH"):
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        return f"{head}\r\n".encode() + body

    def _build_join(self) -> bytes:
        head = f"GET {self._transport.prefix}{multiplexing.PATH} HTTP/1.1\r\n{self._common_headers()}"
        return f"{head}Connection: Upgrade\r\nUpgrade: {multiplexing.PROTOCOL}\r\n\r\n".encode()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: bytes = b"",
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> HttpAnswer:
        """Sends a request with the retries that the protocol requires. Raises StatusError for every answer from 400
        on."""
        payload = self._payload(method, path, query or {}, body, content_type, accept)
        for attempt in range(_RETRIES + 1):
            if self._pace is not None:
                await self._pace.wait()
            began = self._clock.boot()
            try:
                async with asyncio.timeout(self._patience):
                    if self._fence is None or method == "GET":
                        answer = await self._transport.exchange(payload, repeatable=method == "GET")
                    else:
                        answer = await self._transport.exchange(payload, repeatable=False, check=self._fence)
            except TransportError as error:
                raise Unreachable(str(error), sent=isinstance(error, Interrupted)) from error
            except TimeoutError as error:
                text = f"no answer from {self._transport.server} within {self._patience:g} s"
                raise Unreachable(text, sent=True) from error
            if isinstance(self._clock, ServerClock):
                self._clock.note(answer.headers.get("date", ""), began)
            if self._observe is not None:
                self._observe(method, path, answer.status)
            wait = _find_wait(answer)
            if wait is None or attempt == _RETRIES:
                break
            await self._clock.sleep(self._lengthen(wait, attempt + 1))
        self.warnings.extend(_find_warning(text) for text in answer.warnings)
        if answer.status >= 400:
            raise _error_of(answer)
        return answer

    def _lengthen(self, wait: float, attempt: int) -> float:
        """How long to wait before a retry, if the server asks for at least `wait` seconds."""
        pause = max(wait, _PAUSES.delay(attempt))
        return pause if self._ids is None else pause * (1.0 + _SPREAD * self._ids.jitter())

    async def _object(self, method: str, path: str, query: Mapping[str, object], body: object = None) -> Object:
        raw = b"" if body is None else orjson.dumps(body)
        answer = await self.request(method, path, query=query, body=raw)
        return _parse(answer.body)

    # Client

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        return await self._object("GET", build_path(gvr, namespace, name, subresource), {})

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ListOptions()) -> ObjectList:  # noqa: B008 - frozen
        accept = _PARTIAL_LIST if options.metadata_only else _JSON
        answer = await self.request("GET", build_path(gvr, namespace), query=_list_query(options), accept=accept)
        return _to_list(_parse(answer.body))

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions = WatchOptions()) -> HttpWatch:  # noqa: B008 - frozen
        path = build_path(gvr, namespace)
        accept = _PARTIAL if options.metadata_only else _JSON
        payload = self._payload("GET", path, _watch_query(options), accept=accept)
        return HttpWatch(self._transport, payload, path, self._observe, options)

    async def create(
        self,
        gvr: GVR,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
        options: WriteOptions = WriteOptions(),  # noqa: B008 - frozen
    ) -> Object:
        path = build_path(gvr, namespace, name, subresource)
        return await self._object("POST", path, _write_query(options), _typed(gvr, obj))

    async def update(
        self,
        gvr: GVR,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions = WriteOptions(),  # noqa: B008 - frozen
    ) -> Object:
        path = build_path(gvr, namespace, obj["metadata"]["name"], subresource)
        return await self._object("PUT", path, _write_query(options), _typed(gvr, obj))

    async def patch(
        self,
        gvr: GVR,
        name: str,
        patch_type: PatchType,
        patch: object,
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions = WriteOptions(),  # noqa: B008 - frozen
    ) -> Object:
        query = _write_query(options)
        if patch_type is PatchType.APPLY:
            query["force"] = "true" if options.force else "false"
        answer = await self.request(
            "PATCH",
            build_path(gvr, namespace, name, subresource),
            query=query,
            body=orjson.dumps(patch),
            content_type=patch_type.value,
        )
        return _parse(answer.body)

    async def delete(
        self,
        gvr: GVR,
        name: str,
        namespace: str = "",
        options: DeleteOptions = DeleteOptions(),  # noqa: B008 - frozen
    ) -> Object:
        return await self._object("DELETE", build_path(gvr, namespace, name), {}, _delete_body(options))

    async def delete_collection(
        self,
        gvr: GVR,
        namespace: str = "",
        list_options: ListOptions = ListOptions(),  # noqa: B008 - frozen
        options: DeleteOptions = DeleteOptions(),  # noqa: B008 - frozen
    ) -> Sequence[Object]:
        path = build_path(gvr, namespace)
        answer = await self._object("DELETE", path, _list_query(list_options), _delete_body(options))
        return _to_list(answer).items if "items" in answer else []

    async def logs(self, name: str, namespace: str, options: LogOptions = LogOptions()) -> AsyncIterator[bytes]:  # noqa: B008 - frozen
        path = build_path(PODS, namespace, name, "log")
        async for piece in self.stream(path, _log_query(options)):
            yield piece

    async def stream(self, path: str, query: Mapping[str, object]) -> AsyncIterator[bytes]:
        """The answer to a GET, piece by piece, for what may be too long to be read at once."""
        stream = await _open(self._transport, self._payload("GET", path, query))
        try:
            async for piece in stream.pieces():
                yield piece
        except TransportError as error:
            raise Unreachable(str(error), sent=True) from error
        finally:
            stream.close()

    async def durable(self, revision: int) -> None:
        """Every answer over HTTP is durable."""

    def as_user(self, identity: ActingIdentity) -> HttpClient:
        made = self._derive()
        made._identity = identity
        return made

    def fenced(self, check: Check) -> HttpClient:
        """The same server and user. `check` is called right before each write is sent, and raises StatusError if it
        must not be; reads are not checked."""
        made = self._derive()
        made._fence = check
        return made

    def observed(self, observe: Observe) -> HttpClient:
        """The same server and user. `observe` is called as well as who observes already."""
        made, before = self._derive(), self._observe

        def tell_both(method: str, path: str, code: int) -> None:
            if before is not None:
                before(method, path, code)
            observe(method, path, code)

        made._observe = tell_both
        return made

    @property
    def server(self) -> str:
        """Its URL."""
        return self._transport.server

    def paced(self, pace: Pace) -> HttpClient:
        """The same server and user. Requests wait for their turn; a watch is opened at once."""
        made = self._derive()
        made._pace = pace
        return made

    def _derive(self) -> HttpClient:
        made = copy.copy(self)
        made._shared = True
        made._head, made._head_token = "", None
        made.warnings = deque(maxlen=self.warnings.maxlen)
        return made

    async def close(self) -> None:
        if not self._shared:
            self._transport.close()


class HttpWatch:
    """Implements `client.contract.WatchStream`."""

    def __init__(
        self, transport: Transport, payload: bytes, path: str, observe: Observe | None, options: WatchOptions
    ) -> None:
        self._transport = transport
        self._payload = payload
        self._options = options
        self._path = path
        self._observe = observe
        self._stream: Stream | None = None
        self._lines: deque[bytes] = deque()
        self._rest = b""

    async def __aenter__(self) -> Self:
        self._stream = await _open(self._transport, self._payload, self._options.gather_seconds)
        if self._observe is not None:
            self._observe("WATCH", self._path, self._stream.answer.status)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        assert self._stream is not None, "enter the watch first"
        while not self._lines:
            try:
                piece = await self._stream.read_piece()
            except TransportError as error:
                raise Unreachable(str(error), sent=True) from error
            if not piece:
                raise StopAsyncIteration
            *lines, self._rest = (self._rest + piece).split(b"\n")
            if self._options.gather_seconds:
                lines = keep_last_states(lines)
            self._lines.extend(line for line in lines if line)
        line = self._lines.popleft()
        event = orjson.loads(cut_spec(line) if self._options.without_spec else line)
        if event["type"] == "ERROR":
            raise status.from_object(event["object"])
        return WatchEvent(event["type"], event["object"])


async def _open(transport: Transport, payload: bytes, gather_seconds: float = 0.0) -> Stream:
    try:
        stream = await transport.open_stream(payload, gather_seconds=gather_seconds)
    except TransportError as error:
        raise Unreachable(str(error), sent=not isinstance(error, Unsent)) from error
    if stream.answer.status >= 400:
        try:
            stream.answer.body = await stream.read_all()
        except TransportError:
            stream.answer.body = b""
        finally:
            stream.close()
        raise _error_of(stream.answer)
    return stream


# Answers


def _parse(body: bytes) -> Object:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise StatusError(500, "InternalError", f"the server's answer is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise StatusError(500, "InternalError", "the server's answer is not an object")
    return value


def _error_of(answer: HttpAnswer) -> StatusError:
    """The only place where a response becomes an exception."""
    try:
        body = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        body = None
    if isinstance(body, dict) and body.get("kind") == "Status":
        return status.from_object(body, code=answer.status)
    text = answer.body[:200].decode("utf-8", "replace").strip() or f"the server answered {answer.status}"
    reason = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 429: "TooManyRequests"}.get(answer.status, "")
    return status.from_object({"message": text, "reason": reason, "code": answer.status})


def _find_wait(answer: HttpAnswer) -> float | None:
    if answer.status in (429, 503):
        after = answer.headers.get("retry-after", "")
        if after.isascii() and after.isdecimal():
            return min(float(after), 60.0)
    return None


def _find_warning(header: str) -> str:
    """The text in `299 - "text"`."""
    start, end = header.find('"'), header.rfind('"')
    return header[start + 1 : end].replace('\\"', '"').replace("\\\\", "\\") if 0 <= start < end else header


def _to_list(raw: Object) -> ObjectList:
    metadata = read_metadata(raw)
    items = raw.get("items") or []
    # Built-in kinds of a real server lack their type inside lists.
    kind, api_version = str(raw.get("kind", "")).removesuffix("List"), raw.get("apiVersion", "")
    if items and kind and "kind" not in items[0]:
        items = [{"apiVersion": api_version, "kind": kind, **item} for item in items]
    return ObjectList(
        items,
        str(metadata.get("resourceVersion", "")),
        read_text(metadata, "continue"),
        metadata.get("remainingItemCount"),
    )


# Queries


def _impersonation(identity: ActingIdentity) -> Sequence[tuple[str, str]]:
    headers = [("Impersonate-User", identity.user)]
    headers += [("Impersonate-Group", group) for group in identity.groups]
    if identity.uid:
        headers.append(("Impersonate-Uid", identity.uid))
    for key, values in identity.extra.items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    return headers


def _typed(gvr: GVR, obj: Object) -> Object:
    return obj if "apiVersion" in obj else {"apiVersion": gvr.api_version, **obj}


def _write_query(options: WriteOptions) -> dict[str, str]:
    query = {}
    if options.dry_run:
        query["dryRun"] = "All"
    if options.field_manager:
        query["fieldManager"] = options.field_manager
    if options.field_validation:
        query["fieldValidation"] = options.field_validation
    return query


def _list_query(options: ListOptions) -> dict[str, str]:
    query = {
        "labelSelector": options.label_selector,
        "fieldSelector": options.field_selector,
        "limit": str(options.limit) if options.limit else "",
        "continue": options.continue_token,
        "resourceVersion": options.resource_version,
        "resourceVersionMatch": options.resource_version_match,
    }
    return {key: value for key, value in query.items() if value}


def _watch_query(options: WatchOptions) -> dict[str, str]:
    query = {
        "watch": "true",
        "labelSelector": options.label_selector,
        "fieldSelector": options.field_selector,
        "resourceVersion": options.resource_version,
        "resourceVersionMatch": options.resource_version_match,
        "allowWatchBookmarks": "true" if options.bookmarks else "",
    }
    if options.send_initial_events is not None:
        query["sendInitialEvents"] = "true" if options.send_initial_events else "false"
    if options.timeout_seconds is not None:
        query["timeoutSeconds"] = str(max(1, round(options.timeout_seconds)))
    return {key: value for key, value in query.items() if value}


def _log_query(options: LogOptions) -> dict[str, str]:
    query = {
        "container": options.container,
        "follow": "true" if options.follow else "",
        "previous": "true" if options.previous else "",
        "timestamps": "true" if options.timestamps else "",
        "sinceTime": options.since_time,
        "stream": options.stream,
        "uid": options.uid,
    }
    for key, number in (
        ("sinceSeconds", options.since_seconds),
        ("tailLines", options.tail_lines),
        ("limitBytes", options.limit_bytes),
    ):
        query[key] = "" if number is None else str(number)
    return {key: value for key, value in query.items() if value}


def _delete_body(options: DeleteOptions) -> Object:
    body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if options.propagation:
        body["propagationPolicy"] = options.propagation
    if options.grace_seconds is not None:
        body["gracePeriodSeconds"] = options.grace_seconds
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    preconditions = {key: value for key, value in preconditions.items() if value}
    if preconditions:
        body["preconditions"] = preconditions
    if options.dry_run:
        body["dryRun"] = ["All"]
    return body
