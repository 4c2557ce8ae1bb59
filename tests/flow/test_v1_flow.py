"""Jobs of `kubeflow.org/v1` in virtual time: how they end, what they leave, and what upstream gets wrong."""

from __future__ import annotations

import argparse
import io
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.flow.plant import Plant, Script, ScriptedNode, running_plant
from trainmaster.api.lifecycle import policy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, NODES, PODS, SERVICES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.v1jobs.frameworks import MPI, PYTORCH, TENSORFLOW, XGBOOST, V1Framework
from trainmaster.cli.commands.restart import Restart
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobs import get_job
from trainmaster.cli.stopping import suspend_all, wait_for_pods
from trainmaster.client.contract import DeleteOptions, ListOptions, PatchType
from trainmaster.jobs.control import ask_for_attempt
from trainmaster.jobs.models.v1jobs import PyTorchJob
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

REPLICA_TYPE = "training.kubeflow.org/replica-type"


def flow(body: Callable[[Plant], Awaitable[None]], script: Script | None = None, seconds: float = 5.0) -> None:
    async def main() -> None:
        node = ScriptedNode(seconds=seconds) if script is None else ScriptedNode(script, seconds)
        async with running_plant(node, runtimes=False) as plant:
            await body(plant)

    run_virtual(main(), limit=86_400 * 10)


def make_job(framework: V1Framework, replicas: dict[str, int], restart: str = "Never", **spec: Any) -> Object:
    def make_replica(count: int) -> Object:
        containers = [{"name": framework.container, "image": "train:1", "command": ["python", "train.py"]}]
        return {"replicas": count, "restartPolicy": restart, "template": {"spec": {"containers": containers}}}

    types = {name: make_replica(count) for name, count in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": framework.kind,
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {framework.replicas_field: types, **spec},
    }


def list_conditions(job: Object) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in (job.get("status") or {}).get("conditions", ())}


def has(kind: str) -> Callable[[Object], bool]:
    return lambda job: list_conditions(job).get(kind) == "True"


async def finish(plant: Plant, framework: V1Framework, kind: str) -> Object:
    return await plant.wait_for(framework.gvr, "a", has(kind))


async def list_names(plant: Plant, gvr: GVR = PODS) -> list[str]:
    return [obj["metadata"]["name"] for obj in await plant.list_all(gvr)]


async def list_selected(plant: Plant, selector: str) -> list[str]:
    found = await plant.client.list(PODS, "default", ListOptions(label_selector=selector))
    return [pod["metadata"]["name"] for pod in found.items]


async def list_messages(plant: Plant, reason: str) -> list[str]:
    return [event["message"] for event in await plant.list_all(EVENTS) if event["reason"] == reason]


async def is_gone(plant: Plant, framework: V1Framework) -> bool:
    try:
        await plant.client.get(framework.gvr, "a", "default")
    except NotFound:
        return True
    return False


def fail_workers(code: int, times: int = 1000) -> Script:
    """Worker 0 fails that often, then succeeds; all others run on."""
    seen: list[str] = []

    def play(pod: Object, run: int) -> int:
        labels = pod["metadata"]["labels"]
        if labels.get(REPLICA_TYPE) != "worker" or labels.get("training.kubeflow.org/replica-index") != "0":
            return -1
        seen.append(pod["metadata"]["uid"])
        return code if len(seen) <= times else 0

    return play


def test_a_master_that_succeeds_ends_the_job_and_its_workers_count_as_succeeded() -> None:
    def play(pod: Object, run: int) -> int:
        return 0 if pod["metadata"]["labels"][REPLICA_TYPE] == "master" else -1

    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1, "Worker": 2})))
        running = await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        assert running["status"]["startTime"]
        job = await finish(plant, PYTORCH, "Succeeded")
        assert list(list_conditions(job)) == ["Created", "Running", "Succeeded"]
        assert list_conditions(job)["Running"] == "False"
        counts = {name: entry.get("succeeded") for name, entry in job["status"]["replicaStatuses"].items()}
        assert counts == {"Master": 1, "Worker": 2}
        assert job["status"]["completionTime"]
        await plant.settle()
        assert await list_names(plant) == ["a-master-0", "a-worker-0", "a-worker-1"], "cleanPodPolicy is None"
        assert await list_names(plant, SERVICES) == ["a-master-0", "a-worker-0", "a-worker-1"]

    flow(body, play)


