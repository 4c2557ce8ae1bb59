"""A TrainJob's whole life through all controllers, against the real registry, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.flow.plant import Plant, Script, ScriptedNode, running_plant, succeed
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES as RUNTIMES
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, PODS, SERVICES, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.controllers.install import install_runtimes
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def make_trainjob(*, name: str = "first", runtime: str = "torch-distributed", nodes: int = 2, **spec: object) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runtimeRef": {"name": runtime},
            "trainer": {"image": "train:1", "command": ["python", "train.py"], "numNodes": nodes},
            **spec,
        },
    }


def run(test: Callable[[Plant], Awaitable[None]], *, script: Script = succeed) -> None:
    async def main() -> None:
        async with running_plant(ScriptedNode(script)) as plant:
            await test(plant)

    run_virtual(main(), limit=86_400)


def is_finished(trainjob: Object) -> bool:
    conditions = list_conditions(trainjob)
    return is_true(conditions, "Complete") or is_true(conditions, "Failed")


def test_a_job_runs_to_completion_through_the_whole_chain() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        trainjob = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
        condition = trainjob["status"]["conditions"][0]
        assert (condition["type"], condition["reason"]) == ("Complete", "AllJobsCompleted")
        assert condition["message"] == "jobset completed successfully"
        counts = {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
        assert trainjob["status"]["jobsStatus"] == [counts]
        assert "waiting" not in trainjob["status"]
        pods = await plant.list_all(PODS)
        assert sorted(pod["spec"]["hostname"] for pod in pods) == ["first-node-0-0", "first-node-0-1"]
        assert {pod["spec"]["subdomain"] for pod in pods} == {"first"}
        assert [service["metadata"]["name"] for service in await plant.list_all(SERVICES)] == ["first"]
        reasons = await plant.list_event_reasons()
        assert reasons.count("SuccessfulCreate") == 2
        assert {"Scheduled", "Completed", "AllJobsCompleted"} <= set(reasons)

    run(test)


def test_while_it_runs_a_job_has_no_condition() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        trainjob = await plant.wait_for(
            TRAIN_JOBS,
            "first",
            lambda job: [entry["ready"] for entry in job.get("status", {}).get("jobsStatus", [])] == [1],
        )
        assert "conditions" not in trainjob["status"]

    run(test)


def test_a_failing_rank_restarts_the_whole_gang_and_the_job_recovers() -> None:
    def fail_once(pod: Object, run: int) -> int:
        rank = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        return 1 if rank == "1" and run == 0 else (-1 if run == 0 else 0)

    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        trainjob = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
        assert is_true(list_conditions(trainjob), "Complete")
        jobset = (await plant.list_all(JOB_SETS))[0]
        assert jobset["status"]["restarts"] == 1
        assert len(plant.node.started) == 4
        assert {
            pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] for pod in await plant.list_all(PODS)
        } == {"1"}

    run(test, script=fail_once)


def test_after_six_restarts_the_job_has_failed_and_says_which_job() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        trainjob = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
        condition = trainjob["status"]["conditions"][0]
        assert (condition["type"], condition["reason"]) == ("Failed", "ReachedMaxRestarts")
        text = "jobset failed due to reaching max number of restarts (first failed job: first-node-0)"
        assert condition["message"] == text
        assert (await plant.list_all(JOB_SETS))[0]["status"]["restarts"] == 6
        assert len(plant.node.started) == 14
        before = plant.cluster.store.revision
        await plant.settle()
        assert plant.cluster.store.revision == before

    run(test, script=lambda pod, run: 1)


def test_a_pause_between_restarts_is_shown_on_the_trainjob() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        trainjob = await plant.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("waiting"))
        assert trainjob["status"]["waiting"]["reason"] == "RestartBackOff"
        assert "restart 2 of 6" in trainjob["status"]["waiting"]["message"]

    run(test, script=lambda pod, run: 1)


def test_deleting_a_job_takes_everything_along() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        await plant.wait_for(JOB_SETS, "first", lambda jobset: jobset.get("status", {}).get("replicatedJobsStatus"))
        await plant.client.delete(TRAIN_JOBS, "first", "default", DeleteOptions())
        await plant.cluster.clock.sleep(60)
        for gvr in (TRAIN_JOBS, JOB_SETS, JOBS, PODS, SERVICES):
            assert await plant.list_all(gvr) == []
        names = [obj["metadata"]["name"] for obj in await plant.list_all(CONFIG_MAPS)]
        assert "first-runtime-snapshot" not in names

    run(test, script=lambda pod, run: -1)


def test_a_suspended_job_has_no_pods_until_it_is_resumed_and_none_after_it_is_suspended_again() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob(suspend=True)))
        await plant.wait_for(TRAIN_JOBS, "first", lambda job: is_true(list_conditions(job), "Suspended"))
        await plant.settle()
        assert await plant.list_all(PODS) == []
        await plant.client.patch(TRAIN_JOBS, "first", PatchType.MERGE, {"spec": {"suspend": False}}, "default")
        await plant.wait_for(JOBS, "first-node-0", lambda job: job.get("status", {}).get("ready") == 2)
        await plant.client.patch(TRAIN_JOBS, "first", PatchType.MERGE, {"spec": {"suspend": True}}, "default")
        job = await plant.wait_for(JOBS, "first-node-0", lambda job: is_true(list_conditions(job), "Suspended"))
        await plant.cluster.clock.sleep(5)
        assert await plant.list_all(PODS) == []
        assert "failed" not in job["status"]

    run(test, script=lambda pod, run: -1)


def test_a_pod_deleted_by_hand_counts_as_a_failure_and_restarts_the_gang() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob()))
        await plant.wait_for(JOBS, "first-node-0", lambda job: job.get("status", {}).get("ready") == 2)
        pod = (await plant.list_all(PODS))[0]
        await plant.client.delete(PODS, pod["metadata"]["name"], "default", DeleteOptions())
        trainjob = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
        assert is_true(list_conditions(trainjob), "Complete")
        assert (await plant.list_all(JOB_SETS))[0]["status"]["restarts"] == 1

    run(test)


def test_what_admission_refuses_of_a_jobset_is_said_on_the_trainjob() -> None:
    async def test(plant: Plant) -> None:
        patch = {"spec": {"template": {"spec": {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}}}}
        await plant.client.patch(RUNTIMES, "plain", PatchType.MERGE, patch)
        await plant.apply((TRAIN_JOBS, make_trainjob(runtime="plain")))
        trainjob = await plant.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("waiting"))
        text = "InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled"
        assert text in trainjob["status"]["waiting"]["message"]

    run(test)


def test_an_edited_shipped_runtime_survives_a_restart_of_the_server_and_counts() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with running_cluster(store=store) as cluster:
            await install_runtimes(cluster.client)
            edit = {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 10}}}}}
            await cluster.client.patch(RUNTIMES, "torch-distributed", PatchType.MERGE, edit)
        async with running_plant(ScriptedNode(lambda pod, run: 1), store=store) as plant:
            await plant.apply((TRAIN_JOBS, make_trainjob()))
            trainjob = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
            assert trainjob["status"]["conditions"][0]["reason"] == "ReachedMaxRestarts"
            assert (await plant.list_all(JOB_SETS))[0]["status"]["restarts"] == 10

    run_virtual(main(), limit=86_400)
