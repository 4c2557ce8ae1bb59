"""The operator's status server: what it asks of the cluster, and how it meets people who do not speak HTTP."""

from __future__ import annotations

import re
from typing import Any, cast

import orjson
import pytest

from tests.unit.apiserver.http.wire import FakeTransport
from tests.unit.controllers.test_verdict import Stage as Pods
from tests.unit.controllers.world import World
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.api.training.reports import LARGEST, build_audience, build_path
from trainmaster.client.contract import Client
from trainmaster.client.view import View
from trainmaster.edge.connection import Connection
from trainmaster.operator.status_server import BURST, StatusServer
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

PATH = build_path("default", "tj")
REPORT = {"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": "2026-11-15T12:30:00Z"}}


class Cluster:
    """Answers TokenReviews and takes patches, in place of an API server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.reviews = 0
        self.user: Object = {"username": "system:serviceaccount:default:default"}
        self.audiences = [build_audience("default", "tj")]

    async def create(self, gvr: GVR, obj: Object, namespace: str = "", **_: Any) -> Object:
        self.reviews += 1
        good = obj["spec"]["token"] == "good" and obj["spec"]["audiences"] == self.audiences
        return {"status": {"authenticated": good, "audiences": self.audiences if good else [], "user": self.user}}

    async def patch(self, gvr: GVR, name: str, kind: object, patch: Object, namespace: str, **_: Any) -> Object:
        return self.world.merge(gvr, name, patch, namespace)


async def speak(server: StatusServer, data: bytes) -> list[int]:
    """The status codes of the answers on one connection."""
    port, transport = server.listening(None, "127.0.0.1", 0), FakeTransport()
    async with port:
        connection = Connection(port)
        connection.connection_made(transport)
        connection.data_received(data)
        await settle()
        connection.connection_lost(None)
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", transport.sent)]


def build_post(content: Object | bytes, token: str = "good", *more: str, path: str = PATH) -> bytes:
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {token}",
        f"Content-Length: {len(body)}",
        *more,
    ]
    return "\r\n".join((*lines, "", "")).encode() + body


def talk(*requests: bytes) -> tuple[list[int], Object, Cluster]:
    async def main() -> tuple[list[int], Object, Cluster]:
        pods = Pods()
        cluster = Cluster(pods)
        server = StatusServer(cast(Client, cluster), cast(View, pods), VirtualClock())
        codes = await speak(server, b"".join(requests))
        status: Object = pods.get(TRAIN_JOBS, "tj").get("status") or {}
        return codes, status, cluster

    return run_virtual(main())


def test_reports_come_on_one_connection_and_a_token_is_looked_at_once() -> None:
    codes, status, cluster = talk(build_post({}), build_post(REPORT), build_post(REPORT))
    assert codes == [200, 200, 200]
    assert status["trainerStatus"] == REPORT["trainerStatus"]
    assert cluster.reviews == 1


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param(build_post(REPORT, "bad"), 403, id="a wrong token"),
        pytest.param(build_post(REPORT, "two words"), 403, id="two credentials"),
        pytest.param(build_post(REPORT, path=build_path("default", "other")), 403, id="another audience"),
        pytest.param(build_post(REPORT, path="/healthz"), 404, id="another path"),
        pytest.param(build_post(b"{"), 422, id="no JSON"),
        pytest.param(b"GET " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n", 404, id="another method"),
        pytest.param(build_post(REPORT, "good", "Connection: close"), 200, id="the client wants no more"),
    ],
)
def test_every_request_gets_its_answer(request_: bytes, code: int) -> None:
    codes, *_ = talk(request_)
    assert codes == [code]


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (LARGEST + 1), [413], id="too large"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", [400], id="less than nothing"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [404], id="no length"
        ),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", [400], id="no number"),
        pytest.param(b"\x16\x03\x01\r\n\r\n", [400], id="not HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"A" * 40_000, [431], id="a head without end"),
        pytest.param(build_post(REPORT)[:-3], [], id="cut short"),
    ],
)
def test_what_is_no_request_ends_the_connection(data: bytes, codes: list[int]) -> None:
    found, status, _ = talk(data)
    assert found == codes
    assert "trainerStatus" not in status


def test_a_job_that_reports_without_a_pause_is_slowed_down() -> None:
    codes, *_ = talk(*[build_post(REPORT)] * (BURST + 1))
    assert codes == [200] * BURST + [429]


def test_a_token_of_another_namespace_is_refused() -> None:
    async def main() -> None:
        cluster = Cluster(World())
        cluster.user = {"username": "system:serviceaccount:other:default"}
        server = StatusServer(cast(Client, cluster), cast(View, cluster.world), VirtualClock())
        assert await speak(server, build_post(REPORT)) == [403]

    run_virtual(main())


def test_a_pod_that_is_being_stopped_no_longer_reports_when_another_has_its_rank() -> None:
    async def main() -> None:
        pods = Pods()
        cluster = Cluster(pods)
        extra = {"authentication.kubernetes.io/pod-name": ["tj-node-0-0-0"]}
        server = StatusServer(cast(Client, cluster), cast(View, pods), VirtualClock())
        pods.fail_pod(0, meta={"deletionTimestamp": "2026-01-01T00:00:30Z"})
        jobset = pods.get(JOB_SETS, "tj")["metadata"]["uid"]
        marks = {"batch.kubernetes.io/job-name": "tj-node-0", "jobset.sigs.k8s.io/jobset-uid": jobset}
        old = pods.merge(PODS, "tj-node-0-0-0", {"metadata": {"labels": marks}, "status": {"phase": "Running"}})
        extra["authentication.kubernetes.io/pod-uid"] = [old["metadata"]["uid"]]
        cluster.user = {**cluster.user, "extra": extra}
        assert await speak(server, build_post(REPORT)) == [200], "it may report until it is replaced"
        meta = {**old["metadata"], "name": "tj-node-0-0-1", "uid": "new"}
        del meta["deletionTimestamp"]
        pods.add(PODS, {**old, "metadata": meta})
        assert await speak(server, build_post(REPORT)) == [409]

    run_virtual(main())
