"""Hostile connections: slow, broken, too many, with wrong certificates, with smuggled requests."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bad_input.raw import Closed, Hostile, Reply, read_reply
from tests.support.certificates import issue_certificate
from trainmaster.auth.pki import Pki
from trainmaster.kit.clock import SystemClock

pytestmark = pytest.mark.bad_input

PODS = "/api/v1/namespaces/default/pods"


def test_headers_that_never_end_are_cut_off_with_408(hostile: Hostile) -> None:
    with hostile.connect() as sock:
        sock.sendall(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n".encode())
        sock.settimeout(1.0)
        deadline = time.monotonic() + 30
        number = 0
        while True:
            try:
                sock.sendall(f"X-{number}: slow\r\n".encode())
                reply = read_reply(sock)
                break
            except TimeoutError:
                number += 1
                assert time.monotonic() < deadline, "still reading headers after 30 seconds"
    assert reply.status == 408 and reply.json()["kind"] == "Status"


def test_a_hundred_slow_clients_do_not_keep_others_out(hostile: Hostile) -> None:
    slow = [hostile.connect() for _ in range(100)]
    try:
        for sock in slow:
            sock.sendall(f"POST {PODS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert hostile.request("GET", "/livez").status == 200
    finally:
        for sock in slow:
            sock.close()


def test_a_handshake_that_never_comes_disturbs_nobody(hostile: Hostile) -> None:
    silent = [socket.create_connection((hostile.host, hostile.port)) for _ in range(20)]
    try:
        assert hostile.request("GET", "/livez").status == 200
    finally:
        for sock in silent:
            sock.close()


CONNECTIONS = "/trainmaster/connections"
CARRY = ("Connection: Upgrade", "Upgrade: trainmaster-connections")


def open_carrier(hostile: Hostile) -> ssl.SSLSocket:
    sock = hostile.connect()
    sock.sendall(hostile.head("GET", CONNECTIONS, *CARRY))
    answer = sock.recv(4096)
    assert answer.startswith(b"HTTP/1.1 101 ") and answer.endswith(b"\r\n\r\n")
    return sock


def test_only_known_callers_have_a_connection_that_carries_others(hostile: Hostile) -> None:
    hostile.send(hostile.head("GET", CONNECTIONS, *CARRY, token="wrong")).check_refused(401)
    hostile.request("GET", CONNECTIONS).check_refused(400)
    hostile.send(hostile.head("GET", CONNECTIONS, "Connection: Upgrade", "Upgrade: other")).check_refused(400)
    hostile.request("POST", CONNECTIONS, b"{}").check_refused(405)


def test_carried_connections_do_not_carry_others_and_know_nobody_by_themselves(hostile: Hostile) -> None:
    with open_carrier(hostile) as sock:
        for number, (head, code) in enumerate(
            [
                (hostile.head("GET", CONNECTIONS, *CARRY), b"400"),
                (hostile.head("GET", PODS, token="wrong"), b"401"),
                (hostile.head("GET", PODS), b"200"),
            ],
            start=1,
        ):
            sock.sendall(struct.pack(">BII", 1, number, 0) + struct.pack(">BII", 2, number, len(head)) + head)
            kind, answered, size = struct.unpack(">BII", sock.recv(9))
            assert (kind, answered) == (2, number)
            answer = b""
            while len(answer) < size:
                answer += sock.recv(size - len(answer))
            assert answer.startswith(b"HTTP/1.1 " + code)
            if code == b"400":
                assert struct.unpack(">BII", sock.recv(9)) == (4, number, 0)


@pytest.mark.parametrize("frames", [b"GET / HTTP/1.1\r\n", b"\xff" * 9, struct.pack(">BII", 2, 1, 1 << 30)])
def test_frames_that_break_the_protocol_end_the_connection(hostile: Hostile, frames: bytes) -> None:
    with open_carrier(hostile) as sock:
        sock.sendall(frames)
        with suppress(ConnectionResetError):
            assert sock.recv(4096) == b""
    assert hostile.request("GET", "/livez").status == 200


def test_plain_http_on_the_tls_port_gets_no_answer_and_no_harm(hostile: Hostile) -> None:
    with socket.create_connection((hostile.host, hostile.port), timeout=20) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        received = sock.recv(1000)
        assert b"200" not in received
    assert hostile.request("GET", "/livez").status == 200


def test_a_certificate_of_a_strange_ca_is_refused(hostile: Hostile, tmp_path: Path) -> None:
    strange = Pki(tmp_path / "strange", SystemClock())
    strange.ensure()
    context = hostile.context()
    context.load_cert_chain(strange.admin.certificate, strange.admin.key)
    with pytest.raises((ssl.SSLError, ConnectionError, Closed)), hostile.connect(context) as sock:
        sock.sendall(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        read_reply(sock)


def test_a_certificate_of_our_ca_is_its_user_and_nothing_more(hostile: Hostile, tmp_path: Path) -> None:
    pki = hostile.server.home / "pki"
    certificate, key = issue_certificate(pki / "ca.crt", pki / "ca.key", "mallory", ("nobody",), tmp_path)
    context = hostile.context()
    context.load_cert_chain(certificate, key)
    with hostile.connect(context) as sock:
        sock.sendall(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = read_reply(sock).check_refused(403)
    assert 'User "mallory" cannot list resource "pods"' in answer["message"]


def test_old_tls_versions_are_refused(hostile: Hostile) -> None:
    context = hostile.context()
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        hostile.connect(context).close()


AMBIGUOUS = {
    "length and chunked": (
        "POST {path} HTTP/1.1\r\nHost: x\r\n{auth}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        "0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n{auth}\r\n"
    ),
    "chunked is not last": (
        "POST {path} HTTP/1.1\r\nHost: x\r\n{auth}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"
    ),
    "a space before the colon": "POST {path} HTTP/1.1\r\nHost: x\r\n{auth}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded header": "GET {path} HTTP/1.1\r\nHost: x\r\n{auth}X: a\r\n b\r\n\r\n",
    "bare line feeds": "GET {path} HTTP/1.1\nHost: x\n{auth}\n\n",
    "two lengths": "GET {path} HTTP/1.1\r\nHost: x\r\n{auth}Content-Length: 5, 6\r\n\r\nabcdef",
    "a signed length": "GET {path} HTTP/1.1\r\nHost: x\r\n{auth}Content-Length: +5\r\n\r\nabcde",
    "no host": "GET {path} HTTP/1.1\r\n{auth}\r\n",
    "TLS inside TLS": "\x16\x03\x01",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}
"""Requests that two parsers could read differently."""


def send_ambiguous(hostile: Hostile, payload: str) -> tuple[Reply, bytes]:
    """The answer, and what comes after it until the server closes the connection."""
    auth = f"Authorization: Bearer {hostile.token}\r\n"
    with hostile.connect() as sock:
        sock.sendall(payload.replace("{path}", PODS).replace("{auth}", auth).encode())
        if payload.startswith("\x16"):
            sock.sendall(b"\r\n\r\n")
        return read_reply(sock), sock.recv(1000)


@pytest.fixture(scope="module")
def replies(hostile: Hostile) -> dict[str, Future[tuple[Reply, bytes]]]:
    """All at once, because the server waits some seconds for each client to close first."""
    with ThreadPoolExecutor(len(AMBIGUOUS)) as pool:
        return {name: pool.submit(send_ambiguous, hostile, payload) for name, payload in AMBIGUOUS.items()}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_requests_that_two_parsers_could_read_differently_are_refused(
    replies: dict[str, Future[tuple[Reply, bytes]]], name: str
) -> None:
    reply, more = replies[name].result()
    reply.check_refused(400, 404, 405)
    assert reply.headers["connection"] == "close"
    assert more == b"", "a second, smuggled answer"


def test_a_client_that_leaves_in_the_middle_of_a_write_leaves_nothing_behind(hostile: Hostile) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    before = hostile.count(path)
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"half"},"data":{"k":"' + b"x" * 5000
    for _ in range(10):
        with hostile.connect() as sock:
            sock.sendall(hostile.head("POST", path, "Content-Length: 9000") + body)
    assert hostile.count(path) == before


def test_watchers_that_leave_are_forgotten(hostile: Hostile) -> None:
    for _ in range(30):
        with hostile.connect() as sock:
            sock.sendall(hostile.head("GET", f"{PODS}?watch=1"))
            assert b"200 OK" in sock.recv(1000)
    deadline = time.monotonic() + 10
    while "apiserver_longrunning_requests 0" not in (text := hostile.request("GET", "/metrics").body.decode()):
        assert time.monotonic() < deadline, [line for line in text.splitlines() if "longrunning" in line]
        time.sleep(0.05)