@pytest.mark.parametrize(("policy", "left"), [("All", []), ("Running", ["a-master-0"])])
def test_pods_and_their_services_are_cleaned_up_as_the_policy_says(policy: str, left: list[str]) -> None:
    def play(pod: Object, run: int) -> int:
        return 0 if pod["metadata"]["labels"][REPLICA_TYPE] == "master" else -1

    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1, "Worker": 2}, runPolicy={"cleanPodPolicy": policy})
        await plant.apply((PYTORCH.gvr, job))
        await finish(plant, PYTORCH, "Succeeded")
        await plant.cluster.clock.sleep(2)
        assert await list_names(plant) == left
        assert await list_names(plant, SERVICES) == left

    flow(body, play)


def test_a_worker_that_fails_under_never_fails_the_job() -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1, "Worker": 2})))
        job = await finish(plant, PYTORCH, "Failed")
        final = job["status"]["conditions"][-1]
        assert final["message"] == "PyTorchJob a is failed because 1 Worker replica(s) failed."
        failure = job["status"]["failure"]
        assert (failure["replicatedJob"], failure["rank"], failure["exitCode"]) == ("worker", 0, 1)
        assert PyTorchJob(job).state.sentence.startswith("worker 0: ValueError: run")
        assert job["status"]["completionTime"]

    flow(body, fail_workers(1))


def test_a_retryable_exit_code_replaces_the_pod_and_a_permanent_one_ends_the_job() -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((TENSORFLOW.gvr, make_job(TENSORFLOW, {"PS": 1, "Worker": 1}, "ExitCode")))
        await plant.wait_for(TENSORFLOW.gvr, "a", has("Restarting"))
        job = await finish(plant, TENSORFLOW, "Succeeded")
        assert "Restarting" not in list_conditions(job)
        assert job["status"]["restarts"] == 2
        assert job["status"].get("restartingPods") is None
        assert await list_messages(plant, "ExitedWithCode") == ["Pod: default.a-worker-0 exited with code 137"]

    flow(body, fail_workers(137, times=2))

    async def permanent(plant: Plant) -> None:
        policy = {"ttlSecondsAfterFinished": 30}
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1, "Worker": 1}, "ExitCode", runPolicy=policy)))
        job = await finish(plant, PYTORCH, "Failed")
        assert job["status"]["conditions"][-1]["message"] == 'job "a" is failing because "Worker" replica(s) failed.'
        assert job["status"]["completionTime"], "upstream sets none, and never deletes such a job"
        await plant.cluster.clock.sleep(31)
        assert await is_gone(plant, PYTORCH)

    flow(permanent, fail_workers(1))


def test_every_restart_counts_against_the_limit() -> None:
    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1, "Worker": 1}, "OnFailure", runPolicy={"backoffLimit": 3})
        await plant.apply((PYTORCH.gvr, job))
        ended = await finish(plant, PYTORCH, "Failed")
        assert ended["status"]["restarts"] == 2, "the third failure is the last"
        assert "has reached the specified backoff limit" in ended["status"]["conditions"][-1]["message"]

    flow(body, fail_workers(1))


def test_a_deadline_needs_nobody_to_touch_the_job() -> None:
    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1}, runPolicy={"activeDeadlineSeconds": 60, "cleanPodPolicy": "All"})
        await plant.apply((PYTORCH.gvr, job))
        started = plant.cluster.clock.now()
        ended = await finish(plant, PYTORCH, "Failed")
        assert 59 <= (plant.cluster.clock.now() - started).total_seconds() <= 61
        assert "was active longer than specified deadline" in ended["status"]["conditions"][-1]["message"]
        await plant.cluster.clock.sleep(2)
        assert await list_names(plant) == []

    flow(body, lambda pod, run: -1)


