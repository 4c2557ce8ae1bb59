"""Reports of training code: Trainer's protocol on the TrainJob's status path (conformance lines S)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest

from tests.unit.apiserver.admission.test_runtime_use import make_runtime, make_trainjob
from tests.unit.apiserver.http.test_server import World, split
from tests.unit.apiserver.http.wire import post
from tests.unit.controllers.world import make_jobset
from trainmaster.api.labels import JOBSET_NAME, JOBSET_UID, RESTART_ATTEMPT
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, NAMESPACES, PODS, TRAIN_JOBS
from trainmaster.api.training import reports
from trainmaster.api.training.reports import LARGEST, build_audience
from trainmaster.apiserver.http.subresources.progress import BURST
from trainmaster.apiserver.local import LocalClient
from trainmaster.apiserver.local_view import LocalView
from trainmaster.auth.identities import Credentials
from trainmaster.auth.service_accounts import ServiceAccountTokens
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.kit.ids import SeededIds
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.virtual import VirtualClock, run_virtual, settle

pytestmark = pytest.mark.unit

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/{}/status"
TIME = "2026-01-31T12:00:00Z"
METRICS = [{"name": "loss", "value": "0.123"}, {"name": "accuracy", "value": "0.95"}]


class Accounts(LocalView):
    def find_uid(self, gvr: GVR, namespace: str, name: str) -> str | None:
        found = self.find(gvr, namespace, name)
        return None if found is None else str(found["metadata"]["uid"])


class Stage:
    """A TrainJob `a`, and tokens of ServiceAccounts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = LocalClient(world.registry)
        self._view = Accounts(world.registry)
        self._accounts = ServiceAccountTokens(b"x" * 32, self._view, clock=VirtualClock(), ids=SeededIds(2))
        access = world.server._handlers.access
        access.authenticator = Credentials([self._accounts])

    def close(self) -> None:
        self._view.close()

    def issue(self, namespace: str = "default", name: str = "a", **spec: Any) -> str:
        wanted = {"audiences": [build_audience("default", name)], **spec}
        answer = self._accounts.request(namespace, "default", {"spec": wanted})
        return str(answer["status"]["token"])

    async def report(self, body: bytes | Object, token: str | None = None, name: str = "a") -> tuple[int, Object]:
        payload = body if isinstance(body, bytes) else orjson.dumps({"trainerStatus": body} if body else {})
        lines = [f"Authorization: Bearer {self.issue() if token is None else token}"] if token != "" else []
        connection, transport = self.world.connect()
        connection.data_received(post(PATH.format("default", name), payload, *lines))
        await settle()
        code, _, answer = split(transport.sent)
        return code, orjson.loads(answer)

    async def read(self) -> Object:
        status: Object = (await self.client.get(TRAIN_JOBS, "a", "default")).get("status") or {}
        return status.get("trainerStatus") or {}


