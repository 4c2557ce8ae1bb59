"""Bounds of one connection in every phase: bytes, headers, times. No sockets; seconds are ticks."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from tests.unit.apiserver.http.wire import connect, echo, get, post
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import Response
from trainmaster.edge.connection import PIECE_BYTES, Phase, cut_pieces
from trainmaster.edge.refusals import EdgeRefusal

pytestmark = pytest.mark.unit

CHUNKED = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_header_lines_are_counted_in_one_piece_too() -> None:
    lines = "".join(f"X-{number}: 1\r\n" for number in range(201))
    application, connection, transport = connect(echo)
    connection.data_received(f"GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
    assert transport.sent.startswith(b"HTTP/1.1 431") and b"limits.headers" in transport.sent
    assert application.requests == [] and connection.closing


def test_header_bytes_are_counted_in_one_piece_too() -> None:
    application, connection, transport = connect(echo, ApiLimits(header_bytes=1000))
    connection.data_received(get("/", *[f"X-{number}: {'y' * 90}" for number in range(12)]))
    assert transport.sent.startswith(b"HTTP/1.1 431") and b"limits.header_bytes" in transport.sent
    assert application.requests == []


def test_names_that_are_all_different_and_all_repeated_cost_no_more_than_their_number() -> None:
    """165 KB of them took 7 seconds, because each was looked up in a list."""
    lines = b"".join(b"%x:\r\n%x:\r\n" % (number, number) for number in range(12_000))
    _, connection, transport = connect(echo)
    began = time.process_time()
    connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")
    assert transport.sent.startswith(b"HTTP/1.1 431")
    assert time.process_time() - began < 1


def test_a_partial_request_behind_a_whole_one_is_bounded() -> None:
    application, connection, transport = connect()
    connection.data_received(get("/1") + b"GET /2 HTTP/1.1\r\nX: ")
    for _ in range(1000):
        if transport.reading:
            connection.data_received(b"y" * 10_000)
    assert not transport.reading
    assert len(connection._pipelined) < 80_000
    application.release()
    assert b"HTTP/1.1 200" in transport.sent and b"HTTP/1.1 431" in transport.sent and connection.closing


def test_a_partial_request_behind_a_whole_one_has_its_time() -> None:
    application, connection, transport = connect()
    connection.data_received(get("/1") + b"GET /2 HTTP/1.1\r\n")
    application.tick = 100
    assert not connection.is_overdue()
    application.release()
    assert connection.phase is Phase.HEADERS and transport.reading
    application.tick += 11
    assert connection.is_overdue()


def test_a_partial_body_behind_a_whole_request_has_its_time() -> None:
    application, connection, _ = connect()
    connection.data_received(get("/1") + post("/2", b"abc")[:-1])
    application.release()
    assert connection.phase is Phase.BODY
    application.tick += 61
    assert connection.is_overdue()


def test_bytes_behind_a_stream_end_it() -> None:
    _application, connection, transport = connect()
    connection.data_received(get("/watch"))
    connection.begin_stream(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(10):
        connection.data_received(b"y" * 10_000)
    assert transport.aborted


def test_a_few_bytes_behind_a_stream_are_a_request_that_waits() -> None:
    application, connection, _transport = connect()
    connection.data_received(get("/watch"))
    connection.begin_stream(b"HTTP/1.1 200 OK\r\n\r\n")
    connection.data_received(get("/next"))
    assert [request.target for request in application.requests] == ["/watch"]
    connection.end_stream(keep_alive=True)
    assert [request.target for request in application.requests] == ["/watch", "/next"]


@pytest.mark.parametrize(
    "piece", [b"3;" + b"e" * 5000, b"0\r\nX-Trailer: " + b"t" * 5000], ids=["extension", "trailer"]
)
def test_what_stands_around_chunks_is_bounded(piece: bytes) -> None:
    application, connection, transport = connect(echo, ApiLimits(header_bytes=10_000))
    connection.data_received(CHUNKED + piece)
    for _ in range(10):
        connection.data_received(b"e" * 5000)
    assert transport.sent.startswith(b"HTTP/1.1 431")
    assert application.requests == []


def test_trailers_are_counted_and_mean_nothing() -> None:
    application, connection, transport = connect(echo)
    connection.data_received(CHUNKED + b"3\r\nabc\r\n0\r\nAuthorization: Bearer forged\r\nHost: y\r\n\r\n")
    assert transport.sent.endswith(b'["POST","/x","abc"]')
    assert "authorization" not in application.requests[0].headers and application.requests[0].headers["host"] == "x"
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(300))
    connection.data_received(CHUNKED + b"3\r\nabc\r\n0\r\n" + many + b"\r\n")
    assert b"HTTP/1.1 431" in transport.sent and len(application.requests) == 1


def test_line_breaks_between_requests_are_bounded() -> None:
    _, connection, transport = connect(echo, ApiLimits(header_bytes=10_000))
    for _ in range(20):
        connection.data_received(b"\r\n" * 500)
    assert transport.sent.startswith(b"HTTP/1.1 431")


def test_a_body_in_many_small_chunks_is_put_together_once() -> None:
    application, connection, _ = connect(echo, ApiLimits(body_bytes=100_000))
    connection.data_received(CHUNKED)
    for _ in range(100):
        connection.data_received(b"1\r\na\r\n" * 100)
    assert isinstance(connection._parser._body, bytearray)
    connection.data_received(b"0\r\n\r\n")
    assert application.requests[0].body == b"a" * 10_000 and type(application.requests[0].body) is bytes


@pytest.mark.parametrize("announced", [True, False])
def test_a_stranger_sends_no_large_body(announced: bool) -> None:
    application, connection, transport = connect(echo, ApiLimits(stranger_body_bytes=1000))
    application.refusal = EdgeRefusal(401, "Unauthorized", "who are you?")
    if announced:
        connection.data_received(post("/x", b"y" * 1001)[:200])
    else:
        connection.data_received(CHUNKED + b"3e9\r\n" + b"y" * 1001 + b"\r\n")
    assert transport.sent.startswith(b"HTTP/1.1 401") and application.requests == []
    application, connection, transport = connect(echo, ApiLimits(stranger_body_bytes=1000))
    connection.data_received(post("/x", b"y" * 1001))
    assert len(application.requests) == 1


def test_requests_wait_while_answers_are_not_read() -> None:
    """Otherwise a thousand pipelined requests would leave a thousand answers in memory."""
    application, connection, transport = connect(lambda request: Response(b"x" * 1000))
    connection.data_received(get("/1"))
    connection.pause_writing()
    for _ in range(1000):
        if transport.reading:
            connection.data_received(get("/2") * 100)
    assert len(application.requests) == 1 and not transport.reading
    application.tick += 31
    assert connection.is_overdue()
    connection.resume_writing()
    assert len(application.requests) > 1000 and transport.reading


def test_many_requests_in_one_piece_are_not_all_made_at_once() -> None:
    _application, connection, transport = connect()
    connection.data_received(get("/1") * 10_000)
    assert len(connection._ready) < 1000 and not transport.reading


def test_an_answer_that_is_never_read_ends_the_connection() -> None:
    application, connection, transport = connect(echo)
    connection.visitor.is_stranger = False
    connection.data_received(get("/"))
    application.tick = 31
    assert not connection.is_overdue()
    transport.unsent = 10
    assert connection.is_overdue()


def test_callers_who_are_known_may_idle_longer() -> None:
    application, connection, _ = connect(echo)
    connection.data_received(get("/"))
    connection.visitor.is_stranger = False
    application.tick = 31
    assert not connection.is_overdue()
    application.tick = 181
    assert connection.is_overdue()


def test_a_header_name_is_remembered_only_when_it_is_short() -> None:
    from trainmaster.edge import parsing

    _, connection, _ = connect(echo)
    connection.data_received(get("/", f"{'N' * 5000}: 1"))
    assert max(map(len, parsing._header_names), default=0) <= 64


@pytest.mark.parametrize("sizes", [[1], [PIECE_BYTES * 3 + 1], [10] * 200_000, [5, PIECE_BYTES, 7, PIECE_BYTES // 8]])
def test_long_answers_are_cut_into_pieces_that_are_neither_large_nor_many(sizes: list[int]) -> None:
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    pieces = [bytes(piece) for piece in cut_pieces(parts)]
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) <= 2 * PIECE_BYTES for piece in pieces)
    assert len(pieces) <= 8 + sum(sizes) // (PIECE_BYTES // 8)


def test_a_connection_that_is_lost_is_freed_without_the_collector() -> None:
    """Hundreds of them per second kept it busy for 25 ms at a time, in which nobody was served."""
    gc.disable()
    try:
        _, connection, _ = connect(echo)
        connection.visitor.end = connection.abort
        connection.data_received(get("/"))
        connection.connection_lost(None)
        seen = weakref.ref(connection)
        del connection
        assert seen() is None
    finally:
        gc.enable()