def test_suspending_deletes_pods_and_services_and_resuming_starts_the_clock_again() -> None:
    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1, "Worker": 1}, runPolicy={"suspend": True})
        await plant.apply((PYTORCH.gvr, job))
        held = await plant.wait_for(PYTORCH.gvr, "a", has("Suspended"))
        assert list(list_conditions(held)) == ["Created", "Suspended"]
        assert "startTime" not in held["status"]
        await plant.settle()
        assert await list_names(plant) == []
        await patch(plant, {"spec": {"runPolicy": {"suspend": False}}})
        first = await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        assert list(list_conditions(first)) == ["Created", "Suspended", "Running"]
        await plant.cluster.clock.sleep(10)
        await patch(plant, {"spec": {"runPolicy": {"suspend": True}}})
        second = await plant.wait_for(PYTORCH.gvr, "a", has("Suspended"))
        assert list_conditions(second) == {"Created": "True", "Running": "False", "Suspended": "True"}
        assert second["status"]["startTime"] == first["status"]["startTime"]
        await plant.cluster.clock.sleep(2)
        assert await list_names(plant) == await list_names(plant, SERVICES) == []
        await patch(plant, {"spec": {"runPolicy": {"suspend": False}}})
        third = await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        assert third["status"]["startTime"] > first["status"]["startTime"]

    async def patch(plant: Plant, change: Object) -> None:
        await plant.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, change, "default")

    flow(body, lambda pod, run: -1)


def test_a_job_fails_with_the_longest_output_that_is_kept() -> None:
    async def main() -> None:
        node = ScriptedNode(
            lambda pod, run: 1, words="\n".join(f"line {number:03d} " + 100 * "x" for number in range(40))
        )
        async with running_plant(node, runtimes=False) as plant:
            await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1})))
            job = await plant.wait_for(PYTORCH.gvr, "a", has("Failed"))
            assert len(job["status"]["failure"]["message"]) > 1024

    run_virtual(main(), limit=86_400)


@pytest.mark.parametrize("restart", ["Never", "ExitCode"])
def test_pods_that_end_because_of_a_suspension_have_not_failed(restart: str) -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1, "Worker": 1}, restart)))
        await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        await plant.cluster.clock.sleep(3)
        for suspend in (True, False):
            change = {"spec": {"runPolicy": {"suspend": suspend}}}
            await plant.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, change, "default")
            await plant.settle()
        await plant.cluster.clock.sleep(3)
        job = await plant.client.get(PYTORCH.gvr, "a", "default")
        assert list_conditions(job) == {"Created": "True", "Suspended": "False", "Running": "True"}
        assert "restarts" not in job["status"] and "failure" not in job["status"]
        assert await list_names(plant) == ["a-master-0", "a-worker-0"]

    flow(body, lambda pod, run: -1)


def test_a_job_of_another_manager_is_left_alone() -> None:
    async def body(plant: Plant) -> None:
        policy = {"managedBy": "kueue.x-k8s.io/multikueue"}
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1}, runPolicy=policy)))
        await plant.cluster.clock.sleep(5)
        assert await list_names(plant) == []
        assert "status" not in await plant.client.get(PYTORCH.gvr, "a", "default")

    flow(body)


