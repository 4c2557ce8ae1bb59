"""A stranger and the ports: nothing that they send or hold back keeps others out or fills memory.

Both ports keep the same limits, so every attack is tried on both.
"""

from __future__ import annotations

import http.client
import resource
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.attacks.site import Site, make_caller, run_command
from tests.attacks.stranger.door import (
    MIB,
    Door,
    build_get,
    crowd,
    is_closed,
    read_answer,
    read_memory,
    send_until_cut,
    wait_until,
)
from tests.support.clients import Raw
from tests.support.server import start_server

pytestmark = pytest.mark.attacks


def find_door(site: Site, name: str) -> Door:
    return Door(site.server.url if name == "kube" else site.server.rest_url, site.server.ca)


@pytest.fixture(params=["kube", "rest"])
def door(request: pytest.FixtureRequest, site: Site) -> Door:
    return find_door(site, request.param)


def public(door: Door, site: Site) -> str:
    """A path that needs no token."""
    return "/livez" if door.url == site.server.url else "/healthz"


def test_names_that_are_all_different_do_not_stall_others(site: Site, door: Door) -> None:
    """165 KB of them, each twice, took 7 seconds of everybody's time."""
    assert b" 200 " in door.get(public(door, site))
    lines = b"".join(b"%x:\r\n%x:\r\n" % (number, number) for number in range(12_000))
    began = time.monotonic()
    for _ in range(3):
        answer = door.ask(b"GET / HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")
        assert b" 431 " in answer.split(b"\r\n")[0] and b"limits.header" in answer
    assert time.monotonic() - began < 15


def test_headers_without_end_are_refused(site: Site, door: Door) -> None:
    for piece in (b"y" * 16_384, b"X: y\r\n" * 2000):
        with door.enter() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
            assert send_until_cut(sock, piece, 200 * MIB) < 32 * MIB, "16 MiB that are thrown away, and the buffers"
    answer = door.ask(build_get("/", "", *[f"X-{number}: {'y' * 500}" for number in range(180)]))
    assert b" 431 " in answer.split(b"\r\n")[0] and b"limits.header_bytes" in answer


def test_what_is_pipelined_behind_a_request_fills_no_memory(site: Site, door: Door) -> None:
    """400 MB were taken, on one connection that no clock looked at."""
    before = read_memory(site.server.pid)
    with door.enter() as sock:
        sock.sendall(build_get(public(door, site)) + b"GET / HTTP/1.1\r\nX: ")
        assert send_until_cut(sock, b"y" * 65_536, 100 * MIB) < 40 * MIB
        assert read_memory(site.server.pid) - before < 30 * MIB


def test_a_crowd_that_says_nothing_keeps_nobody_out(site: Site, door: Door) -> None:
    """2,050 idle connections: everybody got 503, and 45 seconds later too."""
    with crowd(door, 1200, handshake=False) as silent, crowd(door, 300, handshake=True) as idle:
        assert len(silent) + len(idle) > 1000
        assert b" 200 " in door.get(public(door, site))
        for caller in (site.owner, site.ann):
            assert caller.kube.call("GET", "/version")[0] == 200
            assert caller.rest.call("GET", "/api/v1/me")[0] == 200
        assert is_closed(silent[0]), "the oldest give way"


def test_half_a_request_has_its_time(site: Site) -> None:
    """Half a header stayed for 109 seconds; half a request behind a whole one for ever."""
    doors = [find_door(site, name) for name in ("kube", "rest")]
    with (
        crowd(doors[0], 25, handshake=True) as slow,
        crowd(doors[1], 25, handshake=True) as slower,
        ExitStack() as stack,
    ):
        for sock in (*slow, *slower):
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Ha")
        behind = [stack.enter_context(door.enter()) for door in doors]
        for door, sock in zip(doors, behind, strict=True):
            sock.sendall(build_get(public(door, site)) + b"GET / HTTP/1.1\r\nHost: x\r\n")
            assert read_answer(sock).startswith(b"HTTP/1.1 200")
        for sock in behind:
            answer = read_answer(sock, 60)
            assert answer.startswith(b"HTTP/1.1 408") and b"limits.header_seconds" in answer
        wait_until(lambda: all(is_closed(sock) for sock in slow), 60)


def test_a_stranger_sends_no_large_body(site: Site, door: Door) -> None:
    with door.enter() as sock:
        head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        sock.sendall(head + b"Content-Length: 2000000\r\n\r\n" + b" " * 100_000)
        assert read_answer(sock).startswith(b"HTTP/1.1 401")
    with door.enter() as sock:
        sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + (b"4000\r\n" + b" " * 0x4000 + b"\r\n") * 10)
        assert read_answer(sock).startswith(b"HTTP/1.1 401")


def test_answers_that_nobody_reads_are_not_collected(site: Site, door: Door) -> None:
    before = read_memory(site.server.pid)
    with crowd(door, 4, handshake=True) as deaf:
        for sock in deaf:
            send_until_cut(sock, build_get("/docs") * 200, 3 * MIB)
        assert read_memory(site.server.pid) - before < 60 * MIB
        assert b" 200 " in door.get(public(door, site))


def test_a_server_without_descriptors_lives_and_serves_again(tmp_path: Path) -> None:
    """With 1,024 descriptors both ports were gone, and loading REST without any ended the process."""
    with start_server(tmp_path / "home") as server:
        owner = make_caller(server, "default", (server.home / "pki" / "owner.token").read_text().strip())
        door, rest = Door(server.url, server.ca), Door(server.rest_url, server.ca)
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 60, used + 60))
        with crowd(door, 150, handshake=False) as many, crowd(rest, 150, handshake=False), rest.knock() as sock:
            assert len(many) > 100
            sock.close()
            # The strangers give way, so whoever asks again gets through.
            wait_until(lambda: try_call(owner.kube, "/version"))
            assert server.process.poll() is None
        wait_until(lambda: try_call(owner.rest, "/api/v1/me"))
        assert "no descriptor is left" in server.log
        owner.close()


def test_without_descriptors_everything_goes_on(tmp_path: Path) -> None:
    """What looks at the machine many times a second ended the process, and so did the store's next checkpoint."""
    with start_server(tmp_path / "home") as server:
        owner = make_caller(server, "default", (server.home / "pki" / "owner.token").read_text().strip())
        door = Door(server.url, server.ca)
        run_command(server.home, "run", "--detach", "--name", "short", "--", "sleep", "4")
        wait_until(lambda: "Running" in run_command(server.home, "list"))
        _, most = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (16, most))
        until = time.monotonic() + 12
        while time.monotonic() < until:
            with suppress(OSError), door.knock():
                assert server.process.poll() is None, server.log
                time.sleep(0.2)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (most, most))
        wait_until(lambda: try_call(owner.rest, "/api/v1/me"))
        wait_until(lambda: "Complete" in run_command(server.home, "list"))
        owner.close()


def try_call(raw: Raw, path: str) -> bool:
    try:
        return raw.call("GET", path)[0] == 200
    except (OSError, http.client.HTTPException):
        return False
