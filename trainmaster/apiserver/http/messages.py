"""Requests of the API server, and responses before they are encoded.

`encode` builds head and body as one piece, because two small writes delay a client with a persistent connection by 40
ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qsl

import orjson

from trainmaster.api import status
from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.routes import NO_ROUTE, Route
from trainmaster.client.contract import ActingIdentity
from trainmaster.edge.messages import NOT_REPEATED, IncomingRequest
from trainmaster.edge.refusals import EdgeRefusal

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"

_REASONS = {code.value: code.phrase for code in HTTPStatus}
_LINES = {code: f"HTTP/1.1 {code} {phrase}\r\n".encode() for code, phrase in _REASONS.items()}
_TRUE = ("true", "1", "t")


class ApiRequest(IncomingRequest):
    """A complete request to the API server, including its body."""

    __slots__ = ("dry_run", "has_waited", "id", "identity", "impersonator", "query", "route", "started")

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        # Set directly: calling the base class would take 2 % of a GET.
        self.method = method
        self.target = target
        self.headers = headers
        self.repeated = NOT_REPEATED
        self.body = body
        self.keep_alive = True
        self.peer = None
        self.visitor = None
        self.id = ""
        self.started = 0.0
        self.query: Query = EMPTY_QUERY
        self.route: Route = NO_ROUTE
        self.identity: ActingIdentity = ANONYMOUS
        self.impersonator = ""
        """The user of the credential, if `identity` is another one."""
        self.has_waited = False
        """Whether it was delayed in favour of other callers."""
        self.dry_run = False
        """Set by the body of a deletion; other requests have it in the query."""

    def repeat(self, body: bytes) -> Self:
        """The next request of a connection with the same head; already routed, but not admitted."""
        again = type(self)(self.method, self.target, self.headers, body)
        again.repeated = self.repeated
        again.query = self.query
        again.route = self.route
        return again


ANONYMOUS = ActingIdentity("system:anonymous", groups=("system:unauthenticated",))


class Query:
    """Query parameters. Unknown ones are ignored; of repeated ones the first counts, as upstream."""

    __slots__ = ("_pairs", "_values")

    def __init__(self, text: str = "") -> None:
        self._values: dict[str, str] = {}
        self._pairs: list[tuple[str, str]] = []
        if text:
            try:
                # Every argument of an exec command is a field.
                pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=2000)
            except ValueError as error:
                raise status.bad_request(f"invalid query: {error}") from error
            for key, value in pairs:
                self._values.setdefault(key, value)
            self._pairs = pairs

    def list_values(self, name: str) -> list[str]:
        """All values of a parameter that may be repeated."""
        return [value for key, value in self._pairs if key == name]

    def get(self, name: str) -> str:
        return self._values.get(name, "")

    def has(self, name: str) -> bool:
        return name in self._values

    def flag(self, name: str) -> bool:
        """Booleans as clients write them: true, True, 1; an empty value is true."""
        value = self._values.get(name)
        return value is not None and (value == "" or value.lower() in _TRUE)

    def find_integer(self, name: str) -> int | None:
        value = self._values.get(name, "")
        if not value:
            return None
        try:
            if not value.lstrip("-").isascii():
                raise ValueError
            number = int(value)
        except ValueError:
            raise status.bad_request(
                f"unable to convert query parameter {name}: strconv.ParseInt: parsing {orjson.dumps(value).decode()}: "
                "invalid syntax"
            ) from None
        if not -(2**63) <= number < 2**63:
            raise status.bad_request(f"query parameter {name}: value out of range")
        return number


EMPTY_QUERY = Query()


@dataclass(slots=True)
class Response:
    body: bytes | bytearray
    status: int = 200
    revision: int = 0
    """Sent once this revision is durable."""
    content_type: bytes = JSON
    headers: bytes = b""
    """Additional header lines, each ending in CRLF."""
    close: bool = False
    parts: Sequence[bytes] = ()
    """Instead of `body` for long answers: never joined, so many readers of one list need no additional memory."""


def header_line(name: str, value: str) -> bytes:
    """One header line; characters that would end the line are replaced."""
    clean = "".join(char if ord(char) >= 32 and ord(char) != 127 else " " for char in value)
    return f"{name}: {clean}\r\n".encode("utf-8", "replace")


def warning_lines(texts: list[str]) -> bytes:
    """`Warning: 299` headers (RFC 7234), with quotes escaped and as many as fit into 4 KiB, like upstream."""
    lines = []
    left = 4096
    for text in dict.fromkeys(texts):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        left -= len(quoted)
        if left < 0:
            break
        lines.append(header_line("Warning", f'299 - "{quoted}"'))
    return b"".join(lines)


def build_status_error(refusal: EdgeRefusal) -> StatusError:
    """Converts a refusal of the edge to a Kubernetes Status."""
    return StatusError(refusal.code, refusal.reason, refusal.message, retry_after=refusal.retry_after)


def error_response(error: StatusError, revision: int = 0) -> Response:
    """The only place where a StatusError becomes an answer."""
    headers = b""
    if error.retry_after is not None:
        headers = b"Retry-After: %d\r\n" % error.retry_after
    if error.code == 401:
        headers += b'WWW-Authenticate: Bearer realm="trainmaster"\r\n'
    return Response(orjson.dumps(error.to_object()), error.code, revision, headers=headers)


def encode(response: Response, request_id: str, date: bytes, keep_alive: bool) -> bytes:
    head = encode_head(response, request_id, date, keep_alive)
    return head + response.body if response.status != 304 else head


def encode_head(response: Response, request_id: str, date: bytes, keep_alive: bool) -> bytes:
    return b"%bAudit-Id: %b\r\nContent-Type: %b\r\nDate: %b\r\n%b%bContent-Length: %d\r\n\r\n" % (
        _LINES.get(response.status) or b"HTTP/1.1 %d Unknown\r\n" % response.status,
        request_id.encode(),
        response.content_type,
        date,
        response.headers if b"Cache-Control" in response.headers else response.headers + _PRIVATE,
        b"" if keep_alive else b"Connection: close\r\n",
        sum(map(len, response.parts)) if response.parts else len(response.body),
    )


_PRIVATE = b"Cache-Control: no-cache, private\r\n"


def encode_upgrade_head(request_id: str, date: bytes, headers: bytes) -> bytes:
    return b"%bAudit-Id: %b\r\nDate: %b\r\nConnection: Upgrade\r\n%b\r\n" % (
        _LINES[101],
        request_id.encode(),
        date,
        headers,
    )


def encode_stream_head(content_type: bytes, request_id: str, date: bytes, headers: bytes = b"") -> bytes:
    return b"%bAudit-Id: %b\r\nContent-Type: %b\r\nDate: %b\r\n%b%bTransfer-Encoding: chunked\r\n\r\n" % (
        _LINES[200],
        request_id.encode(),
        content_type,
        date,
        headers,
        _PRIVATE,
    )
