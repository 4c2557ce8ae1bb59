"""A connection without a socket: bytes in, bytes out, and an application that tests script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import orjson

from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import ApiRequest, Response, build_status_error, encode, error_response
from trainmaster.edge.connection import Connection
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.refusals import EdgeRefusal


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False
        self.aborted = False
        self.reading = True
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "written after close"
        self.sent += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


class FakeApplication:
    """Implements `connection.Application`: answers with `respond`, or keeps the request in `held`."""

    reads_while_serving = False
    make_request = ApiRequest

    def __init__(
        self, respond: Callable[[ApiRequest], Response] | None = None, limits: EdgeLimits | None = None
    ) -> None:
        self.limits = limits or ApiLimits()
        self.refusal: EdgeRefusal | None = None
        self.tick = 0
        self.requests: list[ApiRequest] = []
        self.held: list[tuple[ApiRequest, Connection[ApiRequest]]] = []
        self._respond = respond

    def admit_body(self, headers: Mapping[str, str], connection: Connection[ApiRequest]) -> EdgeRefusal | None:
        return self.refusal

    def opened(self, connection: Connection[ApiRequest]) -> None:
        pass

    def closed(self, connection: Connection[ApiRequest]) -> None:
        pass

    def serve(self, request: ApiRequest, connection: Connection[ApiRequest]) -> None:
        self.requests.append(request)
        if self._respond is None:
            self.held.append((request, connection))
        else:
            self._send(request, connection, self._respond(request))

    def release(self) -> None:
        """Answers the oldest held request."""
        request, connection = self.held.pop(0)
        self._send(request, connection, Response(orjson.dumps(request.target)))

    def _send(self, request: ApiRequest, connection: Connection[ApiRequest], response: Response) -> None:
        connection.answer(encode(response, "id", b"now", request.keep_alive), request.keep_alive)

    def refuse(self, refusal: EdgeRefusal, connection: Connection[ApiRequest]) -> None:
        payload = encode(error_response(build_status_error(refusal)), "id", b"now", keep_alive=False)
        connection.answer(payload, keep_alive=False, linger=True)


def connect(
    respond: Callable[[ApiRequest], Response] | None = None, limits: EdgeLimits | None = None
) -> tuple[FakeApplication, Connection[ApiRequest], FakeTransport]:
    application = FakeApplication(respond, limits)
    connection, transport = Connection(application), FakeTransport()
    connection.connection_made(transport)
    return application, connection, transport


def echo(request: ApiRequest) -> Response:
    return Response(orjson.dumps([request.method, request.target, request.body.decode()]))


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""])
    return head.encode() + body
