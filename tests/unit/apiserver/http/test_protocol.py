"""One connection: parsing, turn taking, limits, refusals. No sockets: bytes go straight into the protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.apiserver.http.wire import connect, echo, get, post
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import Response
from trainmaster.edge.connection import Phase

pytestmark = pytest.mark.unit


def test_an_answer_is_one_write_with_its_length() -> None:
    _, connection, transport = connect(echo)
    connection.data_received(get("/a?b=c"))
    head, _, body = transport.sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"Content-Type: application/json" in head
    assert body == b'["GET","/a?b=c",""]' and b"Content-Length: %d" % len(body) in head
    assert not transport.closed


def test_a_request_may_arrive_byte_by_byte() -> None:
    _, connection, transport = connect(echo)
    for byte in post("/x", b'{"a":1}'):
        connection.data_received(bytes([byte]))
    assert transport.sent.endswith(b'["POST","/x","{\\"a\\":1}"]')


def test_chunked_bodies_are_put_together() -> None:
    _, connection, transport = connect(echo)
    connection.data_received(
        b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    assert transport.sent.endswith(b'["POST","/x","abcde"]')


def test_pipelined_requests_are_answered_in_order() -> None:
    _, connection, transport = connect(echo)
    connection.data_received(get("/1") + post("/2", b"x") + get("/3"))
    positions = [transport.sent.index(f'"/{number}"'.encode()) for number in (1, 2, 3)]
    assert positions == sorted(positions)


def test_pipelined_requests_wait_while_one_is_in_progress_and_reading_pauses() -> None:
    application, connection, transport = connect()
    connection.data_received(get("/1") + get("/2") + get("/3"))
    assert [request.target for request in application.requests] == ["/1"]
    assert not transport.reading
    application.release()
    assert [request.target for request in application.requests] == ["/1", "/2"]
    application.release()
    application.release()
    assert transport.sent.count(b"HTTP/1.1 200") == 3 and transport.reading


def test_a_repeated_head_brings_a_new_body() -> None:
    application, connection, transport = connect(echo)
    for body in (b"one", b"two", b"six"):
        connection.data_received(post("/x", body))
    assert [request.body for request in application.requests] == [b"one", b"two", b"six"]
    assert transport.sent.count(b"HTTP/1.1 200") == 3


_PIECES = [
    get("/a"),
    get("/a?b=c", "X-Twice: 1", "X-Twice: 2"),
    post("/x", b"abc"),
    post("/x", b"\r\nc"),
    post("/x", b"longer"),
    post("/x", b""),
    b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"\r\n" + get("/a"),
    get("/a") + b"\r\n",
    post("/x", b"abc") + b"\r\n",
    post("/x", b"\r\nc") + b"\r\n",
    get("/a")[:20],
    get("/a")[20:],
    post("/x", b"abc")[:-2],
    b"bc",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=8))
def test_requests_are_the_same_however_the_bytes_are_cut(pieces: list[bytes]) -> None:
    seen = []
    for cut in (pieces, [bytes([byte]) for piece in pieces for byte in piece]):
        application, connection, transport = connect(echo)
        for piece in cut:
            connection.data_received(piece)
        requests = [(one.method, one.target, one.headers, one.repeated, one.body) for one in application.requests]
        seen.append((requests, transport.sent, connection.closing))
    assert seen[0] == seen[1]


def test_connection_close_is_honoured() -> None:
    _, connection, transport = connect(echo)
    connection.data_received(get("/a", "Connection: close"))
    assert b"Connection: close" in transport.sent and transport.closed


def test_nothing_is_served_after_close() -> None:
    application, connection, _ = connect(echo)
    connection.data_received(get("/a", "Connection: close") + get("/b"))
    connection.data_received(get("/c"))
    assert [request.target for request in application.requests] == ["/a"]


@pytest.mark.parametrize(
    ("sent", "want_status"),
    [
        pytest.param(b"hello\r\n\r\n", b"400", id="not HTTP"),
        pytest.param(b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"400", id="an unknown version"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", b"400", id="no Host"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n", b"400", id="a space in a header name"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"400",
            id="length and chunked together (smuggling)",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            b"400",
            id="two lengths (smuggling)",
        ),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400", id="a negative length"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n", b"400", id="an unknown encoding"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400", id="a bad chunk size"
        ),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", b"413", id="a body too large"),
    ],
)
def test_what_is_not_a_proper_request_is_refused_with_a_status_and_closed(sent: bytes, want_status: bytes) -> None:
    application, connection, transport = connect(echo)
    connection.data_received(sent)
    connection.data_received(get("/behind"))
    assert transport.sent.startswith(b"HTTP/1.1 " + want_status)
    assert b'"kind":"Status"' in transport.sent and b"Connection: close" in transport.sent
    assert application.requests == [] and connection.closing


def test_a_chunked_body_over_the_limit_is_refused() -> None:
    application, connection, transport = connect(echo, ApiLimits(body_bytes=10))
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    connection.data_received(b"8\r\nabcdefgh\r\n")
    connection.data_received(b"8\r\nabcdefgh\r\n")
    assert transport.sent.startswith(b"HTTP/1.1 413")
    assert b"Request entity too large: limit is 10" in transport.sent
    assert application.requests == []


def test_endless_headers_are_refused() -> None:
    _, connection, transport = connect(echo, ApiLimits(header_bytes=1000))
    connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n")
    for number in range(100):
        if not connection.closing:
            connection.data_received(b"X-%d: " % number + b"y" * 50 + b"\r\n")
    assert transport.sent.startswith(b"HTTP/1.1 431")


def test_one_endless_header_is_refused() -> None:
    _, connection, transport = connect(echo, ApiLimits(header_bytes=1000))
    connection.data_received(b"GET / HTTP/1.1\r\nX: ")
    for _ in range(30):
        connection.data_received(b"y" * 50)
    assert transport.sent.startswith(b"HTTP/1.1 431")


def test_a_long_url_is_refused() -> None:
    _, connection, transport = connect(echo, ApiLimits(url_bytes=100))
    connection.data_received(get("/" + "a" * 200))
    assert transport.sent.startswith(b"HTTP/1.1 414")


def test_a_large_pipelined_body_does_not_count_as_headers() -> None:
    application, connection, _ = connect(echo, ApiLimits(header_bytes=1000))
    connection.data_received(post("/1", b"x" * 5000) + b"GET /2 HTTP/1.1\r\n")
    connection.data_received(b"Host: x\r\n\r\n")
    assert [request.target for request in application.requests] == ["/1", "/2"]


def test_a_refused_peer_is_read_on_so_that_it_can_see_the_answer() -> None:
    application, connection, transport = connect(echo, ApiLimits(body_bytes=10))
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n")
    connection.data_received(b"x" * 20)
    assert transport.reading and not transport.closed
    application.tick += 10
    assert connection.is_overdue()


def test_expect_100_continue_is_answered_before_the_body() -> None:
    _, connection, transport = connect(echo)
    connection.data_received(post("/x", b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 3"))
    assert transport.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.data_received(b"abc")
    assert transport.sent.endswith(b'["POST","/x","abc"]')


def test_a_body_over_the_limit_is_not_invited() -> None:
    _, connection, transport = connect(echo, ApiLimits(body_bytes=10))
    connection.data_received(post("/x", b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 30"))
    assert transport.sent.startswith(b"HTTP/1.1 413")


def test_an_upgrade_is_answered_as_a_request_and_ends_the_connection() -> None:
    application, connection, transport = connect(echo)
    connection.data_received(get("/exec", "Connection: Upgrade", "Upgrade: SPDY/3.1") + b"\x80\x03\x00\x01")
    assert [request.target for request in application.requests] == ["/exec"]
    assert transport.sent.startswith(b"HTTP/1.1 200") and transport.closed


def test_repeated_headers_are_kept_apart_and_joined() -> None:
    application, connection, _ = connect(echo)
    connection.data_received(get("/", "Impersonate-Group: a", "impersonate-group: b", "X: 1"))
    request = application.requests[0]
    assert request.values("impersonate-group") == ["a", "b"]
    assert request.headers["impersonate-group"] == "a, b"
    assert request.values("x") == ["1"] and request.values("y") == []


@pytest.mark.parametrize(
    ("sent", "phase", "limit"),
    [
        pytest.param(b"", Phase.OPENED, "first_byte_seconds", id="a silent connection"),
        pytest.param(get("/"), Phase.IDLE, "first_byte_seconds", id="an idle connection of a stranger"),
        pytest.param(b"GET / HT", Phase.HEADERS, "header_seconds", id="headers that do not end (slow-loris)"),
        pytest.param(post("/", b"abc")[:-1], Phase.BODY, "body_seconds", id="a body that does not end"),
    ],
)
def test_peers_that_keep_us_waiting_are_overdue(sent: bytes, phase: Phase, limit: str) -> None:
    application, connection, _ = connect(echo)
    if sent:
        connection.data_received(sent)
    assert connection.phase is phase
    application.tick = int(getattr(application.limits, limit))
    assert not connection.is_overdue()
    application.tick += 1
    assert connection.is_overdue()


def test_a_request_in_progress_is_never_overdue() -> None:
    application, connection, _ = connect()
    connection.data_received(get("/"))
    application.tick = 100_000
    assert not connection.is_overdue()


def test_dripping_headers_do_not_renew_the_limit() -> None:
    application, connection, _ = connect(echo)
    connection.data_received(b"GET / HTTP/1.1\r\n")
    for second in range(12):
        application.tick = second
        connection.data_received(b"X: y\r\n")
    assert connection.is_overdue()


def test_header_values_cannot_smuggle_lines_into_an_answer() -> None:
    from trainmaster.apiserver.http.messages import header_line, warning_lines

    assert header_line("A", "b\r\nSet-Cookie: c") == b"A: b  Set-Cookie: c\r\n"
    assert warning_lines(['say "hi"\n', 'say "hi"\n']) == b'Warning: 299 - "say \\"hi\\" "\r\n'


def test_an_answer_without_content_has_no_body() -> None:
    _, connection, transport = connect(lambda request: Response(b"", 304))
    connection.data_received(get("/"))
    assert transport.sent.endswith(b"\r\n\r\n") and b"304 Not Modified" in transport.sent
