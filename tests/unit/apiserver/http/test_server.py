"""The server without a socket: durability before answers, audit, discovery, logs, health."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.unit.apiserver.http.wire import FakeTransport, get, post
from tests.unit.auth.policies import DictPolicies
from trainmaster.api.declaring import catalogue
from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.audit import AuditLog
from trainmaster.apiserver.http.endpoints import Endpoints
from trainmaster.apiserver.http.handlers import Handlers
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.apiserver.http.messages import ApiRequest
from trainmaster.apiserver.http.server import ApiServer
from trainmaster.apiserver.http.streams.contract import PodStreams
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.auth.identities import Credentials, StaticTokens, digest
from trainmaster.auth.rbac import RbacAuthorizer
from trainmaster.client.contract import ActingIdentity, LogOptions, WriteOptions
from trainmaster.edge.connection import PIECE_BYTES, Connection
from trainmaster.edge.gatekeeper import Visitor
from trainmaster.kit.ids import SeededIds
from trainmaster.kit.metrics import Metrics
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

MAPS = "/api/v1/namespaces/default/configmaps"
AUTH = "Authorization: Bearer secret"
MAP = orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})


class FakeLogs:
    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one\n"
            yield b"two\n"

        return pieces()


class World:
    def __init__(
        self,
        store: MemoryStore,
        audit: AuditLog | None = None,
        limits: ApiLimits | None = None,
        streams: PodStreams | None = None,
    ) -> None:
        clock, ids, metrics = VirtualClock(), SeededIds(1), Metrics()
        kinds = catalogue.build()
        self.store = store
        self.registry = ObjectRegistry(store, kinds, clock, ids)
        owner = ActingIdentity("owner", groups=("system:masters",))
        self.policies = DictPolicies()
        tokens = StaticTokens({digest("secret"): owner, digest("weak"): ActingIdentity("weak")})
        access = Access(Credentials([tokens]), RbacAuthorizer(self.policies))
        self.ready = ""
        endpoints = Endpoints(kinds, metrics, ready={"store": lambda: self.ready})
        handlers = Handlers(
            self.registry, kinds, access, endpoints, clock=clock, logs=FakeLogs(), limits=limits, streams=streams
        )
        self.server = ApiServer(handlers, store, clock=clock, ids=ids, metrics=metrics, audit=audit, limits=limits)

    def connect(self) -> tuple[Connection[ApiRequest], FakeTransport]:
        visitor, transport = Visitor("127.0.0.1"), FakeTransport()
        assert self.server.gatekeeper.admit(visitor)
        connection = Connection(self.server, visitor)
        connection.connection_made(transport)
        return connection, transport

    def ask(self, payload: bytes) -> tuple[int, dict[str, str], bytes]:
        connection, transport = self.connect()
        connection.data_received(payload)
        return split(transport.sent)


def split(sent: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = sent.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), headers, body


def run(
    check: Callable[[World], Awaitable[None]],
    *,
    manual: bool = False,
    audit: Path | None = None,
    limits: ApiLimits | None = None,
    streams: PodStreams | None = None,
) -> None:
    async def body() -> None:
        store = MemoryStore(manual=manual)
        log = AuditLog(audit, max_bytes=600, keep=2) if audit else None
        world = World(store, log, limits, streams)
        async with world.registry.running(), world.server:
            if manual:
                store.commit()
            await check(world)
        world.registry.close()

    run_virtual(body())


def test_a_write_is_answered_after_its_commit_and_not_before() -> None:
    async def check(world: World) -> None:
        connection, transport = world.connect()
        connection.data_received(post(MAPS, MAP, AUTH))
        await settle()
        assert transport.sent == b""
        world.store.commit()
        await settle()
        assert split(transport.sent)[0] == 201

    run(check, manual=True)


def test_a_read_of_what_is_not_on_disk_yet_waits_too() -> None:
    async def check(world: World) -> None:
        writer, _ = world.connect()
        writer.data_received(post(MAPS, MAP, AUTH))
        reader, answer = world.connect()
        reader.data_received(get(f"{MAPS}/a", AUTH))
        missing, refusal = world.connect()
        missing.data_received(post(MAPS, MAP, AUTH))
        await settle()
        assert answer.sent == b"" and refusal.sent == b""
        world.store.commit()
        await settle()
        assert split(answer.sent)[0] == 200 and split(refusal.sent)[0] == 409

    run(check, manual=True)


def test_a_durable_read_is_answered_in_the_same_call() -> None:
    async def check(world: World) -> None:
        assert world.ask(post(MAPS, MAP, AUTH))[0] == 201
        code, headers, body = world.ask(get(f"{MAPS}/a", AUTH))
        assert code == 200 and json.loads(body)["data"] == {"k": "v"}
        assert headers["audit-id"].count("-") == 4 and headers["cache-control"] == "no-cache, private"

    run(check)


def test_writes_are_audited_without_their_bodies_and_the_file_rotates(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"

    async def check(world: World) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"generateName": "s-"},
            "stringData": {"p": "hunter2"},
        }
        world.ask(post("/api/v1/namespaces/default/secrets", orjson.dumps(secret), AUTH))
        world.ask(post(MAPS, MAP, "Authorization: Bearer weak"))
        world.ask(get(f"{MAPS}/a", AUTH))
        await settle()
        for _ in range(5):
            world.ask(post(MAPS, MAP, AUTH))
            await settle()

    run(check, audit=path)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    everything = b"".join(file.read_bytes() for file in reversed(files))
    assert b"hunter2" not in everything
    lines = [json.loads(line) for line in everything.splitlines()]
    assert all(line["verb"] != "get" for line in lines)
    last = lines[-1]
    assert (last["user"], last["verb"], last["resource"], last["namespace"], last["code"]) == (
        "owner", "create", "configmaps", "default", 409,
    )  # fmt: skip
    assert last["address"] == "127.0.0.1"
    assert last["requestId"] and last["time"].startswith("2026-01-01T00:00:00")


def test_an_audit_line_names_what_was_made_who_really_asked_and_whether_it_was_a_dry_run(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    owned = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "labels": {"name": "not-this"},
            "generateName": "owned-",
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "nor-this", "uid": "u"}],
        },
    }
    options = b'{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"]}'

    async def check(world: World) -> None:
        world.ask(post(MAPS, MAP, AUTH))
        world.ask(post(MAPS, orjson.dumps(owned), AUTH))
        world.ask(post(MAPS, MAP, AUTH, "Impersonate-User: ann"))
        world.ask(post(MAPS, MAP, "Authorization: Bearer weak", "Impersonate-User: ann"))
        world.ask(post(f"{MAPS}/a", options, AUTH).replace(b"POST", b"DELETE", 1))
        await settle()

    run(check, audit=path)
    everything = b"".join(file.read_bytes() for file in sorted(tmp_path.iterdir(), reverse=True))
    lines = [json.loads(line) for line in everything.splitlines()]
    assert [(line["user"], line.get("impersonator"), line["code"], line["dryRun"]) for line in lines] == [
        ("owner", None, 201, False),
        ("owner", None, 201, False),
        ("ann", "owner", 403, False),
        ("weak", None, 403, False),
        ("owner", None, 200, True),
    ]
    assert lines[0]["name"] == "a" and lines[1]["name"].startswith("owned-")


def test_documents_come_with_an_etag_and_are_not_sent_twice() -> None:
    async def check(world: World) -> None:
        code, headers, body = world.ask(get("/apis", AUTH))
        assert code == 200 and json.loads(body)["kind"] == "APIGroupList"
        assert headers["vary"] == "Accept" and headers["cache-control"] == "public"
        again = world.ask(get("/apis", AUTH, f"If-None-Match: {headers['etag']}"))
        assert again[0] == 304 and again[2] == b""
        aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        code, other, body = world.ask(get("/apis", AUTH, f"Accept: {aggregated},application/json"))
        assert other["content-type"] == aggregated and other["etag"] != headers["etag"]
        assert json.loads(body)["kind"] == "APIGroupDiscoveryList"

    run(check)


def test_openapi_documents_are_cached_for_ever_under_their_hash() -> None:
    async def ask(world: World, payload: bytes) -> tuple[int, dict[str, str], bytes]:
        connection, transport = world.connect()
        connection.data_received(payload)
        while not transport.sent:
            await world.server._clock.sleep(0.01)
        return split(transport.sent)

    async def check(world: World) -> None:
        _, _, body = await ask(world, get("/openapi/v3", AUTH))
        url = json.loads(body)["paths"]["apis/batch/v1"]["serverRelativeURL"]
        code, headers, _ = await ask(world, get(url, AUTH))
        assert code == 200 and "immutable" in headers["cache-control"] and "?hash=" in url
        protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
        _, headers, body = await ask(world, get("/openapi/v2", AUTH, f"Accept: {protobuf}"))
        assert "@" not in headers["content-type"] and len(body) > 1000

    run(check)


def test_health_says_what_is_wrong() -> None:
    async def check(world: World) -> None:
        assert world.ask(get("/readyz"))[2] == b"ok"
        world.ready = "disk is full"
        code, _, body = world.ask(get("/readyz"))
        assert code == 500 and b"[-]store failed: disk is full" in body and b"[+]ping ok" in body
        assert world.ask(get("/livez"))[0] == 200
        assert world.ask(get("/livez?verbose"))[2] == b"[+]ping ok\nlivez check passed\n"

    run(check)


def pod(state: Object | None, containers: int = 1) -> Object:
    names = ["main", "side"][:containers]
    obj: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": name, "image": "x"} for name in names], "nodeName": "here"},
    }
    if state is not None:
        obj["status"] = {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}
    return obj


@pytest.mark.parametrize(
    ("state", "containers", "query", "want"),
    [
        pytest.param({"running": {}}, 1, "", None, id="a running container"),
        pytest.param(
            {"running": {}},
            2,
            "",
            "a container name must be specified for pod p, choose one of: [main side]",
            id="none named",
        ),
        pytest.param({"running": {}}, 2, "?container=main", None, id="one named"),
        pytest.param({"running": {}}, 1, "?container=no", "container no is not valid for pod p", id="a wrong name"),
        pytest.param(
            None, 1, "", 'container "main" in pod "p" is waiting to start: ContainerCreating', id="not started"
        ),
        pytest.param(
            {"running": {}},
            1,
            "?previous=true",
            'previous terminated container "main" in pod "p" not found',
            id="no previous",
        ),
    ],
)
def test_logs_answer_with_text_or_with_upstreams_sentences(
    state: Object | None, containers: int, query: str, want: str | None
) -> None:
    async def check(world: World) -> None:
        kind = world.registry.catalogue.find(GVR("", "v1", "pods"))
        assert kind is not None
        call = Call(ActingIdentity("test", groups=("system:masters",)))
        obj = pod(state, containers)
        current = obj.pop("status", None)
        created = orjson.loads(world.registry.create(call, kind, "default", obj, WriteOptions()).value)
        if current is not None:
            created["status"] = current
            world.registry.update(call, kind, "default", "p", created, WriteOptions(), subresource="status")
        connection, transport = world.connect()
        connection.data_received(get(f"/api/v1/namespaces/default/pods/p/log{query}", AUTH))
        await settle()
        code, headers, body = split(transport.sent)
        if want is None:
            assert (code, headers["content-type"]) == (200, "text/plain; charset=utf-8")
            assert body == b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n"
        else:
            assert code == 400 and json.loads(body)["message"] == want

    run(check)


def test_watchers_beyond_the_limit_are_told_to_come_back() -> None:
    async def check(world: World) -> None:
        for _ in range(2):
            connection, transport = world.connect()
            connection.data_received(get(f"{MAPS}?watch=1", AUTH))
            await settle()
        code, headers, body = split(transport.sent)
        assert code == 429 and headers["retry-after"] == "1" and json.loads(body)["reason"] == "TooManyRequests"

    run(check, limits=ApiLimits(watchers=1))


def test_draining_ends_watches_with_their_closing_chunk() -> None:
    seen: list[FakeTransport] = []

    async def check(world: World) -> None:
        connection, transport = world.connect()
        connection.data_received(get(f"{MAPS}?watch=1", AUTH))
        await settle()
        seen.append(transport)

    run(check)
    assert seen[0].sent.endswith(b"0\r\n\r\n")


def numbered(number: int) -> bytes:
    return orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"map-{number}"}})


def create_many(world: World, count: int) -> None:
    connection, transport = world.connect()
    for number in range(count):
        connection.data_received(post(MAPS, numbered(number), AUTH))
    assert transport.sent.count(b"HTTP/1.1 201") == count


def names_in(stream: bytes) -> list[str]:
    lines = [line for line in split(stream)[2].split(b"\r\n") if line.startswith(b"{")]
    return [json.loads(event)["object"]["metadata"]["name"] for line in lines for event in line.splitlines()]


@pytest.mark.parametrize("accept", ["application/json", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"])
def test_a_watcher_that_was_behind_gets_every_event_once_and_in_order(accept: str) -> None:
    async def check(world: World) -> None:
        connection, transport = world.connect()
        connection.data_received(
            get(f"{MAPS}?watch=1&resourceVersion={world.store.revision}", AUTH, f"Accept: {accept}")
        )
        await settle()
        for number in range(9):
            if number == 3:
                connection.pause_writing()
            if number == 6:
                connection.resume_writing()
            world.ask(post(MAPS, numbered(number), AUTH))
            await settle()
            assert len(names_in(transport.sent)) == (number + 1 if number < 3 or number > 5 else 3)
        assert names_in(transport.sent) == [f"map-{number}" for number in range(9)]

    run(check)


def test_an_event_that_cannot_be_shown_ends_the_watch_and_harms_nobody_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(world: World) -> None:
        connection, transport = world.connect()
        connection.data_received(get(f"{MAPS}?watch=1&resourceVersion={world.store.revision}", AUTH))
        await settle()

        def explode(*arguments: Any) -> Any:
            raise RuntimeError("cannot be shown")

        monkeypatch.setattr(world.registry._frames, "frame", explode)
        assert world.ask(post(MAPS, numbered(1), AUTH))[0] == 201
        await settle()
        assert transport.sent.endswith(b"0\r\n\r\n") and transport.closed

    run(check)
    assert "cannot be shown" in caplog.text


def test_at_the_limit_of_its_address_the_oldest_stranger_is_closed() -> None:
    async def check(world: World) -> None:
        (_, first), (known, second) = world.connect(), world.connect()
        known.data_received(get("/version", AUTH))
        (_, third), (_, fourth) = world.connect(), world.connect()
        assert [one.aborted for one in (first, second, third, fourth)] == [True, False, False, False]

    run(check, limits=ApiLimits(connections_per_address=2))


def test_one_user_has_so_many_connections_and_administrators_more() -> None:
    async def check(world: World) -> None:
        def call(token: str) -> tuple[int, dict[str, str], bytes]:
            return world.ask(get("/version", f"Authorization: Bearer {token}"))

        assert [call("weak")[0] for _ in range(3)] == [403, 403, 429]
        assert [call("secret")[0] for _ in range(3)] == [200, 200, 200]
        code, headers, body = call("weak")
        assert code == 429 and headers["retry-after"] == "1" and headers["connection"] == "close"
        assert "limits.connections_per_user" in json.loads(body)["message"]

    run(check, limits=ApiLimits(connections_per_user=2))


def test_one_user_has_a_rate_and_administrators_have_none() -> None:
    async def check(world: World) -> None:
        def call(token: str) -> int:
            return world.ask(get(f"{MAPS}/x", f"Authorization: Bearer {token}"))[0]

        assert [call("weak") for _ in range(4)] == [403, 403, 403, 403]
        connection, transport = world.connect()
        connection.data_received(get(f"{MAPS}/x", "Authorization: Bearer weak"))
        assert {call("secret") for _ in range(20)} == {404}
        assert transport.sent == b"", "who is too fast waits for the refusal too"
        await asyncio.sleep(0.6)
        code, headers, body = split(transport.sent)
        assert code == 429
        assert headers["retry-after"] == "1" and "limits.requests_per_second" in json.loads(body)["message"]
        await asyncio.sleep(0.4)
        assert [call("weak") for _ in range(2)] == [403, 403]

    run(check, limits=ApiLimits(requests_per_second=2, request_burst=4))


def test_who_uses_much_of_the_servers_time_is_served_after_others() -> None:
    async def check(world: World) -> None:
        large = json.dumps({**json.loads(MAP), "data": {"x": "x" * 300_000}}).encode()
        waiting = []
        for _ in range(12):
            assert world.ask(get(f"{MAPS}/x", AUTH))[0] == 404, "an administrator never waits"
            connection, transport = world.connect()
            connection.data_received(post(MAPS, large, "Authorization: Bearer weak"))
            waiting.append(transport)
        await settle()
        answered = [transport for transport in waiting if transport.sent]
        assert answered and answered != waiting and answered == waiting[: len(answered)]
        await asyncio.sleep(5)
        assert {split(transport.sent)[0] for transport in waiting} == {403}

    run(check)


def test_unknown_errors_become_a_500_with_an_id_and_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(world: World) -> None:
        def explode(*arguments: Any, **options: Any) -> Any:
            raise RuntimeError("secret detail")

        monkeypatch.setattr(world.registry, "get", explode)
        code, headers, body = world.ask(get(f"{MAPS}/a", AUTH))
        answer = json.loads(body)
        assert code == 500 and answer["reason"] == "InternalError" and headers["audit-id"] in answer["message"]
        assert b"secret detail" not in body

    run(check)
    assert "secret detail" in caplog.text


def test_a_burst_longer_than_a_batch_reaches_a_waiting_watcher_in_order() -> None:
    async def check(world: World) -> None:
        connection, transport = world.connect()
        connection.data_received(get(f"{MAPS}?watch=1&resourceVersion={world.store.revision}", AUTH))
        await settle()
        create_many(world, 600)
        await settle()
        assert names_in(transport.sent) == [f"map-{number}" for number in range(600)]

    run(check)


def test_a_long_list_is_the_same_however_it_is_cut() -> None:
    async def check(world: World) -> None:
        async def read_list(query: str) -> Object:
            connection, transport = world.connect()
            connection.data_received(get(f"{MAPS}{query}", AUTH))
            await settle()
            code, headers, body = split(transport.sent)
            assert code == 200 and int(headers["content-length"]) == len(body)
            assert not connection.busy and not transport.closed
            found: Object = json.loads(body)
            return found

        create_many(world, 3500)
        whole = await read_list("")
        page = await read_list("?limit=700")
        paged = page["items"]
        # What comes and goes between pages is not seen by the later ones.
        world.ask(post(MAPS, numbered(9999), AUTH))
        world.ask(f"DELETE {MAPS}/map-998 HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n\r\n".encode())
        while token := page["metadata"].get("continue"):
            assert page["metadata"]["remainingItemCount"] == len(whole["items"]) - len(paged)
            page = await read_list(f"?limit=700&continue={token}")
            paged += page["items"]
        assert paged == whole["items"] and len(orjson.dumps(paged)) > PIECE_BYTES

    run(check)


def test_a_long_answer_waits_for_its_reader() -> None:
    async def check(world: World) -> None:
        create_many(world, 3500)
        connection, transport = world.connect()
        connection.data_received(get(MAPS, AUTH))
        connection.pause_writing()
        await settle()
        assert transport.sent == b"" and connection.busy
        connection.resume_writing()
        await settle()
        assert transport.sent.endswith(b"]}") and not connection.busy

    run(check)