def test_scaling_creates_and_deletes_workers() -> None:
    async def body(plant: Plant) -> None:
        elastic = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Worker": 2}, "OnFailure", **elastic)))
        await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        whole = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}
        for count, change, subresource in ((3, {"spec": {"replicas": 3}}, "scale"), (1, whole, "")):
            await plant.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, change, "default", subresource=subresource)
            await plant.cluster.clock.sleep(2)
            scale = await plant.client.get(PYTORCH.gvr, "a", "default", subresource="scale")
            assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (count, count)
            assert await list_selected(plant, scale["status"]["selector"]) == await list_names(plant)
            wanted = [f"a-worker-{index}" for index in range(count)]
            assert await list_names(plant) == await list_names(plant, SERVICES) == wanted
            job = await plant.client.get(PYTORCH.gvr, "a", "default")
            assert list_conditions(job)["Running"] == "True", "a Pod that is not wanted any more has not failed"

    flow(body, lambda pod, run: -1)


def test_a_pod_or_a_service_that_somebody_deletes_comes_back() -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1, "Worker": 1}, "OnFailure")))
        await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        before = await plant.client.get(PODS, "a-worker-0", "default")
        await plant.client.delete(PODS, "a-worker-0", "default", DeleteOptions())
        await plant.client.delete(SERVICES, "a-master-0", "default", DeleteOptions())
        await plant.cluster.clock.sleep(5)
        after = await plant.client.get(PODS, "a-worker-0", "default")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert await list_names(plant, SERVICES) == ["a-master-0", "a-worker-0"]
        job = await plant.client.get(PYTORCH.gvr, "a", "default")
        assert list_conditions(job)["Running"] == "True"

    flow(body, lambda pod, run: -1)


def test_an_orphan_with_its_labels_is_adopted() -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1})))
        await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        await plant.client.patch(
            PODS, "a-master-0", PatchType.MERGE, {"metadata": {"ownerReferences": None}}, "default"
        )
        pod = await plant.wait_for(PODS, "a-master-0", lambda pod: pod["metadata"].get("ownerReferences"))
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "PyTorchJob"

    flow(body, lambda pod, run: -1)


def test_two_kinds_of_one_name_do_not_collide_silently() -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1, "Worker": 1})))
        await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        await plant.apply((TENSORFLOW.gvr, make_job(TENSORFLOW, {"Worker": 1})))
        job = await plant.wait_for(TENSORFLOW.gvr, "a", lambda job: "waiting" in (job.get("status") or {}))
        assert job["status"]["waiting"]["reason"] == "NameConflict"
        assert 'pods "a-worker-0" already exists' in job["status"]["waiting"]["message"]
        assert "the PyTorchJob a" in job["status"]["waiting"]["message"]
        await plant.client.delete(PYTORCH.gvr, "a", "default", DeleteOptions())
        await plant.wait_for(TENSORFLOW.gvr, "a", has("Running"))

    flow(body, lambda pod, run: -1)


def test_a_job_starts_with_all_its_pods_or_waits_as_a_whole() -> None:
    async def body(plant: Plant) -> None:
        room = {"status": {"allocatable": {"cpu": "3", "memory": "64Gi", "pods": "500"}}}
        await plant.client.patch(NODES, "local", PatchType.MERGE, room, subresource="status")
        for name in ("a", "b"):
            job = make_job(PYTORCH, {"Master": 1, "Worker": 1}, runPolicy={"cleanPodPolicy": "All"})
            job["metadata"]["name"] = name
            for replica in job["spec"]["pytorchReplicaSpecs"].values():
                replica["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
            await plant.apply((PYTORCH.gvr, job))
        waiting = await plant.wait_for(PYTORCH.gvr, "b", lambda job: "waiting" in (job.get("status") or {}))
        assert waiting["status"]["waiting"]["reason"] == "Queued"
        assert "waiting for 2 CPUs: 1 of 3 free" in waiting["status"]["waiting"]["message"]
        bound = [pod["metadata"]["name"] for pod in await plant.list_all(PODS) if pod["spec"].get("nodeName")]
        assert bound == ["a-master-0", "a-worker-0"], "one CPU is free, and b takes no part of it"
        done = await plant.wait_for(PYTORCH.gvr, "b", has("Succeeded"))
        assert "waiting" not in done["status"]

    flow(body)


def test_a_refused_pod_is_said_in_the_status() -> None:
    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1})
        job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["serviceAccountName"] = "nobody"
        await plant.apply((PYTORCH.gvr, job))
        found = await plant.wait_for(PYTORCH.gvr, "a", lambda job: "waiting" in (job.get("status") or {}))
        assert found["status"]["waiting"]["reason"] == "FailedCreate"
        assert "nobody" in found["status"]["waiting"]["message"]
        assert list_conditions(found) == {"Created": "True"}

    flow(body)


