"""A TrainJob on a cluster whose starter is a typed client, as Kueue is: what that client writes has only the fields of
upstream's Go types. Kueue itself runs in tests/seam/heavy_kueue.py; here its writes are repeated in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.labels import QUEUE_NAME
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, TTL_ANNOTATION
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import PatchType
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

MANAGER = "kueue.x-k8s.io/manager"
UNKNOWN = ("ttlSecondsAfterFinished", "cleanupPolicy", "podTemplateOverrides", "podSpecOverrides", "labels")
"""Fields that the Go type of Trainer 2.2, with which Kueue 0.19 was built, does not have."""


def flow(body: Callable[[Plant], Awaitable[None]], **plant: Any) -> None:
    async def main() -> None:
        async with running_plant(**plant) as running:
            running.cluster.registry.trainer_admission.embedded = False
            await body(running)

    run_virtual(main(), limit=86_400)


def make_queued(**spec: Any) -> Object:
    """As Kueue's own webhook leaves it."""
    trainjob = make_trainjob(suspend=True, runtimePatches=[make_patch([])], **spec)
    trainjob["metadata"]["labels"] = {QUEUE_NAME: "team"}
    return trainjob


def make_patch(jobs: list[Object]) -> Object:
    spec = {"replicatedJobs": jobs} if jobs else {}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": spec}}}


def tolerate(pool: str) -> Object:
    """What Kueue adds to the Pods of a job that it admits."""
    pod = {"tolerations": [{"key": "pool", "operator": "Equal", "value": pool}]}
    template = {"metadata": {"labels": {"kueue.x-k8s.io/podset": "node"}}, "spec": pod}
    return {"name": "node", "template": {"spec": {"template": template}}}


async def list_done(plant: Plant) -> list[tuple[str, str]]:
    """The pool and the PodSet of each Pod that succeeded."""
    pods = [pod for pod in await plant.list_all(PODS) if pod["status"]["phase"] == "Succeeded"]
    return [
        (one["value"], pod["metadata"]["labels"]["kueue.x-k8s.io/podset"])
        for pod in pods
        for one in pod["spec"]["tolerations"]
        if one["key"] == "pool"
    ]


async def read(plant: Plant) -> Object:
    return await plant.client.get(TRAIN_JOBS, "first", "default")


async def write(plant: Plant, **spec: Any) -> Object:
    """Reads into upstream's type, changes the spec and writes everything back."""
    stored = await read(plant)
    known = {name: value for name, value in stored["spec"].items() if name not in UNKNOWN}
    return await plant.client.update(TRAIN_JOBS, {**stored, "spec": {**known, **spec}}, "default")


async def start(plant: Plant, pool: str = "spot") -> None:
    """Two writes, as Kueue does: the patches while the job is suspended, then `suspend`."""
    await write(plant, runtimePatches=[make_patch([tolerate(pool)])])
    await plant.client.patch(TRAIN_JOBS, "first", PatchType.MERGE, {"spec": {"suspend": False}}, "default")


async def stop(plant: Plant) -> None:
    """Kueue waits until no Job is active before it takes its patches back."""
    await write(plant, suspend=True)
    await plant.wait_for(TRAIN_JOBS, "first", lambda job: not any(one["active"] for one in get_counts(job)))
    await plant.client.patch(
        TRAIN_JOBS, "first", PatchType.MERGE, {"spec": {"runtimePatches": [make_patch([])]}}, "default"
    )


def get_counts(job: Object) -> list[Object]:
    found: list[Object] = (job.get("status") or {}).get("jobsStatus") or []
    return found


def test_a_job_that_is_started_stopped_and_started_by_a_typed_client_keeps_its_ttl() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_queued(ttlSecondsAfterFinished=5, activeDeadlineSeconds=3600)))
        await start(plant)
        assert (await read(plant))["spec"]["ttlSecondsAfterFinished"] == 5
        await plant.wait_for(TRAIN_JOBS, "first", lambda job: any(one["active"] for one in get_counts(job)))
        await stop(plant)
        await start(plant, pool="reserved")
        done = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
        assert is_true(list_conditions(done), "Complete")
        assert done["spec"]["ttlSecondsAfterFinished"] == 5 and done["spec"]["activeDeadlineSeconds"] == 3600
        assert done["metadata"]["annotations"] == {TTL_ANNOTATION: "5", DEADLINE_ANNOTATION: "3600"}
        assert (await list_done(plant)).count(("reserved", "node")) == 2
        await asyncio.sleep(6)
        with pytest.raises(NotFound):
            await read(plant)

    flow(test, node=ScriptedNode(seconds=30))


def test_a_ttl_is_in_force_from_the_annotation_alone() -> None:
    """Where the webhooks were away when the field was dropped (failurePolicy Ignore)."""

    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_queued(cleanupPolicy={"ttlSecondsAfterFinished": 5})))
        plant.cluster.registry.trainer_admission.embedded = True
        await start(plant)
        assert "cleanupPolicy" not in (await read(plant))["spec"]
        done = await plant.wait_for(TRAIN_JOBS, "first", lambda job: "retention" in (job.get("status") or {}))
        assert done["status"]["retention"]["source"] == f"TrainJob annotation {TTL_ANNOTATION}"
        await asyncio.sleep(6)
        with pytest.raises(NotFound):
            await read(plant)

    flow(test)


def test_patches_and_the_resume_are_taken_in_one_request() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_queued()))
        await write(plant, suspend=False, runtimePatches=[make_patch([tolerate("spot")])])
        await plant.wait_for(TRAIN_JOBS, "first", is_finished)
        assert await list_done(plant) == [("spot", "node")] * 2

    flow(test)


def test_overrides_that_kueue_drops_are_refused_when_the_job_is_created() -> None:
    async def test(plant: Plant) -> None:
        override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"pool": "a"}}}
        with pytest.raises(StatusError) as refused:
            await plant.apply((TRAIN_JOBS, make_queued(podTemplateOverrides=[override])))
        assert refused.value.code == 403
        assert '{"manager":"trainmaster.dev/overrides","trainingRuntimeSpec":' in refused.value.message

    flow(test)
