"""Conformance lines E-001 to E-012 that one machine can play: whole lives of TrainJobs through all controllers.

E-005 (Flux) is not among them, docs/trainjobs.md says why; E-010 (the status server) is in tests/node/test_progress.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.flow.plant import Plant, Script, ScriptedNode, running_plant, succeed
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from trainmaster.client.contract import PatchType
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def make_trainjob(runtime: str, **spec: Any) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "e", "namespace": "default"},
        "spec": {"runtimeRef": {"name": runtime}, **spec},
    }


def run(test: Callable[[Plant], Awaitable[None]], *, script: Script = succeed) -> None:
    async def main() -> None:
        async with running_plant(ScriptedNode(script)) as plant:
            await test(plant)

    run_virtual(main(), limit=86_400)


def is_over(trainjob: Object) -> bool:
    conditions = list_conditions(trainjob)
    return is_true(conditions, "Complete") or is_true(conditions, "Failed")


def read_counts(trainjob: Object, name: str = "node") -> Object:
    entries = trainjob.get("status", {}).get("jobsStatus", [])
    return next((entry for entry in entries if entry["name"] == name), {})


@pytest.mark.parametrize(
    "runtime",
    [
        pytest.param("torch-distributed", id="E-001"),
        pytest.param("jax-distributed", id="E-003"),
        pytest.param("xgboost-distributed", id="E-004"),
    ],
)
def test_a_trainjob_without_a_trainer_runs_to_completion(runtime: str) -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob(runtime)))
        await plant.wait_for(TRAIN_JOBS, "e", lambda job: read_counts(job).get("active") == 1)
        trainjob = await plant.wait_for(TRAIN_JOBS, "e", is_over)
        conditions = [
            {key: value for key, value in condition.items() if key != "lastTransitionTime"}
            for condition in trainjob["status"]["conditions"]
        ]
        text = "jobset completed successfully"
        assert conditions == [{"type": "Complete", "status": "True", "reason": "AllJobsCompleted", "message": text}]
        assert read_counts(trainjob)["succeeded"] == 1

    run(test)


def test_e_002_an_mpi_job_of_two_nodes() -> None:
    def serve(pod: Object, run: int) -> int:
        """The nodes serve until somebody ends them; the launcher does the work."""
        return -1 if pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "node" else 0

    async def test(plant: Plant) -> None:
        trainer = {"numNodes": 2, "command": ["mpirun", "sleep", "10"]}
        await plant.apply((TRAIN_JOBS, make_trainjob("deepspeed-distributed", trainer=trainer)))
        await plant.wait_for(TRAIN_JOBS, "e", lambda job: read_counts(job).get("active") == 1)
        trainjob = await plant.wait_for(TRAIN_JOBS, "e", is_over)
        assert is_true(list_conditions(trainjob), "Complete")
        launcher, node = read_counts(trainjob, "launcher"), read_counts(trainjob)
        assert (launcher["succeeded"], launcher["failed"], node["failed"]) == (1, 0, 0)

    run(test, script=serve)


def make_patch(manager: str, value: str, time: str = "") -> Object:
    metadata = {"annotations": {"a.io/note": value}}
    patch: Object = {"manager": manager, "trainingRuntimeSpec": {"template": {"metadata": metadata}}}
    return {**patch, "time": time} if time else patch


OWN_TIME = "2020-01-01T00:00:00Z"


def test_e_006_a_given_time_of_a_patch_is_kept_and_a_missing_one_is_set() -> None:
    async def test(plant: Plant) -> None:
        patches = [make_patch("b.io/given", "1", OWN_TIME), make_patch("a.io/missing", "1")]
        trainjob = make_trainjob("plain", suspend=True, runtimePatches=patches)
        made = await plant.client.create(TRAIN_JOBS, trainjob, "default")
        times = [(patch["manager"], patch["time"]) for patch in made["spec"]["runtimePatches"]]
        assert times == [("b.io/given", OWN_TIME), ("a.io/missing", made["metadata"]["creationTimestamp"])]

    run(test)


def test_e_007_the_times_of_patches_on_update() -> None:
    async def test(plant: Plant) -> None:
        patches = [make_patch("a.io/same", "1"), make_patch("b.io/changed", "1", OWN_TIME)]
        trainjob = make_trainjob("plain", suspend=True, runtimePatches=patches)
        made = await plant.client.create(TRAIN_JOBS, trainjob, "default")
        first = made["spec"]["runtimePatches"][0]["time"]
        await plant.cluster.clock.sleep(10)
        after = [
            make_patch("a.io/same", "1", OWN_TIME),
            make_patch("b.io/changed", "2", OWN_TIME),
            make_patch("c.io/new", "1"),
            make_patch("d.io/own", "1", OWN_TIME),
        ]
        changed = await plant.client.patch(
            TRAIN_JOBS, "e", PatchType.MERGE, {"spec": {"runtimePatches": after}}, "default"
        )
        same, edited, new, own = (patch["time"] for patch in changed["spec"]["runtimePatches"])
        assert (same, own) == (first, OWN_TIME)
        assert edited == new > first

    run(test)


def test_e_008_a_trainjob_of_multikueue_is_left_alone() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob("plain", managedBy="kueue.x-k8s.io/multikueue")))
        await plant.cluster.clock.sleep(15)
        assert await plant.list_all(JOB_SETS) == []
        assert "status" not in (await plant.list_all(TRAIN_JOBS))[0]

    run(test)


def test_e_009_a_deadline_ends_the_job_and_its_pods() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob("plain", activeDeadlineSeconds=10)))
        trainjob = await plant.wait_for(TRAIN_JOBS, "e", is_over)
        condition = trainjob["status"]["conditions"][0]
        assert (condition["type"], condition["reason"]) == ("Failed", "DeadlineExceeded")
        trainjob = await plant.wait_for(TRAIN_JOBS, "e", lambda job: not read_counts(job)["active"])
        await plant.settle()
        assert (await plant.list_all(JOB_SETS), await plant.list_all(PODS)) == ([], [])
        assert "DeadlineExceeded" in await plant.list_event_reasons()

    run(test, script=lambda pod, run: -1)


@pytest.mark.parametrize(
    "kind",
    [pytest.param("TrainingRuntime", id="E-011"), pytest.param("ClusterTrainingRuntime", id="E-012")],
)
def test_a_resumed_job_runs_from_its_snapshot(kind: str) -> None:
    async def test(plant: Plant) -> None:
        gvr = TRAINING_RUNTIMES if kind == "TrainingRuntime" else CLUSTER_TRAINING_RUNTIMES
        namespace = "default" if kind == "TrainingRuntime" else ""
        runtime = await plant.client.get(CLUSTER_TRAINING_RUNTIMES, "plain")
        metadata = {"name": "own", **({"namespace": namespace} if namespace else {})}
        own = {**runtime, "kind": kind, "metadata": metadata}
        await plant.client.create(gvr, own, namespace)
        trainjob = make_trainjob("own")
        trainjob["spec"]["runtimeRef"]["kind"] = kind
        await plant.apply((TRAIN_JOBS, trainjob))
        await plant.wait_for(TRAIN_JOBS, "e", lambda job: read_counts(job).get("active") == 1)
        await change(plant, TRAIN_JOBS, {"spec": {"suspend": True}})
        await plant.wait_for(TRAIN_JOBS, "e", lambda job: read_counts(job).get("suspended") == 1)
        edited = await plant.client.get(gvr, "own", namespace)
        job = edited["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
        job["template"]["spec"]["containers"][0]["image"] = "other:2"
        await plant.client.update(gvr, edited, namespace)
        await change(plant, TRAIN_JOBS, {"spec": {"suspend": False}})
        await plant.wait_for(TRAIN_JOBS, "e", lambda job: read_counts(job).get("active") == 1)
        images = {pod["spec"]["containers"][0]["image"] for pod in await plant.list_all(PODS)}
        assert images == {"python:3.11"}
        await plant.client.delete(TRAIN_JOBS, "e", "default")
        await plant.settle()
        assert [c["metadata"]["name"] for c in await plant.list_all(CONFIG_MAPS) if "snapshot" in str(c)] == []

    run(test, script=lambda pod, run: -1)


async def change(plant: Plant, gvr: Any, patch: Object) -> None:
    await plant.client.patch(gvr, "e", PatchType.MERGE, patch, "default")