@pytest.mark.parametrize("restart", ["OnFailure", "ExitCode"])
def test_a_pod_that_its_node_cannot_run_is_not_replaced_forever(restart: str) -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1, "Worker": 1}, restart)))
        await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        status = {"phase": "Failed", "reason": "Unsupported", "message": "this node does not carry out it"}
        patch = {"status": {**status, "containerStatuses": None}}
        await plant.client.patch(PODS, "a-worker-0", PatchType.MERGE, patch, "default", subresource="status")
        job = await finish(plant, PYTORCH, "Failed")
        assert job["status"].get("restarts") is None
        assert job["status"]["failure"]["message"] == "this node does not carry out it"

    flow(body, lambda pod, run: -1)


def test_an_mpi_job_has_what_its_launcher_needs_and_ends_with_it() -> None:
    def play(pod: Object, run: int) -> int:
        return 0 if pod["metadata"]["labels"][REPLICA_TYPE] == "launcher" else -1

    async def body(plant: Plant) -> None:
        job = make_job(MPI, {"Launcher": 1, "Worker": 2}, slotsPerWorker=2, runPolicy={"cleanPodPolicy": "Running"})
        await plant.apply((MPI.gvr, job))
        await plant.wait_for(MPI.gvr, "a", has("Running"))
        assert await list_names(plant, SERVICES) == []
        config = await plant.client.get(GVR("", "v1", "configmaps"), "a-config", "default")
        assert config["data"]["hostfile"] == "a-worker-0 slots=2\na-worker-1 slots=2\n"
        ended = await finish(plant, MPI, "Succeeded")
        assert ended["status"]["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}
        await plant.cluster.clock.sleep(2)
        assert await list_names(plant) == ["a-launcher"]

    flow(body, play)


@pytest.mark.parametrize(
    ("framework", "replicas", "spec", "text"),
    [
        (PYTORCH, {}, {}, "spec.pytorchReplicaSpecs: Required value: must be required"),
        (PYTORCH, {"Master": 2}, {}, "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
        (PYTORCH, {"Wroker": 1}, {}, "did you mean 'Worker'?"),
        (PYTORCH, {"Worker": 0}, {}, "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"),
        (TENSORFLOW, {"Worker": -1}, {}, "must be greater than or equal to 0"),
        (XGBOOST, {"Worker": 1}, {}, "spec.xgbReplicaSpecs[Master]: Required value: must be present"),
        (MPI, {"Worker": 1}, {}, "spec.mpiReplicaSpecs[Launcher]: Required value: must be present"),
        (PYTORCH, {"Master": 1}, {"runPolicy": {"backoffLimit": -1}}, "spec.runPolicy.backoffLimit: Invalid value: -1"),
        (PYTORCH, {"Master": 1}, {"runPolicy": {"managedBy": "me"}}, "spec.runPolicy.managedBy: Unsupported value"),
    ],
)
def test_mistakes_are_refused_at_once(
    framework: V1Framework, replicas: dict[str, int], spec: Object, text: str
) -> None:
    async def body(plant: Plant) -> None:
        with pytest.raises(StatusError) as refused:
            await plant.apply((framework.gvr, make_job(framework, replicas, **spec)))
        assert refused.value.code == 403
        assert f"validator.{framework.singular}.training-operator.kubeflow.org" in refused.value.message
        assert text in refused.value.message

    flow(body)


def test_a_name_that_is_too_long_for_its_pods_is_refused() -> None:
    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1})
        job["metadata"]["name"] = "a" * 60
        with pytest.raises(StatusError, match="must have at most 54 characters"):
            await plant.apply((PYTORCH.gvr, job))

    flow(body)