def run(test: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(MemoryStore())
        async with world.registry.running("(a test)"), world.server:
            stage = Stage(world)
            await world.registry.settled()
            for namespace in ("default", "other"):
                if namespace != "default":
                    head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                    await stage.client.create(NAMESPACES, head)
            await world.registry.settled()
            await stage.client.create(CLUSTER_TRAINING_RUNTIMES, make_runtime(CLUSTER_TRAINING_RUNTIMES))
            await stage.client.create(TRAIN_JOBS, make_trainjob(CLUSTER_TRAINING_RUNTIMES), "default")
            await test(stage)
            stage.close()
        world.registry.close()

    run_virtual(main())


def test_s_001_a_report_is_stored_and_echoed() -> None:
    async def test(stage: Stage) -> None:
        report = {
            "progressPercentage": 50,
            "estimatedRemainingSeconds": 120,
            "metrics": METRICS,
            "lastUpdatedTime": TIME,
        }
        assert await stage.report({**report, "unknown": {"a": 1}}) == (200, {"trainerStatus": report})
        assert await stage.read() == report

    run(test)


def test_s_002_a_report_replaces_the_one_before() -> None:
    async def test(stage: Stage) -> None:
        await stage.report({"progressPercentage": 50, "metrics": METRICS, "lastUpdatedTime": TIME})
        code, _ = await stage.report({"estimatedRemainingSeconds": 3, "lastUpdatedTime": TIME})
        assert code == 200
        assert await stage.read() == {"estimatedRemainingSeconds": 3, "lastUpdatedTime": TIME}

    run(test)


def test_s_003_an_empty_report_changes_nothing() -> None:
    async def test(stage: Stage) -> None:
        await stage.report({"progressPercentage": 50, "lastUpdatedTime": TIME})
        before = await stage.client.get(TRAIN_JOBS, "a", "default")
        assert await stage.report({}) == (200, {})
        assert await stage.client.get(TRAIN_JOBS, "a", "default") == before

    run(test)


@pytest.mark.parametrize(
    "report",
    [
        pytest.param({"progressPercentage": 150, "lastUpdatedTime": TIME}, id="S-004 more than all of it"),
        pytest.param({"progressPercentage": 50}, id="without a time"),
        pytest.param({"estimatedRemainingSeconds": -1, "lastUpdatedTime": TIME}, id="done in the past"),
        pytest.param({"metrics": METRICS * 129, "lastUpdatedTime": TIME}, id="too many metrics"),
    ],
)
def test_a_report_out_of_range_is_refused_with_the_name_of_the_job(report: Object) -> None:
    async def test(stage: Stage) -> None:
        code, answer = await stage.report(report)
        assert (code, answer["reason"], answer["kind"]) == (422, "Invalid", "Status")
        assert '"a" is invalid' in answer["message"]
        assert await stage.read() == {}

    run(test)


def test_s_005_an_unknown_job_is_not_made() -> None:
    async def test(stage: Stage) -> None:
        token = stage.issue(name="nosuch")
        code, answer = await stage.report({"lastUpdatedTime": TIME}, token, name="nosuch")
        assert (code, answer["message"]) == (404, "Train job not found")
        assert len((await stage.client.list(TRAIN_JOBS, "default")).items) == 1

    run(test)


def test_only_a_token_for_this_job_from_its_namespace_is_good() -> None:
    async def test(stage: Stage) -> None:
        report = {"progressPercentage": 50, "lastUpdatedTime": TIME}
        tokens = {
            "of another namespace": stage.issue("other"),
            "for another job": stage.issue(name="b"),
            "for the API server": stage.issue(audiences=[]),
            "none": "",
            "no token at all": "nonsense",
        }
        answers = {what: await stage.report(report, token) for what, token in tokens.items()}
        assert {what: (code, answer["message"]) for what, (code, answer) in answers.items()} == dict.fromkeys(
            tokens, (403, "Forbidden")
        )
        assert await stage.read() == {}

    run(test)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"trainerStatus": 1}', b'{"trainerStatus": {"progressPercentage": "50"}}',
     b'{"trainerStatus": {"metrics": [{"name": "a", "value": 1}]}}', b'{"trainerStatus": {"lastUpdatedTime": "now"}}'],
)  # fmt: skip
def test_what_is_no_report_is_an_invalid_payload(body: bytes) -> None:
    async def test(stage: Stage) -> None:
        code, answer = await stage.report(body)
        assert (code, answer["reason"], answer["message"]) == (422, "Invalid", "Invalid payload")

    run(test)


async def add_gang(stage: Stage, *, attempt: int = 0, trainjob: str = "a", name: str = "a") -> str:
    """A JobSet of that TrainJob and a Pod of it; a token bound to the Pod."""
    owner = await stage.client.get(TRAIN_JOBS, trainjob, "default")
    jobset = make_jobset(name=name)
    jobset["metadata"]["ownerReferences"] = [build_owner_reference(owner)]
    made = await stage.client.create(JOB_SETS, jobset, "default")
    return await add_pod(stage, made, attempt=attempt)


async def add_pod(stage: Stage, jobset: Object | None, *, attempt: int = 0, name: str = "a-node-0-0") -> str:
    labels: Object = {}
    if jobset is not None:
        meta = jobset["metadata"]
        labels = {JOBSET_NAME: meta["name"], JOBSET_UID: meta["uid"], RESTART_ATTEMPT: str(attempt)}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "node", "image": "i"}]},
    }
    made = await stage.client.create(PODS, pod, "default")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}
    return stage.issue(boundObjectRef=reference)


REPORT = {"progressPercentage": 50, "lastUpdatedTime": "2100-01-01T00:00:00.5+00:00"}


def test_a_pod_reports_for_the_job_that_it_works_for() -> None:
    async def test(stage: Stage) -> None:
        token = await add_gang(stage)
        assert (await stage.report(REPORT, token))[0] == 200
        assert await stage.read() == {"progressPercentage": 50, "lastUpdatedTime": "2100-01-01T00:00:00Z"}

    run(test)


def test_a_pod_of_another_job_or_of_none_is_refused_whatever_its_token_says() -> None:
    async def test(stage: Stage) -> None:
        await stage.client.create(TRAIN_JOBS, make_trainjob(CLUSTER_TRAINING_RUNTIMES, "b"), "default")
        for token in (await add_gang(stage, trainjob="b", name="b"), await add_pod(stage, None, name="alone")):
            code, answer = await stage.report(REPORT, token)
            assert (code, answer["message"].partition(":")[0]) == (403, "Forbidden")
        assert await stage.read() == {}

    run(test)


