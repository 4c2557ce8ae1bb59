"""JobSets through the real registry with the Job controller, scheduler and a scripted node (conformance lines JE)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from tests.flow.plant import Plant, Script, ScriptedNode, running_plant, succeed
from tests.unit.controllers.jobset.stage import make_jobset, make_replicated
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.labels import JOB_INDEX, JOB_RESTART_ATTEMPT, REPLICATED_JOB_NAME, RESTART_ATTEMPT
from trainmaster.api.meta import Object
from trainmaster.api.resources import EVENTS, JOB_SETS, JOBS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WriteOptions
from trainmaster.kit.clock import Clock
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def run(test: Callable[[Plant], Awaitable[None]], *, script: Script = succeed) -> None:
    async def main() -> None:
        async with running_plant(ScriptedNode(script), runtimes=False) as plant:
            await test(plant)

    run_virtual(main(), limit=86_400)


def is_completed(jobset: Object) -> bool:
    return is_true(list_conditions(jobset), "Completed")


async def edit(plant: Plant, patch: Object) -> None:
    await plant.client.patch(JOB_SETS, "js", PatchType.MERGE, patch, "default")


def depends(name: str, *on: tuple[str, str], replicas: int = 1) -> Object:
    return make_replicated(name, replicas, dependsOn=[{"name": other, "status": status} for other, status in on])


def set_pod(replicated: Object, **spec: Any) -> Object:
    replicated["template"]["spec"]["template"]["spec"].update(spec)
    return replicated


def is_of(pod: Object, name: str) -> bool:
    return bool(pod["metadata"]["labels"][REPLICATED_JOB_NAME] == name)


@pytest.mark.parametrize(
    ("network", "domain"),
    [pytest.param({}, "js", id="JE-01 its own name"), pytest.param({"subdomain": "net"}, "net", id="JE-02 another")],
)
def test_pods_have_the_names_under_which_they_reach_each_other(network: dict[str, str], domain: str) -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOB_SETS, make_jobset(make_replicated("w", 4), network=network)))
        await plant.wait_for(JOB_SETS, "js", is_completed)
        pods = await plant.list_all(PODS)
        names = sorted(f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}" for pod in pods)
        assert names == [f"js-w-{index}-0.{domain}" for index in range(4)]
        assert [one["metadata"]["name"] for one in await plant.list_all(SERVICES)] == [domain]

    run(test)


def test_ji_40_the_service_has_the_generated_name() -> None:
    async def test(plant: Plant) -> None:
        body = make_jobset(make_replicated("a"))
        body["metadata"] = {"generateName": "run-", "namespace": "default"}
        made = await plant.client.create(JOB_SETS, body, "default")
        await plant.wait_for(JOB_SETS, made["metadata"]["name"], is_completed)
        assert [one["metadata"]["name"] for one in await plant.list_all(SERVICES)] == [made["metadata"]["name"]]

    run(test)


def test_je_03_a_finalizer_of_the_user_outlives_the_ttl() -> None:
    async def test(plant: Plant) -> None:
        body = make_jobset(make_replicated("a"), ttlSecondsAfterFinished=5)
        body["metadata"]["finalizers"] = ["example.com/mine"]
        await plant.apply((JOB_SETS, body))
        jobset = await plant.wait_for(JOB_SETS, "js", lambda one: one["metadata"].get("deletionTimestamp"))
        assert is_completed(jobset)
        await plant.cluster.clock.sleep(60)
        await edit(plant, {"metadata": {"finalizers": None}})
        await plant.cluster.clock.sleep(60)
        assert await plant.list_all(JOB_SETS) == await plant.list_all(JOBS) == []

    run(test)


def test_je_04_when_a_jobset_deleted_in_the_foreground_is_gone_so_are_its_jobs() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOB_SETS, make_jobset(make_replicated("a", 3))))
        await plant.wait_for(JOBS, "js-a-2", lambda job: job.get("status", {}).get("ready"))
        await plant.client.delete(JOB_SETS, "js", "default", DeleteOptions(propagation="Foreground"))
        jobset = await plant.client.get(JOB_SETS, "js", "default")
        assert jobset["metadata"]["finalizers"] == ["foregroundDeletion"]
        while await plant.list_all(JOB_SETS):
            await plant.cluster.clock.sleep(0.05)
        assert await plant.list_all(JOBS) == []

    run(test, script=lambda pod, run: -1)


def test_je_05_suspend_change_and_resume_until_it_fits() -> None:
    async def test(plant: Plant) -> None:
        await plant.client.patch(NODES, "local", PatchType.MERGE, {"metadata": {"labels": {"zone": "here"}}})
        await plant.apply((JOB_SETS, make_jobset(make_replicated("a"), suspend=True)))
        await plant.wait_for(JOB_SETS, "js", lambda one: is_true(list_conditions(one), "Suspended"))
        away = set_pod(make_replicated("a"), nodeSelector={"zone": "nowhere"})
        await edit(plant, {"spec": {"suspend": False, "replicatedJobs": [away]}})
        jobset = await plant.wait_for(
            JOB_SETS, "js", lambda one: one["status"]["replicatedJobsStatus"][0]["active"] == 1
        )
        assert not is_true(list_conditions(jobset), "Suspended")
        here = set_pod(make_replicated("a"), nodeSelector={"zone": "here"})
        await edit(plant, {"spec": {"suspend": True, "replicatedJobs": [here]}})
        await plant.wait_for(JOBS, "js-a-0", lambda job: is_true(list_conditions(job), "Suspended"))
        await edit(plant, {"spec": {"suspend": False}})
        await plant.wait_for(JOB_SETS, "js", is_completed)

    run(test)


def test_je_06_gates_added_at_resume_reach_the_pods_and_hold_them() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOB_SETS, make_jobset(make_replicated("a"), suspend=True)))
        await plant.wait_for(JOB_SETS, "js", lambda one: is_true(list_conditions(one), "Suspended"))
        gated = set_pod(make_replicated("a"), schedulingGates=[{"name": "example.com/gate"}])
        await edit(plant, {"spec": {"suspend": False, "replicatedJobs": [gated]}})
        await plant.cluster.clock.sleep(60)
        [pod] = await plant.list_all(PODS)
        assert pod["spec"]["schedulingGates"] == [{"name": "example.com/gate"}]
        assert "nodeName" not in pod["spec"]
        patch = {"spec": {"schedulingGates": None}}
        await plant.client.patch(PODS, pod["metadata"]["name"], PatchType.MERGE, patch, "default")
        await plant.wait_for(JOB_SETS, "js", is_completed)

    run(test)


def test_je_07_a_trainer_waits_until_both_initializers_are_complete() -> None:
    order: list[str] = []

    def script(pod: Object, run: int) -> int:
        order.append(pod["metadata"]["labels"][REPLICATED_JOB_NAME])
        return 0

    async def test(plant: Plant) -> None:
        trainer = depends("node", ("dataset", "Complete"), ("model", "Complete"))
        await plant.apply((JOB_SETS, make_jobset(make_replicated("dataset"), make_replicated("model"), trainer)))
        await plant.wait_for(JOBS, "js-model-0", lambda job: is_true(list_conditions(job), "Complete"))
        await plant.wait_for(JOB_SETS, "js", is_completed)
        assert sorted(order[:2]) == ["dataset", "model"]
        assert order[2:] == ["node"]

    run(test, script=script)


@dataclass
class LateNode(ScriptedNode):
    """A coordinator whose startup probe takes five seconds to succeed."""

    times: dict[str, datetime] = field(default_factory=dict)

    async def _live(self, client: Client, clock: Clock, pod: Object) -> None:
        if is_of(pod, "coordinator"):
            await clock.sleep(5)
        self.times[pod["metadata"]["labels"][REPLICATED_JOB_NAME]] = clock.now()
        await super()._live(client, clock, pod)


def test_je_08_a_trainer_waits_until_the_coordinator_is_ready() -> None:
    node = LateNode()

    async def main() -> None:
        async with running_plant(node, runtimes=False) as plant:
            jobs = (make_replicated("coordinator"), depends("trainer", ("coordinator", "Ready")))
            await plant.apply((JOB_SETS, make_jobset(*jobs)))
            await plant.wait_for(JOB_SETS, "js", is_completed)

    run_virtual(main(), limit=86_400)
    assert node.times["coordinator"] <= node.times["trainer"]
    assert node.started[0].startswith("js-coordinator-0-0-")


def test_je_09_five_trainers_follow_when_the_launcher_is_ready() -> None:
    async def test(plant: Plant) -> None:
        jobs = (make_replicated("launcher"), depends("trainer", ("launcher", "Ready"), replicas=5))
        await plant.apply((JOB_SETS, make_jobset(*jobs)))
        await plant.wait_for(JOB_SETS, "js", is_completed)
        assert plant.node.started[0].startswith("js-launcher-0-0-")
        assert len(plant.node.started) == 6

    run(test)


def test_je_10_applying_the_same_again_changes_nothing() -> None:
    async def test(plant: Plant) -> None:
        body = make_jobset(make_replicated("a"), network={"subdomain": "net"})
        options = WriteOptions(field_manager="me", force=True)
        seen = []
        for _ in range(3):
            made = await plant.client.patch(JOB_SETS, "js", PatchType.APPLY, body, "default", options=options)
            seen.append(made["metadata"]["generation"])
        assert seen == [1, 1, 1]

    run(test, script=lambda pod, run: -1)


def test_je_11_only_the_claim_that_is_kept_outlives_the_jobset() -> None:
    async def test(plant: Plant) -> None:
        mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("gone", "kept")]
        job = set_pod(make_replicated("a"), containers=[{"name": "main", "image": "i", "volumeMounts": mounts}])
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        policies = [
            {"templates": [{"metadata": {"name": "gone"}, "spec": spec}]},
            {"templates": [{"metadata": {"name": "kept"}, "spec": spec}], "retentionPolicy": {"whenDeleted": "Retain"}},
        ]
        await plant.apply((JOB_SETS, make_jobset(job, volumeClaimPolicies=policies)))
        await plant.wait_for(JOB_SETS, "js", is_completed)
        assert len(await plant.list_all(PERSISTENT_VOLUME_CLAIMS)) == 2
        await plant.client.delete(JOB_SETS, "js", "default", DeleteOptions())
        await plant.cluster.clock.sleep(60)
        claims = await plant.list_all(PERSISTENT_VOLUME_CLAIMS)
        assert [claim["metadata"]["name"] for claim in claims] == ["kept-js"]

    run(test)


@pytest.mark.parametrize(
    ("action", "key", "restarts"),
    [
        pytest.param("RestartJobSet", RESTART_ATTEMPT, 1, id="JE-12 the whole gang"),
        pytest.param("RestartJob", JOB_RESTART_ATTEMPT, 0, id="JE-13 one job alone"),
    ],
)
def test_a_job_that_fails_in_its_first_attempt_recovers(action: str, key: str, restarts: int) -> None:
    def script(pod: Object, run: int) -> int:
        notes = pod["metadata"]["annotations"]
        return int(notes[JOB_INDEX] == "1" and notes[key] == "0")

    async def test(plant: Plant) -> None:
        job = make_replicated("a", 2)
        job["template"]["spec"]["backoffLimit"] = 0
        policy = {"maxRestarts": 1, "rules": [{"action": action}]}
        await plant.apply((JOB_SETS, make_jobset(job, failurePolicy=policy)))
        jobset = await plant.wait_for(JOB_SETS, "js", is_completed)
        assert (jobset["status"]["restarts"], jobset["status"].get("restartsCountTowardsMax", 0)) == (
            restarts,
            restarts,
        )
        counts = jobset["status"]["replicatedJobsStatus"][0]
        assert counts.get("jobRestarts") == (None if restarts else [0, 1])

    run(test, script=script)


def test_ji_54_a_template_that_no_job_can_have_is_one_event_that_counts() -> None:
    async def test(plant: Plant) -> None:
        job = make_replicated("a")
        del job["template"]["spec"]["completions"]
        await plant.apply((JOB_SETS, make_jobset(job)))
        await plant.cluster.clock.sleep(60)
        events = [event for event in await plant.list_all(EVENTS) if event["reason"] == "JobCreationFailed"]
        assert len(events) == 1
        assert events[0]["count"] > 1
        text = (
            'job "js-a-0" creation failed with error: Job.batch "js-a-0" is invalid: spec.completions: Required value'
        )
        assert events[0]["message"].startswith(text)
        assert events[0]["involvedObject"]["kind"] == "JobSet"
        assert await plant.list_all(JOBS) == []

    run(test)


def test_the_others_go_when_the_launcher_has_succeeded() -> None:
    async def test(plant: Plant) -> None:
        policy = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
        jobs = (make_replicated("node", pods=2), depends("launcher", ("node", "Ready")))
        await plant.apply((JOB_SETS, make_jobset(*jobs, successPolicy=policy)))
        await plant.wait_for(JOB_SETS, "js", is_completed)
        await plant.cluster.clock.sleep(60)
        assert [job["metadata"]["name"] for job in await plant.list_all(JOBS)] == ["js-launcher-0"]
        assert [is_of(pod, "launcher") for pod in await plant.list_all(PODS)] == [True]

    run(test, script=lambda pod, run: 0 if is_of(pod, "launcher") else -1)


class SlowNode(ScriptedNode):
    """Pods take ten seconds to end when they are deleted."""

    async def _terminate(self, client: Client, clock: Clock, pod: Object) -> None:
        await clock.sleep(10)
        await super()._terminate(client, clock, pod)


def test_no_job_is_made_while_a_pod_of_a_deleted_one_still_ends() -> None:
    """Two Pods of one rank would share a name."""

    async def main() -> None:
        async with running_plant(SlowNode(lambda pod, run: -1 if run == 0 else 0), runtimes=False) as plant:
            await plant.apply((JOB_SETS, make_jobset(make_replicated("w", 1))))
            await plant.wait_for(JOBS, "js-w-0", lambda job: job.get("status", {}).get("ready"))
            await plant.client.delete(JOBS, "js-w-0", "default", DeleteOptions(propagation="Background"))
            await plant.wait_for(JOB_SETS, "js", lambda found: "LeftoverPod" in str(found["metadata"]))
            await plant.cluster.clock.sleep(9)
            assert await plant.list_all(JOBS) == []
            assert len(plant.node.started) == 1
            jobset = await plant.wait_for(JOB_SETS, "js", is_completed)
            assert len(plant.node.started) == 2
            assert "LeftoverPod" not in str(jobset["metadata"].get("annotations"))

    run_virtual(main(), limit=200)