@pytest.mark.parametrize("suspend", [False, True])
def test_c26_the_ttl_of_a_finished_job_applies_even_if_it_is_suspended(suspend: bool) -> None:
    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1}, runPolicy={"ttlSecondsAfterFinished": 180})
        await plant.apply((PYTORCH.gvr, job))
        await finish(plant, PYTORCH, "Succeeded")
        patch = {"spec": {"runPolicy": {"suspend": suspend}}}
        await plant.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, patch, "default")
        await plant.cluster.clock.sleep(170)
        assert not await is_gone(plant, PYTORCH)
        await plant.cluster.clock.sleep(20)
        assert await is_gone(plant, PYTORCH)

    flow(body)


def test_c26_a_job_without_ttl_stays_and_an_unfinished_one_with_it_too() -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1})))
        suspended = make_job(XGBOOST, {"Master": 1}, runPolicy={"ttlSecondsAfterFinished": 0, "suspend": True})
        await plant.apply((XGBOOST.gvr, suspended))
        await finish(plant, PYTORCH, "Succeeded")
        await plant.cluster.clock.sleep(86_400)
        assert not await is_gone(plant, PYTORCH)
        assert not await is_gone(plant, XGBOOST)

    flow(body)


def test_c29_the_queue_of_a_job_cannot_be_changed() -> None:
    async def body(plant: Plant) -> None:
        policy = {"schedulingPolicy": {"queue": "a"}}
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1}, runPolicy=policy)))
        patch = {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "b"}}}}
        with pytest.raises(StatusError) as caught:
            await plant.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, patch, "default")
        assert "spec.runPolicy.schedulingPolicy.queue is immutable" in caught.value.message
        job = await plant.client.get(PYTORCH.gvr, "a", "default")
        assert job["spec"]["runPolicy"]["schedulingPolicy"]["queue"] == "a"

    flow(body)


@pytest.mark.parametrize("context", ["", "cluster"])
@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
def test_restart_of_a_running_job_replaces_all_its_pods(restart: str, context: str) -> None:
    """On a cluster it is suspended and resumed, which training-operator understands too."""

    async def body(plant: Plant) -> None:
        await plant.apply((PYTORCH.gvr, make_job(PYTORCH, {"Master": 1, "Worker": 2}, restart)))
        await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        before = {pod["metadata"]["uid"] for pod in await plant.list_all(PODS)}
        options = argparse.Namespace(namespace="default", new_name="", wait=True, kubeconfig="", context=context)
        job = await get_job(plant.client, "default", "a")
        commands = CommandContext({}, io.StringIO(), io.StringIO())
        await Restart(plant.client, commands, options, None).run(job)
        found = await plant.wait_for(PYTORCH.gvr, "a", has("Running"))
        after = {pod["metadata"]["uid"] for pod in await plant.list_all(PODS)}
        assert len(after) == 3 and not after & before
        assert "restarts" not in found["status"], "it was requested, so it does not count against the limit"
        assert "failure" not in found["status"]
        assert not PyTorchJob(found).is_suspended
        assert PyTorchJob(found).attempt == (0 if context else 1)

    flow(body, seconds=600)


