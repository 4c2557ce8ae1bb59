"""Parses bytes into requests with httptools, and enforces limits in every state of the connection.

Limited are the number and size of header lines (including trailers), the target, the body, and bytes that produce
nothing: half a header, chunk extensions, line breaks between requests. Exceeding a limit stops the parser immediately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

import httptools

from trainmaster.edge.bodies import BodyChannel
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import ArrivingRequest, IncomingRequest
from trainmaster.edge.refusals import EdgeRefusal

R = TypeVar("R", bound=IncomingRequest)

# Header names as sent -> lower case. Cached, because clients repeat the same few.
_header_names: dict[bytes, str] = {}
_LONGEST_NAME = 64


def _remember_name(name: bytes) -> str:
    lowered = name.decode("latin-1").lower()
    if len(name) <= _LONGEST_NAME:
        if len(_header_names) >= 500:
            _header_names.clear()
        _header_names[name] = lowered
    return lowered


class ParsingStage(Enum):
    BETWEEN = "between"
    HEAD = "head"
    BODY = "body"


class _Stopped(Exception):
    """Raised in a callback to stop the parser."""


def _admit_none(headers: dict[str, str]) -> EdgeRefusal | None:
    return None


class RequestParser(Generic[R]):
    """Complete requests are added to `ready`. With `open_channel`, requests are added once their head is complete."""

    def __init__(
        self,
        limits: EdgeLimits,
        make_request: Callable[[str, str, dict[str, str], bytes], R],
        admit_body: Callable[[dict[str, str]], EdgeRefusal | None],
        open_channel: Callable[[], BodyChannel] | None = None,
    ) -> None:
        self._limits = limits
        self._make_request = make_request
        self._admit_body = admit_body
        self._open_channel = open_channel
        self._parser: httptools.HttpRequestParser | None = None
        """Created at the first byte; many connections never send one."""
        self.ready: deque[R] = deque()
        self.refusal: EdgeRefusal | None = None
        self.after_upgrade: bytes | None = None
        """Data received after an upgrade request."""
        self.stage = ParsingStage.BETWEEN
        self.expects_continue = False
        self.channel: BodyChannel | None = None
        """Where the body of the current request goes."""
        self._url = b""
        self._headers: dict[str, str] = {}
        self._repeated: dict[str, list[str]] = {}
        self._body: bytes | bytearray = b""
        self._body_size = 0
        self._admitted = False
        self._most_bytes = limits.header_bytes
        self._most_lines = limits.headers
        self._complete: dict[str, str] = {}
        self._complete_repeated: dict[str, list[str]] = {}
        self._head_size = 0
        self._lines = 0
        self._unproductive = 0
        """Bytes since the parser last produced something."""

    def feed(self, data: bytes | memoryview) -> None:
        """Sets `refusal` on an error; nothing may be fed after that."""
        before = self._head_size
        self._unproductive += len(data)
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # What follows is not HTTP, whether or not the upgrade is granted.
            self.after_upgrade = bytes(data[upgrade.args[0] :])
            if self.ready:
                self.ready[-1].keep_alive = False
            return
        except httptools.HttpParserError as error:
            # Our own refusal takes precedence; otherwise the bytes were not HTTP.
            self._refuse(400, "BadRequest", f"malformed HTTP request: {error}")
        if self._head_size != before:
            self._unproductive = 0
        elif self._unproductive > self._most_bytes:
            self._refuse_head()
        if self.refusal is not None and self.channel is not None:
            self.channel.fail(self.refusal)

    def close(self) -> None:
        """No more data will be fed."""
        self._parser = None
        self._admit_body = _admit_none
        self._open_channel = None

    def _refuse(self, code: int, reason: str, message: str) -> None:
        if self.refusal is None:
            self.refusal = EdgeRefusal(code, reason, message)

    def _refuse_head(self) -> None:
        limit = self._limits.header_bytes
        text = f"request headers are too large: at most {limit} bytes are taken (limits.header_bytes)"
        self._refuse(431, "RequestHeaderFieldsTooLarge", text)

    def _refuse_body(self) -> None:
        limit = self._limits.body_bytes
        self._refuse(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self._repeated = {}
        self._body = b""
        self._body_size = self._head_size = self._lines = 0
        self._admitted = self.expects_continue = False
        self.channel = None
        self.stage = ParsingStage.HEAD

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_size += len(url)
        if len(self._url) > self._limits.url_bytes:
            limit = self._limits.url_bytes
            self._refuse(414, "RequestURITooLong", f"request URI is too long: limit is {limit} (limits.url_bytes)")
            raise _Stopped

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value) + 4
        self._lines += 1
        if self._head_size > self._most_bytes or self._lines > self._most_lines:
            self._refuse_header()
        key = _header_names.get(name) or _remember_name(name)
        text = value.decode("latin-1")
        before = self._headers.get(key)
        if before is None:
            self._headers[key] = text
            return
        self._repeated.setdefault(key, [before]).append(text)
        self._headers[key] = f"{before}, {text}"

    def _refuse_header(self) -> None:
        if self._lines > self._most_lines:
            text = f"the request has more than {self._most_lines} headers (limits.headers)"
            self._refuse(431, "RequestHeaderFieldsTooLarge", text)
        else:
            self._refuse_head()
        raise _Stopped

    def on_headers_complete(self) -> None:
        self._unproductive = 0
        self.stage = ParsingStage.BODY
        self._complete = headers = self._headers
        self._complete_repeated = self._repeated
        if "transfer-encoding" in headers:
            # Trailers arrive too late to have an effect: they are counted and ignored.
            self._headers, self._repeated = {}, {}
        length = headers.get("content-length")
        if length is not None:
            if "transfer-encoding" in headers:
                self._refuse(400, "BadRequest", "both Content-Length and Transfer-Encoding are set")
                raise _Stopped
            if self._open_channel is None:
                self._check_announced(length)
        assert self._parser is not None
        if "host" not in headers and self._parser.get_http_version() == "1.1":
            self._refuse(400, "BadRequest", "missing required Host header")
            raise _Stopped
        self.expects_continue = headers.get("expect", "").lower() == "100-continue"
        if self._open_channel is not None:
            self.channel = self._open_channel()
            request = self._put_request(b"")
            assert isinstance(request, ArrivingRequest)
            request.channel, request.version = self.channel, self._parser.get_http_version()

    def _check_announced(self, length: str) -> None:
        if not length.isdigit() or len(length) > 15 or int(length) > self._limits.body_bytes:
            self._refuse_body()
            raise _Stopped
        if int(length) > self._limits.stranger_body_bytes:
            self._admit()

    def _admit(self) -> None:
        self._admitted = True
        refusal = self._admit_body(self._complete)
        if refusal is not None:
            self.refusal = self.refusal or refusal
            raise _Stopped

    def on_body(self, body: bytes) -> None:
        self._unproductive = 0
        if self.channel is not None:
            self.channel.feed(body)
            return
        self._body_size += len(body)
        if self._body_size > self._limits.body_bytes:
            self._refuse_body()
            raise _Stopped
        if self._body_size > self._limits.stranger_body_bytes and not self._admitted:
            self._admit()
        if not self._body:
            self._body = body
        else:
            # Not a list of pieces: thousands of one-byte chunks would take fifty times their size.
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        self.stage = ParsingStage.BETWEEN
        self._unproductive = 0
        self.expects_continue = False
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.finish()
            return
        body, self._body = self._body, b""
        self._put_request(body if isinstance(body, bytes) else bytes(body))

    def _put_request(self, body: bytes) -> R:
        assert self._parser is not None
        request = self._make_request(
            self._parser.get_method().decode("latin-1"), self._url.decode("latin-1"), self._complete, body
        )
        if self._complete_repeated:
            request.repeated = self._complete_repeated
        request.keep_alive = self._parser.should_keep_alive()
        self.ready.append(request)
        return request
