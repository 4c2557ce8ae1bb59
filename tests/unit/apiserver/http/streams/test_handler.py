"""exec, attach and port-forward over a connection without a socket: negotiation, refusals, rights, draining."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from tests.unit.apiserver.http.streams.spdy_client import SpdyClient
from tests.unit.apiserver.http.streams.test_sessions import FakeProgram, FakeTunnel
from tests.unit.apiserver.http.streams.test_websocket import frame
from tests.unit.apiserver.http.test_server import AUTH, World, run, split
from tests.unit.apiserver.http.wire import FakeTransport, get, post
from tests.unit.auth.policies import rule
from trainmaster.api.meta import Object
from trainmaster.apiserver.http.messages import ApiRequest
from trainmaster.apiserver.http.streams.contract import StreamOptions
from trainmaster.edge.connection import Connection
from trainmaster.testing.virtual import settle

pytestmark = pytest.mark.unit

PODS = "/api/v1/namespaces/default/pods"
WEBSOCKET = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)  # fmt: skip
V5 = (*WEBSOCKET, "Sec-WebSocket-Protocol: v5.channel.k8s.io")
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")
ALL = "stdin=true&stdout=true&stderr=true"


class FakeStreams:
    def __init__(self) -> None:
        self.program = FakeProgram(waits=True)
        self.asked: list[StreamOptions] = []

    async def run(self, pod: Object, wanted: StreamOptions) -> FakeProgram:
        self.asked.append(wanted)
        return self.program

    async def attach(self, pod: Object, wanted: StreamOptions) -> FakeProgram:
        return await self.run(pod, wanted)

    async def connect(self, pod: Object, port: int) -> FakeTunnel:
        return FakeTunnel()


def create_pod(world: World, name: str = "p", phase: str = "Running", state: str = "running") -> None:
    spec = {"nodeName": "n", "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}
    body = orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    code, _, answer = world.ask(post(PODS, body, AUTH))
    assert code == 201, answer
    pod = orjson.loads(answer)
    pod["status"] = {"phase": phase, "containerStatuses": [
        {"name": "a", "state": {state: {}}, "ready": True, "restartCount": 0, "image": "i", "imageID": ""},
    ]}  # fmt: skip
    body = orjson.dumps(pod)
    head = f"PUT {PODS}/{name}/status HTTP/1.1\r\nHost: x\r\n{AUTH}\r\nContent-Type: application/json\r\n"
    code, _, answer = world.ask(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert code == 200, answer


def check(test: Callable[[World, FakeStreams], Awaitable[None]]) -> None:
    streams = FakeStreams()

    async def body(world: World) -> None:
        create_pod(world)
        await test(world, streams)

    run(body, streams=streams)


def open_exec(world: World, *headers: str) -> tuple[Connection[ApiRequest], FakeTransport]:
    connection, transport = world.connect()
    connection.data_received(get(f"{PODS}/p/exec?container=a&command=sh&command=-c&{ALL}", AUTH, *headers))
    return connection, transport


def test_a_websocket_is_accepted_and_carries_the_program() -> None:
    async def test(world: World, streams: FakeStreams) -> None:
        connection, transport = open_exec(world, *V5)
        await settle()
        head, _, _ = transport.sent.partition(b"\r\n\r\n")
        code, headers, _ = split(head + b"\r\n\r\n")
        assert code == 101 and headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert headers["sec-websocket-protocol"] == "v5.channel.k8s.io"
        assert streams.asked[0].command == ["sh", "-c"] and streams.asked[0].container == "a"
        connection.data_received(frame(b"\0words") + frame(b"\xff\0"))
        await settle()
        assert streams.program.input == b"words" and streams.program.closed
        assert b'{"metadata":{},"status":"Success"}' in transport.sent

    check(test)


def test_what_comes_with_the_upgrade_is_not_lost() -> None:
    async def test(world: World, streams: FakeStreams) -> None:
        client = SpdyClient()
        connection, transport = world.connect()
        opening = b"".join(client.open(streamtype=name) for name in ("error", "stdin", "stdout", "stderr"))
        request = post(f"{PODS}/p/exec?container=a&command=cat&{ALL}", b"", AUTH, *SPDY)
        connection.data_received(request + opening + client.data(3, b"early", final=True))
        await settle()
        assert transport.sent.startswith(b"HTTP/1.1 101 ") and streams.program.input == b"early"

    check(test)


def test_a_client_that_breaks_the_protocol_is_cut_off_and_its_program_ended() -> None:
    async def test(world: World, streams: FakeStreams) -> None:
        connection, transport = open_exec(world, *V5)
        await settle()
        connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
        assert transport.aborted
        connection.connection_lost(None)
        await settle()
        assert streams.program.closed

    check(test)


def test_draining_ends_sessions_and_says_so() -> None:
    async def test(world: World, streams: FakeStreams) -> None:
        _, transport = open_exec(world, *V5)
        await settle()
        await asyncio.wait_for(world.server.drain(), 60)
        assert streams.program.closed and b"the server is shutting down" in transport.sent

    check(test)


@pytest.mark.parametrize(
    ("query", "headers", "code", "text"),
    [
        ("exec?container=x&command=a&stdout=1", V5, 400, "container x is not valid for pod p"),
        ("exec?command=a&stdout=1", V5, 400, "a container name must be specified for pod p, choose one of: [a b]"),
        ("exec?container=b&command=a&stdout=1", V5, 500, 'container not found ("b")'),
        ("exec?container=a&stdout=1", V5, 400, "you must specify at least one command for the container"),
        ("exec?container=a&command=a", V5, 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("exec?container=a&command=a&stdout=1", (), 400, "missing upgrade headers"),
        ("exec?container=a&command=a&stdout=1", WEBSOCKET, 400, "v5.channel.k8s.io, v4.channel.k8s.io"),
        ("exec?container=a&command=a&stdout=1", SPDY[:2], 403, "unable to negotiate protocol"),
        ("exec?container=a&command=a&stdout=1", (*V5[:2], V5[4]), 400, "not a WebSocket handshake"),
        ("exec?container=a&command=a&stdout=1", (*V5, "Origin: https://evil"), 403, "Origin"),
        ("portforward?ports=x", WEBSOCKET, 400, '"x" is not a port'),
        ("portforward?ports=70000", WEBSOCKET, 400, '"70000" is not a port'),
        ("portforward", WEBSOCKET, 400, 'query parameter "port" is required'),
        ("proxy", (), 400, "use port-forward"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_status(query: str, headers: tuple[str, ...], code: int, text: str) -> None:
    async def test(world: World, streams: FakeStreams) -> None:
        found, _, body = world.ask(get(f"{PODS}/p/{query}", AUTH, *headers))
        answer = orjson.loads(body)
        assert (found, answer["kind"]) == (code, "Status") and text in answer["message"]
        assert not streams.asked

    check(test)


def test_a_finished_pod_has_no_streams() -> None:
    async def test(world: World, streams: FakeStreams) -> None:
        create_pod(world, "over", "Succeeded", "terminated")
        for query, text in (("exec?command=a&container=a&stdout=1", "completed pod"), ("portforward", "not running")):
            code, _, body = world.ask(get(f"{PODS}/over/{query}", AUTH, *V5))
            assert code == 400 and text in orjson.loads(body)["message"]

    check(test)


@pytest.mark.parametrize(("verbs", "code"), [(["get"], 403), (["create"], 403), (["get", "create"], 101)])
def test_a_websocket_needs_the_rights_to_get_and_to_create(verbs: list[str], code: int) -> None:
    async def test(world: World, streams: FakeStreams) -> None:
        world.policies.role("r", rule(verbs, ["pods/exec"]))
        world.policies.bind("r", ("User", "weak"))
        connection, transport = world.connect()
        query = f"container=a&command=a&{ALL}"
        connection.data_received(get(f"{PODS}/p/exec?{query}", "Authorization: Bearer weak", *V5))
        await settle()
        assert transport.sent.startswith(f"HTTP/1.1 {code} ".encode())

    check(test)
