"""Whoever loses their rights loses what is open too: watches, followed logs, executed programs, event streams."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.attacks.site import Site, add_tenant, unique
from tests.attacks.stranger.door import MIB, Door, build_get, read_all, read_memory

pytestmark = pytest.mark.attacks

WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Protocol: v5.channel.k8s.io",
)
EXEC = "container=main&stdin=true&stdout=true&stderr=true&command=cat"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


@contextmanager
def streaming(door: Door, path: str, token: str, *headers: str, answer: bytes = b" 200 ") -> Iterator[socket.socket]:
    """A stream whose head has come."""
    with door.enter() as sock:
        sock.sendall(build_get(path, token, *headers))
        assert answer in sock.recv(65536).split(b"\r\n")[0]
        yield sock


def write_frame(channel: int, data: bytes) -> bytes:
    """A masked WebSocket message for one channel."""
    mask = os.urandom(4)
    body = bytes((channel,)) + data
    return bytes((0x82, 0x80 | len(body))) + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(body))


def read_until(sock: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return data


@pytest.fixture
def kube(site: Site) -> Door:
    return Door(site.server.url, site.server.ca)


def test_a_disabled_tenant_loses_what_is_open(site: Site, kube: Door) -> None:
    """`tenant disable` left open watches and executed programs working."""
    name = unique("eve")
    eve = add_tenant(site.server, name)
    eve.start_pod("target", "echo ready; exec sleep 600")
    eve.wait_for_pod("target", "Running")
    pods = eve.path("pods")
    log = f"{eve.path('pods', 'target', 'log')}?follow=true"
    run = f"{eve.path('pods', 'target', 'exec')}?{EXEC}"
    with (
        streaming(kube, f"{pods}?watch=true", eve.token) as watch,
        streaming(kube, log, eve.token) as logs,
        streaming(kube, run, eve.token, *WEBSOCKET, answer=b" 101 ") as program,
        streaming(kube, f"{site.ann.path('pods')}?watch=true", site.ann.token) as other,
    ):
        program.sendall(write_frame(0, b"hello\n"))
        read_until(program, b"hello")
        site.trainmaster("tenant", "disable", name)
        check_told(read_all(watch), 401)
        read_all(logs)
        said = read_all(program)
        assert b'"code":401' in said or b"Unauthorized" in said
        assert eve.kube.call("GET", pods)[0] == 401
        other.settimeout(1)
        check_open(other)
    eve.close()


def check_told(data: bytes, code: int) -> None:
    """A watch ends with the Status that says why, and properly."""
    assert data.endswith(b"0\r\n\r\n"), data[-200:]
    line = [line for line in data.split(b"\n") if b'"type":"ERROR"' in line][-1]
    event = json.loads(line)
    assert event["object"]["kind"] == "Status" and event["object"]["code"] == code


def check_open(sock: socket.socket) -> None:
    while True:
        try:
            assert sock.recv(65536), "somebody else's stream ended"
        except TimeoutError:
            return


def test_a_role_that_is_taken_away_ends_the_watch(site: Site, kube: Door) -> None:
    name, owner = unique("reader"), site.owner.kube
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    owner.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    owner.create(f"{ROLES}/rolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = owner.create(f"{accounts}/{name}/token", request)["status"]["token"]
    with streaming(kube, "/api/v1/namespaces/default/pods?watch=true", token) as watch:
        owner.delete(f"{ROLES}/rolebindings/{name}")
        check_told(read_all(watch), 403)
    owner.create(f"{ROLES}/rolebindings", binding)
    with streaming(kube, "/api/v1/namespaces/default/pods?watch=true", token) as watch:
        owner.delete(f"{accounts}/{name}")
        check_told(read_all(watch), 401)
    owner.delete(f"{ROLES}/rolebindings/{name}")


def test_watches_that_are_never_read_cost_a_bounded_buffer(site: Site, kube: Door) -> None:
    name = unique("noise")
    path = site.ann.path("configmaps")
    site.ann.kube.create(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    before = read_memory(site.server.pid)
    with ExitStack() as stack:
        for _ in range(30):
            selected = f"{path}?watch=true&fieldSelector=metadata.name={name}"
            stack.enter_context(streaming(kube, selected, site.ann.token))
        for number in range(60):
            code, answer = site.owner.kube.call(
                "PATCH",
                f"{path}/{name}",
                {"data": {"filler": f"{number}" + "x" * 200_000}},
                Content_Type="application/merge-patch+json",
            )
            assert code == 200, answer
        # Everything that was written would be 360 MB.
        assert read_memory(site.server.pid) - before < 120 * MIB
    site.ann.kube.delete(f"{path}/{name}")


def test_a_tenant_has_a_rate_on_the_api_server_and_the_owner_does_not(site: Site, kube: Door) -> None:
    """60 ConfigMaps of 1 MB in 0.6 seconds: nothing counted."""
    codes = count_answers(kube, site.bob.token, "/api/v1/namespaces/bob/pods/none", 1000)
    # Each refusal takes its time, and meanwhile the rate allows some more.
    assert codes.get(b"429", 0) > 2 and codes.get(b"404", 0) >= 400, codes
    assert site.ann.kube.call("GET", site.ann.path("pods"))[0] == 200, "another tenant is not counted"
    codes = count_answers(kube, site.owner.token, "/api/v1/namespaces/bob/pods/none", 1500)
    assert codes == {b"404": 1500}


def count_answers(door: Door, token: str, path: str, count: int) -> dict[bytes, int]:
    """Of so many requests on one connection, pipelined by fifty."""
    codes: dict[bytes, int] = {}
    with door.enter() as sock:
        for _ in range(count // 50):
            sock.sendall(build_get(path, token) * 50)
            data = b""
            while data.count(b"HTTP/1.1 ") < 50 or not data.endswith(b"}"):
                piece = sock.recv(65536)
                assert piece
                data += piece
            for answer in data.split(b"HTTP/1.1 ")[1:]:
                codes[answer[:3]] = codes.get(answer[:3], 0) + 1
                assert answer[:3] != b"429" or (b"Retry-After: " in answer and b"limits.requests_per_second" in answer)
    return codes
