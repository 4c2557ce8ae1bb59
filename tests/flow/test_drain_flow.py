"""`trainmaster drain`: what runs is suspended and comes back in its place; nothing new starts meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from tests.flow.stage import make_trainjob
from tests.flow.test_scheduling_flow import make_job
from trainmaster.api.labels import DRAINED_SINCE, KEEPS_PLACE, SUSPENDED_BY_DRAIN
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.controllers.explain.reasons import explain
from trainmaster.jobs.control import set_suspended
from trainmaster.jobs.drain_progress import read_drain
from trainmaster.jobs.draining import end_drain, end_drain_of_shutdown, start_drain
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.timeline import Now
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def run(test: Callable[[Plant], Awaitable[None]], *, cpu: str = "4") -> None:
    """On a node with four CPUs; Pods run until they are deleted."""

    async def main() -> None:
        async with running_plant(ScriptedNode(lambda pod, number: -1)) as plant:
            status = {"status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "500"}}}
            await plant.client.patch(NODES, "local", PatchType.MERGE, status, subresource="status")
            await test(plant)

    run_virtual(main(), limit=86_400)


async def submit(plant: Plant, *jobs: tuple[str, int, int]) -> None:
    """(name, nodes, CPUs of each), one second apart."""
    for name, nodes, cpus in jobs:
        await plant.apply((TRAIN_JOBS, make_job(name, nodes, cpu=str(cpus))))
        await plant.cluster.clock.sleep(3)


async def drain(plant: Plant, **more: Any) -> None:
    await start_drain(plant.client, plant.cluster.clock.now(), "ann", "new kernel", **more)
    await plant.cluster.clock.sleep(10)


async def undrain(plant: Plant) -> None:
    await end_drain(plant.client)
    await plant.cluster.clock.sleep(10)


async def read(plant: Plant, name: str, gvr: GVR = TRAIN_JOBS) -> TrainingJob:
    return read_training_job({"kind": "TrainJob", **await plant.client.get(gvr, name, "default")})


async def list_running(plant: Plant) -> set[str]:
    """The names of jobs that have Pods on the machine."""
    return {Pod(pod).jobset or Pod(pod).name for pod in await plant.list_all(PODS) if pod["spec"].get("nodeName")}


async def set_suspend(plant: Plant, name: str, suspend: bool) -> bool:
    return await set_suspended(plant.client, await read(plant, name), suspend)


def test_what_runs_stops_and_comes_back_and_what_waits_keeps_its_place() -> None:
    async def test(plant: Plant) -> None:
        await submit(plant, ("runs", 2, 1), ("waits", 1, 4), ("small", 1, 1))
        assert await list_running(plant) == {"runs"}  # the waiting job keeps the rest of the CPUs
        before = plant.node.started.copy()
        await drain(plant)
        assert await list_running(plant) == set()
        assert not (await read(plant, "waits")).is_suspended
        state = await read_drain(plant.client)
        assert [one.label for one in state.suspended] == ["default/runs"] and state.is_complete
        await submit(plant, ("new", 1, 1))
        assert await list_running(plant) == set()
        await undrain(plant)
        assert await list_running(plant) == {"runs"}
        assert len(plant.node.started) == len(before) + 2
        job = await read(plant, "runs")
        assert not job.is_suspended and SUSPENDED_BY_DRAIN not in job.annotations

    run(test)


def test_what_ran_comes_before_what_had_waited_longer_and_what_is_new() -> None:
    async def test(plant: Plant) -> None:
        await submit(plant, ("one", 1, 3))
        await submit(plant, ("older", 1, 2), ("two", 1, 1))
        assert await list_running(plant) == {"one"}
        await set_suspend(plant, "older", True)
        await plant.cluster.clock.sleep(3)
        assert await list_running(plant) == {"one", "two"}
        await set_suspend(plant, "older", False)
        await drain(plant)
        await submit(plant, ("new", 1, 1))
        await undrain(plant)
        assert await list_running(plant) == {"one", "two"}

    run(test)


def test_a_job_that_waits_says_that_the_machine_is_drained_and_since_when() -> None:
    async def test(plant: Plant) -> None:
        await submit(plant, ("runs", 1, 1))
        await drain(plant)
        since = (await plant.client.get(NODES, "local"))["metadata"]["annotations"][DRAINED_SINCE]
        await submit(plant, ("new", 1, 1))
        assert (
            (await read(plant, "new"))
            .waiting["message"]
            .endswith(f"the machine is drained since {since} by ann (new kernel); `trainmaster undrain` changes that")
        )
        told = explain(plant.cluster.view, "default", "new", Now(plant.cluster.clock.now()))
        assert told is not None and "trainmaster undrain" in [*told.unblock, *(one.how for one in told.changes)]
        told = explain(plant.cluster.view, "default", "runs", Now(plant.cluster.clock.now()))
        assert told is not None and told.reason == "Drained" and told.unblock == ("trainmaster undrain",)
        state = (await read(plant, "runs")).state
        assert state.sentence == (
            f"Drained: the machine has been drained since {since}; "
            "the job continues where it was after `trainmaster undrain`"
        )

    run(test)


def test_a_job_that_tolerates_everything_does_not_start_either() -> None:
    async def test(plant: Plant) -> None:
        await drain(plant)
        job = make_trainjob(name="new", nodes=1)
        target = {"targetJobs": [{"name": "node"}], "spec": {"tolerations": [{"operator": "Exists"}]}}
        job["spec"]["podTemplateOverrides"] = [target]
        await plant.apply((TRAIN_JOBS, job))
        await plant.cluster.clock.sleep(5)
        assert await list_running(plant) == set()

    run(test)


def test_one_that_a_person_resumes_waits_and_one_that_a_person_suspended_stays() -> None:
    async def test(plant: Plant) -> None:
        await submit(plant, ("resumed", 1, 1), ("kept", 1, 1), ("own", 1, 1))
        await set_suspend(plant, "own", True)
        await drain(plant)
        assert await set_suspend(plant, "resumed", False)
        assert await set_suspend(plant, "kept", True)
        assert not await set_suspend(plant, "kept", True)
        await plant.cluster.clock.sleep(10)
        assert await list_running(plant) == set()
        assert "the machine is drained" in (await read(plant, "resumed")).waiting["message"]
        await undrain(plant)
        assert await list_running(plant) == {"resumed"}
        assert (await read(plant, "kept")).is_suspended and (await read(plant, "own")).is_suspended

    run(test)


def test_a_place_in_the_queue_is_lost_when_a_person_suspends_the_job() -> None:
    async def test(plant: Plant) -> None:
        await submit(plant, ("one", 1, 4))
        await drain(plant)
        await undrain(plant)
        jobset = await plant.client.get(JOB_SETS, "one", "default")
        assert KEEPS_PLACE in jobset["metadata"]["annotations"]
        await set_suspend(plant, "one", True)
        await submit(plant, ("two", 1, 4))
        await set_suspend(plant, "one", False)
        await plant.cluster.clock.sleep(5)
        jobset = await plant.client.get(JOB_SETS, "one", "default")
        assert KEEPS_PLACE not in (jobset["metadata"].get("annotations") or {})
        await submit(plant, ("three", 1, 4))
        await plant.client.delete(TRAIN_JOBS, "two", "default", DeleteOptions())
        await plant.cluster.clock.sleep(5)
        assert await list_running(plant) == {"one"}

    run(test)


def test_a_drain_that_is_asked_for_again_goes_on_and_names_who_began_it() -> None:
    async def test(plant: Plant) -> None:
        clock = plant.cluster.clock
        first, is_new = await start_drain(plant.client, clock.now(), "ann", "disk")
        assert is_new
        await clock.sleep(60)
        assert await start_drain(plant.client, clock.now(), "bob") == (first, False)
        assert (await end_drain(plant.client)) == (first, True)
        assert (await end_drain(plant.client)) == (None, False)

    run(test)


def test_the_drain_of_a_shutdown_ends_with_the_next_start_and_a_persons_does_not() -> None:
    async def test(plant: Plant) -> None:
        clock = plant.cluster.clock
        await submit(plant, ("runs", 1, 1))
        await drain(plant, until_start=True)
        assert await list_running(plant) == set()
        assert await end_drain_of_shutdown(plant.client) is not None
        await clock.sleep(10)
        assert await list_running(plant) == {"runs"}
        await drain(plant)
        _, is_new = await start_drain(plant.client, clock.now(), "", until_start=True)
        assert not is_new
        assert await end_drain_of_shutdown(plant.client) is None
        await clock.sleep(10)
        assert await list_running(plant) == set()

    run(test)


def test_a_person_who_drains_a_machine_that_shuts_down_keeps_it_drained() -> None:
    async def test(plant: Plant) -> None:
        clock = plant.cluster.clock
        await start_drain(plant.client, clock.now(), "", until_start=True)
        _, is_new = await start_drain(plant.client, clock.now(), "ann")
        assert is_new and await end_drain_of_shutdown(plant.client) is None

    run(test)


def test_after_kubectl_uncordon_the_next_cordon_is_no_drain() -> None:
    async def test(plant: Plant) -> None:
        await submit(plant, ("runs", 1, 1))
        await drain(plant)
        await plant.client.patch(NODES, "local", PatchType.MERGE, {"spec": {"unschedulable": None}})
        await plant.cluster.clock.sleep(10)
        assert await list_running(plant) == {"runs"}
        await plant.client.patch(NODES, "local", PatchType.MERGE, {"spec": {"unschedulable": True}})
        await plant.cluster.clock.sleep(10)
        assert await list_running(plant) == {"runs"}

    run(test)


def make_template() -> Object:
    return {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet", "Job"])
def test_all_kinds_of_jobs_are_suspended_and_resumed(kind: str) -> None:
    worker = {"replicas": 2, "restartPolicy": "Never", "template": {"spec": {"containers": [
        {"name": "pytorch", "image": "i"}]}}}  # fmt: skip
    replicated = {"name": "r", "template": {"spec": {"template": make_template()}}}
    gvr, spec = {
        "PyTorchJob": (GVR("kubeflow.org", "v1", "pytorchjobs"), {"pytorchReplicaSpecs": {"Worker": worker}}),
        "JobSet": (JOB_SETS, {"replicatedJobs": [replicated]}),
        "Job": (JOBS, {"template": make_template()}),
    }[kind]

    async def test(plant: Plant) -> None:
        meta = {"name": "one", "namespace": "default"}
        await plant.apply((gvr, {"apiVersion": gvr.api_version, "kind": kind, "metadata": meta, "spec": spec}))
        await plant.cluster.clock.sleep(5)
        count = len(await plant.list_all(PODS))
        assert count and await list_running(plant)
        await drain(plant)
        assert await list_running(plant) == set()
        state = await read_drain(plant.client)
        assert [(one.kind, one.name) for one in state.suspended] == [(kind, "one")]
        await undrain(plant)
        assert len([pod for pod in await plant.list_all(PODS) if pod["spec"].get("nodeName")]) == count
        assert not (await read_drain(plant.client)).suspended

    run(test)


def test_a_pod_that_belongs_to_no_job_goes_on_and_is_named() -> None:
    async def test(plant: Plant) -> None:
        meta = {"name": "alone", "namespace": "default", "labels": {"app": "alone"}}
        await plant.apply((PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **make_template()}))
        await plant.cluster.clock.sleep(5)
        await drain(plant)
        state = await read_drain(plant.client)
        assert [one.label for one in state.stopping] == ["Pod default/alone"] and not state.is_complete

    run(test)


def test_a_pod_that_the_scheduler_binds_at_the_last_moment_is_stopped_too() -> None:
    async def test(plant: Plant) -> None:
        await plant.client.patch(NODES, "local", PatchType.MERGE, {"spec": {"unschedulable": True}})
        await submit(plant, ("late", 1, 1))
        await start_drain(plant.client, plant.cluster.clock.now(), "ann")
        await plant.settle()
        (pod,) = await plant.list_all(PODS)
        binding = {"spec": {"nodeName": "local"}}
        await plant.client.patch(PODS, pod["metadata"]["name"], PatchType.MERGE, binding, "default")
        await plant.cluster.clock.sleep(10)
        assert await list_running(plant) == set() and (await read(plant, "late")).is_suspended

    run(test)