def test_a_pod_of_an_attempt_that_is_over_comes_too_late() -> None:
    async def test(stage: Stage) -> None:
        old = await add_gang(stage)
        patch = {"status": {"restarts": 1}}
        jobset = await stage.client.patch(JOB_SETS, "a", PatchType.MERGE, patch, "default", subresource="status")
        new = await add_pod(stage, jobset, attempt=1, name="a-node-0-0-second")
        code, answer = await stage.report(REPORT, old)
        assert (code, answer["message"]) == (409, "Pod a-node-0-0 belongs to attempt 0, and the job is at attempt 1")
        assert (await stage.report(REPORT, new))[0] == 200

    run(test)


def test_the_token_of_a_deleted_pod_is_worth_nothing() -> None:
    async def test(stage: Stage) -> None:
        token = await add_gang(stage)
        await stage.client.delete(PODS, "a-node-0-0", "default", DeleteOptions(grace_seconds=0))
        assert (await stage.report(REPORT, token))[0] == 403

    run(test)


@pytest.mark.parametrize("bound", [True, False], ids=["a Pod's token", "a token of nobody's"])
def test_what_is_stored_is_later_than_the_jobset(bound: bool) -> None:
    """Clocks may be wrong; the controller tells by this what an earlier attempt has left."""

    async def test(stage: Stage) -> None:
        token = await add_gang(stage)
        created = parse_time((await stage.client.get(JOB_SETS, "a", "default"))["metadata"]["creationTimestamp"])
        code, answer = await stage.report({"lastUpdatedTime": "2001-01-01T00:00:00Z"}, token if bound else None)
        want = format_time(created + timedelta(seconds=1))
        assert (code, answer) == (200, {"trainerStatus": {"lastUpdatedTime": want}})
        assert await stage.read() == {"lastUpdatedTime": want}

    run(test)


def test_what_is_stored_is_later_than_the_job_of_the_pod() -> None:
    """Also when the wall clock was set back since the Job was made."""
    job = {"metadata": {"creationTimestamp": "2026-01-31T13:00:00Z"}}
    pod = {"metadata": {"name": "p", "labels": {JOBSET_UID: "u", RESTART_ATTEMPT: "2"}}}
    reporter = reports.read_reporter(pod, job)
    assert (reporter.attempt, reporter.jobset_uid) == (2, "u")
    began = reports.find_beginning({"metadata": {"creationTimestamp": "2026-01-31T11:00:00Z"}}, reporter)
    trainjob: Object = {"metadata": {"name": "a"}}
    wanted = reports.decide({"lastUpdatedTime": TIME}, trainjob, parse_time(TIME), began)
    assert wanted == {"lastUpdatedTime": "2026-01-31T13:00:01Z"}
    trainjob["status"] = {"trainerStatus": wanted}
    assert reports.decide({"lastUpdatedTime": TIME}, trainjob, parse_time(TIME), began) == wanted, "the next one too"
    assert not reports.is_left_over(wanted, began)


def test_a_report_that_was_overtaken_changes_nothing() -> None:
    async def test(stage: Stage) -> None:
        await stage.report({"progressPercentage": 60, "lastUpdatedTime": "2020-01-31T12:00:10Z"})
        late = {"progressPercentage": 50, "lastUpdatedTime": "2020-01-31T12:00:05Z"}
        assert await stage.report(late) == (200, {"trainerStatus": late})
        assert (await stage.read())["progressPercentage"] == 60

    run(test)


def test_a_time_from_a_wrong_clock_does_not_shut_others_out() -> None:
    async def test(stage: Stage) -> None:
        await stage.report({"progressPercentage": 60, "lastUpdatedTime": "2999-01-31T12:00:10Z"})
        await stage.report({"progressPercentage": 61, "lastUpdatedTime": TIME})
        assert (await stage.read())["progressPercentage"] == 61

    run(test)


def test_after_the_end_nothing_is_reported() -> None:
    async def test(stage: Stage) -> None:
        condition = {"type": "Complete", "status": "True", "reason": "r", "message": "", "lastTransitionTime": TIME}
        patch = {"status": {"conditions": [condition]}}
        await stage.client.patch(TRAIN_JOBS, "a", PatchType.MERGE, patch, "default", subresource="status")
        code, answer = await stage.report({"progressPercentage": 50, "lastUpdatedTime": TIME})
        assert (code, answer["message"]) == (409, 'TrainJob "a" has ended')
        assert await stage.read() == {}

    run(test)


def test_a_job_that_reports_without_a_pause_is_slowed_down() -> None:
    async def test(stage: Stage) -> None:
        codes = [(await stage.report({"progressPercentage": n, "lastUpdatedTime": TIME}))[0] for n in range(BURST + 2)]
        assert set(codes[:BURST]) == {200} and 429 in codes
        await asyncio.sleep(2.0)
        assert (await stage.report({"progressPercentage": 99, "lastUpdatedTime": TIME}))[0] == 200

    run(test)


def test_a_large_report_is_refused() -> None:
    async def test(stage: Stage) -> None:
        code, answer = await stage.report(b" " * (LARGEST + 1))
        assert (code, answer["message"]) == (413, "Payload too large")

    run(test)
