"""The port of the webhooks: what it answers an API server, and how it meets everybody else."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any, cast

import orjson
import pytest

from tests.unit.apiserver.http.wire import FakeTransport
from tests.unit.controllers.world import World
from trainmaster.api.declaring import catalogue
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    PRIORITY_CLASSES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.status import NotFound, StatusError
from trainmaster.auth.pki import issue_server_keys
from trainmaster.client.contract import Client, ListOptions, ObjectList
from trainmaster.client.view import View
from trainmaster.controllers import install
from trainmaster.edge.connection import Connection
from trainmaster.operator import tls
from trainmaster.operator.webhooks.examiner import Examiner
from trainmaster.operator.webhooks.server import LIMITS, WebhookServer
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

JOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "plain"},
        "trainer": {"image": "i"},
    },
}


_ALL = ListOptions()


class Cluster:
    """What the API server has, whether or not the cache shows it."""

    def __init__(self) -> None:
        self.objects: dict[tuple[GVR, str], Object] = {}
        self.pages: list[list[Object]] = []
        """Of all TrainJobs."""
        self.asked: list[tuple[str, str]] = []
        self.failure: Exception | None = None
        self.hangs = False

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        self.asked.append((gvr.plural, name))
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.failure is not None:
            raise self.failure
        found = self.objects.get((gvr, name))
        if found is None:
            raise NotFound(404, "NotFound", "none")
        return found

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = _ALL) -> ObjectList:
        assert gvr == TRAIN_JOBS
        if self.failure is not None:
            raise self.failure
        number = int(options.continue_token or 0)
        rest = len(self.pages) > number + 1
        return ObjectList([*self.pages[number]] if self.pages else [], "1", str(number + 1) if rest else "")


class Site:
    def __init__(self, namespace: str = "") -> None:
        self.world, self.cluster, self.clock = World(), Cluster(), VirtualClock()
        text = dict(install.list_manifests())["plain"]
        self.world.add(CLUSTER_TRAINING_RUNTIMES, install.parse_manifest(text))
        view, client = cast(View, self.world), cast(Client, self.cluster)
        examiner = Examiner(view, client, catalogue.build(), self.clock, namespaces=(namespace,) if namespace else ())
        keys = issue_server_keys(["a.svc"], self.clock)
        self.server = WebhookServer(examiner, tls.build_context(keys.certificate, keys.key), "127.0.0.1", 0, self.clock)

    async def speak(self, data: bytes) -> bytes:
        """What comes back on one connection."""
        transport = FakeTransport()
        connection = Connection(self.server)
        connection.connection_made(transport)
        connection.data_received(data)
        await settle()
        connection.connection_lost(None)
        return transport.sent

    async def ask(self, path: str, **request: Any) -> Object:
        """The response of a review."""
        answer = await self.speak(build_post(build_review(**request), path))
        assert b"HTTP/1.1 200 " in answer, answer
        found: Object = orjson.loads(answer.partition(b"\r\n\r\n")[2])
        assert (found["kind"], found["response"]["uid"]) == ("AdmissionReview", "u")
        response: Object = found["response"]
        return response


def build_review(
    new: Any = None, old: Any = None, *, operation: str = "CREATE", gvr: GVR = TRAIN_JOBS, namespace: str = "default"
) -> Object:
    resource = {"group": gvr.group, "version": gvr.version, "resource": gvr.plural}
    request: Object = {"uid": "u", "operation": operation, "resource": resource, "namespace": namespace}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {**request, "object": new, "oldObject": old},
    }


def build_post(
    content: Object | bytes, path: str = "/validate", content_type: str = "application/json", method: str = "POST"
) -> bytes:
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    lines = [f"{method} {path}?timeout=5s HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    return "\r\n".join((*lines, "", "")).encode() + body


def run(test: Callable[[Site], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        site = Site(**options)
        async with site.server:
            await test(site)

    run_virtual(main())


def with_runtime(name: str, kind: str = "ClusterTrainingRuntime") -> Object:
    reference = {**JOB["spec"]["runtimeRef"], "name": name, "kind": kind}
    return {**JOB, "spec": {**JOB["spec"], "runtimeRef": reference}}


# ---- reviews -----------------------------------------------------------------


def test_a_good_job_is_allowed_and_a_bad_one_is_refused_with_reason_and_cause() -> None:
    async def test(site: Site) -> None:
        assert await site.ask("/validate", new=JOB) == {"uid": "u", "allowed": True}
        bad = {**JOB, "spec": {**JOB["spec"], "trainer": {"numNodes": 0}}}
        answer = await site.ask("/validate", new=bad)
        assert not answer["allowed"] and (answer["status"]["code"], answer["status"]["reason"]) == (422, "Invalid")
        assert answer["status"]["details"]["causes"][0]["field"] == "spec.trainer.numNodes"

    run(test)


def test_a_runtime_that_the_cache_does_not_show_yet_is_looked_up_before_a_refusal() -> None:
    async def test(site: Site) -> None:
        job = with_runtime("new")
        refused = await site.ask("/validate", new=job)
        assert refused["status"]["code"] == 403 and '"new" not found' in refused["status"]["message"]
        runtime = install.parse_manifest(dict(install.list_manifests())["plain"])
        site.cluster.objects[CLUSTER_TRAINING_RUNTIMES, "new"] = {**runtime, "metadata": {"name": "new"}}
        assert (await site.ask("/validate", new=job))["allowed"]
        assert site.cluster.asked == [("clustertrainingruntimes", "new")] * 2
        assert (await site.ask("/validate", new=JOB))["allowed"] and len(site.cluster.asked) == 2, (
            "what is cached is not"
        )

    run(test)


def test_before_a_refusal_the_runtime_is_read_as_it_is_now() -> None:
    async def test(site: Site) -> None:
        runtime = install.parse_manifest(dict(install.list_manifests())["plain"])
        runtime["metadata"]["name"] = "mended"
        site.cluster.objects[CLUSTER_TRAINING_RUNTIMES, "mended"] = runtime
        old = deepcopy(runtime)
        old["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"] = []
        site.world.add(CLUSTER_TRAINING_RUNTIMES, old)
        assert (await site.ask("/validate", new=with_runtime("mended")))["allowed"]
        site.cluster.failure = StatusError(403, "Forbidden", "no")
        status = (await site.ask("/validate", new=with_runtime("mended")))["status"]
        assert status["code"] == 403 and "must have container" in status["message"], status

    run(test)


def test_a_cluster_that_does_not_answer_refuses_for_now() -> None:
    async def test(site: Site) -> None:
        site.cluster.failure = StatusError(500, "InternalError", "down")
        status = (await site.ask("/validate", new=with_runtime("new")))["status"]
        assert (status["code"], status["message"]) == (
            503,
            "the cluster did not answer when a runtime was looked up; try again",
        )

    run(test)


def test_few_questions_are_asked_at_a_time_and_nobody_waits_long() -> None:
    async def test(site: Site) -> None:
        site.cluster.hangs = True
        transports = []
        for number in range(20):
            transport, connection = FakeTransport(), Connection(site.server)
            connection.connection_made(transport)
            connection.data_received(build_post(build_review(with_runtime(f"new-{number}"))))
            transports.append((transport, connection))
        await settle()
        assert len(site.cluster.asked) == 8
        await site.clock.sleep(3)
        assert all(b'"code":503' in transport.sent for transport, _ in transports)
        for _, connection in transports:
            connection.connection_lost(None)

    run(test)


def test_priority_classes_that_may_not_be_read_are_taken_to_exist() -> None:
    async def test(site: Site) -> None:
        runtime = install.parse_manifest(dict(install.list_manifests())["plain"])
        runtime["metadata"]["name"] = "gang"
        runtime["spec"]["podGroupPolicy"] = {"volcano": {}}
        pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["priorityClassName"] = "high"
        site.world.add(CLUSTER_TRAINING_RUNTIMES, runtime)
        site.cluster.objects[CLUSTER_TRAINING_RUNTIMES, "gang"] = runtime
        refused = await site.ask("/validate", new=with_runtime("gang"))
        assert 'PriorityClass "high" doesn\'t exist' in refused["status"]["message"]
        site.cluster.objects[PRIORITY_CLASSES, "high"] = {"metadata": {"name": "high"}}
        assert (await site.ask("/validate", new=with_runtime("gang")))["allowed"]
        site.cluster.failure = StatusError(403, "Forbidden", "no")
        assert (await site.ask("/validate", new=with_runtime("gang")))["allowed"]

    run(test)


def test_a_namespace_that_is_not_watched_is_nobody_to_decide_about() -> None:
    async def test(site: Site) -> None:
        assert not (await site.ask("/validate", new=with_runtime("new")))["allowed"]
        elsewhere = {**with_runtime("new"), "metadata": {"name": "a", "namespace": "other"}}
        assert (await site.ask("/validate", new=elsewhere, namespace="other"))["allowed"]

    run(test, namespace="default")


def test_times_of_patches_are_filled_in_and_kept() -> None:
    async def test(site: Site) -> None:
        patch = {"manager": "a.io/x", "trainingRuntimeSpec": {}}
        new = {**JOB, "spec": {**JOB["spec"], "runtimePatches": [patch]}}
        answer = await site.ask("/default", new=new)
        [operation] = orjson.loads(base64.b64decode(answer["patch"]))
        assert (operation["op"], operation["path"]) == ("add", "/spec/runtimePatches/0/time")
        stored = {**JOB, "spec": {**JOB["spec"], "runtimePatches": [{**patch, "time": "2020-01-01T00:00:00Z"}]}}
        answer = await site.ask("/default", new=new, old=stored, operation="UPDATE")
        [operation] = orjson.loads(base64.b64decode(answer["patch"]))
        assert operation["value"] == "2020-01-01T00:00:00Z"
        assert "patch" not in await site.ask("/default", new=stored, old=stored, operation="UPDATE")

    run(test)


def test_a_runtime_is_kept_for_a_job_that_is_not_cached_yet() -> None:
    async def test(site: Site) -> None:
        runtime = {"kind": "TrainingRuntime", "metadata": {"name": "own", "namespace": "default"}}
        request = {"old": runtime, "operation": "DELETE", "gvr": TRAINING_RUNTIMES}
        site.cluster.pages = [[with_runtime("other")], [with_runtime("own", "TrainingRuntime")]]
        answer = await site.ask("/validate", **request)
        assert "in use by TrainJob default/a. Delete it first" in answer["status"]["message"]
        site.cluster.pages, site.cluster.failure = [], StatusError(503, "ServiceUnavailable", "down")
        assert (await site.ask("/validate", **request))["allowed"]

    run(test)


def test_a_runtime_is_kept_for_a_cached_job_if_the_cluster_does_not_answer() -> None:
    async def test(site: Site) -> None:
        runtime = {"kind": "TrainingRuntime", "metadata": {"name": "own", "namespace": "default"}}
        request = {"old": runtime, "operation": "DELETE", "gvr": TRAINING_RUNTIMES}
        assert (await site.ask("/validate", **request))["allowed"]
        site.world.add(TRAIN_JOBS, with_runtime("own", "TrainingRuntime"))
        assert (await site.ask("/validate", **request))["allowed"], "the cluster has it no more"
        site.cluster.failure = StatusError(503, "ServiceUnavailable", "down")
        answer = await site.ask("/validate", **request)
        assert "in use by TrainJob default/a. Delete it first" in answer["status"]["message"]

    run(test)


# ---- everybody else ----------------------------------------------------------


HOSTILE: dict[str, tuple[bytes, int]] = {
    "another path": (build_post(build_review(JOB), "/metrics"), 404),
    "another method": (build_post(b"", method="PUT"), 405),
    "a form": (build_post(build_review(JOB), content_type="application/x-www-form-urlencoded"), 415),
    "no type": (build_post(build_review(JOB), content_type=""), 415),
    "nothing": (build_post(b""), 400),
    "no JSON": (build_post(b"\xff\x00{"), 400),
    "a list": (build_post(b"[]"), 400),
    "deeply nested": (build_post(b"[" * 100_000), 400),
    "no request": (build_post({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), 400),
    "another version": (build_post({**build_review(JOB), "apiVersion": "admission.k8s.io/v1beta1"}), 400),
    "another operation": (build_post(build_review(JOB, operation="CONNECT")), 400),
    "a name for an object": (build_post(build_review("a")), 400),
    "metadata that is a list": (build_post(build_review({"metadata": []})), 400),
    "no object": (build_post(build_review(None, operation="UPDATE")), 400),
    "too large": (build_post(b"x").replace(b"Length: 1", b"Length: 8388609"), 413),
    "too many headers": (b"POST /validate HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n", 431),
    "another protocol": (b"\x16\x03\x01\x00\xa5\x01\x00", 400),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_review_is_refused_with_a_status(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data, code = HOSTILE[name]

    async def test(site: Site) -> None:
        answer = await site.speak(data)
        assert re.match(rb"HTTP/1\.1 (\d{3}) ", answer), answer
        status = orjson.loads(answer.partition(b"\r\n\r\n")[2])
        assert (status["kind"], status["code"]) == ("Status", code) and status["message"]
        assert (await site.ask("/validate", new=JOB))["allowed"], "it goes on"

    run(test)
    assert not caplog.records


SHAPES: list[Any] = [None, 1, "a", [], {}, [1], [[]], {"a": 1}, {"name": 1}]


def bend(value: Any) -> list[Object]:
    """Jobs in which one part of the spec, or of the metadata, has an unexpected shape."""
    found = []
    for shape in SHAPES:
        found += [
            {**JOB, "spec": shape},
            {**JOB, "metadata": {"name": "a", "namespace": "default", "annotations": shape}},
        ]
        names = ("runtimeRef", "trainer", "runtimePatches", "podTemplateOverrides", "initializer", "labels")
        for name in (*names, "cleanupPolicy", "ttlSecondsAfterFinished"):
            found.append({**JOB, "spec": {**JOB["spec"], name: shape}})
    return found


def test_objects_of_any_shape_get_an_answer_and_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The API server lets none of them through; somebody else may send them."""

    async def test(site: Site) -> None:
        for path in ("/default", "/validate", "/validate-reserved"):
            for bent in bend(JOB):
                await site.ask(path, new=bent)
                await site.ask(path, new=JOB, old=bent, operation="UPDATE")
        deep = b'{"a":' * 500 + b"{}" + b"}" * 500
        for name in (b'"trainer"', b'"runtimePatches"', b'"initializer"'):
            body = orjson.dumps(build_review(JOB)).replace(b'"trainer"', name + b":" + deep + b',"x"')
            assert b"HTTP/1.1 200 " in await site.speak(build_post(body))
        assert (await site.ask("/validate", new=JOB))["allowed"]

    run(test)
    assert [record.getMessage() for record in caplog.records] == []


def test_large_bodies_are_taken_a_few_at_a_time_and_slow_ones_not_for_ever() -> None:
    async def test(site: Site) -> None:
        large = build_post(b"x").replace(b"Length: 1", b"Length: 1000000")[:-1]
        transports = []
        for _ in range(10):
            transport, connection = FakeTransport(), Connection(site.server)
            connection.connection_made(transport)
            connection.data_received(large)
            transports.append((transport, connection))
        await settle()
        refused = [transport for transport, _ in transports if b" 429 " in transport.sent]
        assert len(refused) == 2
        await site.clock.sleep(LIMITS.body_seconds + 2)
        assert all(b" 408 " in transport.sent or transport in refused for transport, _ in transports)
        for _, connection in transports:
            connection.connection_lost(None)
        assert (
            await site.ask(
                "/validate", new={**JOB, "metadata": {**JOB["metadata"], "annotations": {"a": "b" * 70_000}}}
            )
        )["allowed"]

    run(test)