def test_a_restart_that_a_user_asked_for_begins_the_count_again_and_its_numbers_go_on() -> None:
    """Worker 0 fails twice before the restart and once after it; the limit is three."""
    failures = fail_workers(137, times=2)

    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1, "Worker": 1}, "ExitCode", runPolicy={"backoffLimit": 3})
        await plant.apply((PYTORCH.gvr, job))
        await plant.wait_for(PYTORCH.gvr, "a", lambda one: one.get("status", {}).get("restarts") == 2)
        await plant.cluster.clock.sleep(3)
        asked = await get_job(plant.client, "default", "a")
        assert await ask_for_attempt(plant.client, asked, None) == 3
        await plant.cluster.clock.sleep(3)
        found = await get_job(plant.client, "default", "a")
        assert found.read_attempts(None) == (3, 0, 3)
        pods = await plant.list_all(PODS)
        assert [pod["metadata"]["annotations"]["trainmaster.dev/attempt"] for pod in pods] == ["3", "3"]
        text = "PyTorchJob a is restarting because a user asked for it."
        assert text in await list_messages(plant, "PyTorchJobRestarting")
        assert list(list_conditions(dict(found.raw))) == ["Created", "Running"]

    flow(body, failures, seconds=1)


def test_pods_that_an_ended_job_left_running_are_stopped_with_the_server() -> None:
    class ShortLauncher(ScriptedNode):
        def get_seconds(self, pod: Object) -> float:
            return 1.0 if pod["metadata"]["name"] == "a-launcher" else 6000.0

    async def main() -> None:
        async with running_plant(ShortLauncher(), runtimes=False) as plant:
            await plant.apply((MPI.gvr, make_job(MPI, {"Launcher": 1, "Worker": 2})))
            await finish(plant, MPI, "Succeeded")
            running = [pod for pod in await plant.list_all(PODS) if pod["status"]["phase"] == "Running"]
            assert len(running) == 2, "cleanPodPolicy is None"
            assert await suspend_all(plant.client) == 2
            await wait_for_pods(plant.client)

    run_virtual(main(), limit=600)


def test_an_enforced_retention_is_refused_at_create_and_clamped_when_it_came_later() -> None:
    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1}, runPolicy={"ttlSecondsAfterFinished": 1000})
        await plant.apply((PYTORCH.gvr, job))
        await finish(plant, PYTORCH, "Succeeded")
        meta = {"name": policy.NAME, "namespace": policy.NAMESPACE}
        data = {"ttlSecondsAfterFinished": "100", "ttlEnforced": "true"}
        await plant.client.create(CONFIG_MAPS, {"metadata": meta, "data": data}, policy.NAMESPACE)
        await plant.settle()
        kept = (await plant.client.get(PYTORCH.gvr, "a", "default"))["status"]["retention"]
        assert kept["source"].endswith("instead of 1000 on the PyTorchJob")
        longer = {"metadata": {"labels": {"a": "b"}}, "spec": {"runPolicy": {"ttlSecondsAfterFinished": 2000}}}
        text = "spec.runPolicy.ttlSecondsAfterFinished: Invalid value: 2000: must not be longer than 100"
        with pytest.raises(StatusError, match=text):
            await plant.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, longer, "default")
        del longer["spec"]
        await plant.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, longer, "default")
        job["metadata"]["name"] = "b"
        with pytest.raises(StatusError, match="must not be longer than 100"):
            await plant.client.create(PYTORCH.gvr, job, "default")
        await plant.cluster.clock.sleep(101)
        assert await is_gone(plant, PYTORCH)

    flow(body)


@pytest.mark.parametrize("key", ["trainmaster.dev/restart", "trainmaster.dev/ttl-seconds-after-finished"])
def test_an_annotation_of_ours_that_is_no_number_is_refused(key: str) -> None:
    async def body(plant: Plant) -> None:
        job = make_job(PYTORCH, {"Master": 1})
        await plant.apply((PYTORCH.gvr, job))
        wrong = {"metadata": {"annotations": {key: "soon"}}}
        with pytest.raises(StatusError, match=f"metadata.annotations.{key}.: Invalid value: .soon."):
            await plant.client.patch(PYTORCH.gvr, "a", PatchType.MERGE, wrong, "default")
        with pytest.raises(StatusError, match="Invalid value"):
            await plant.client.create(PYTORCH.gvr, {**job, "metadata": {"name": "b", **wrong["metadata"]}}, "default")

    flow(body)
