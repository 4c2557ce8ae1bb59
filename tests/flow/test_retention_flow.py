"""TrainJobs after their end, in virtual time: kept for as long as somebody said, then gone with all that they own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, ENFORCED_ANNOTATION, TTL_ANNOTATION
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES as RUNTIMES
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, JOBS, PODS, SECRETS, SERVICES, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import PatchType
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

OWNED = (JOB_SETS, JOBS, PODS, SERVICES, SECRETS)


def flow(body: Callable[[Plant], Awaitable[None]], **plant: Any) -> None:
    async def main() -> None:
        async with running_plant(**plant) as running:
            await body(running)

    run_virtual(main(), limit=86_400 * 400)


async def exists(plant: Plant, name: str = "first") -> bool:
    try:
        await plant.client.get(TRAIN_JOBS, name, "default")
    except NotFound:
        return False
    return True


async def finish(plant: Plant, name: str = "first", **spec: Any) -> Object:
    await plant.apply((TRAIN_JOBS, make_trainjob(name=name, **spec)))
    return await plant.wait_for(TRAIN_JOBS, name, is_finished)


async def edit(plant: Plant, patch: Object, name: str = "first") -> None:
    await plant.client.patch(TRAIN_JOBS, name, PatchType.MERGE, patch, "default")


async def edit_runtime(plant: Plant, patch: Object) -> None:
    await plant.client.patch(RUNTIMES, "torch-distributed", PatchType.MERGE, patch)


async def set_policy(plant: Plant, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trainmaster-policy"}, "data": data}
    await plant.client.create(CONFIG_MAPS, body, "kubeflow-system")


def test_the_reproduction_of_the_report_seventy_seconds_later_nothing_is_left() -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob(ttlSecondsAfterFinished=60)))
        await asyncio.sleep(5 + 58)
        assert await exists(plant)
        await asyncio.sleep(7)
        assert not await exists(plant)
        for gvr in OWNED:
            assert await plant.list_all(gvr) == [], gvr.qualified
        assert [cm["metadata"]["name"] for cm in await plant.list_all(CONFIG_MAPS)] == ["kube-root-ca.crt"]

    flow(body)


@pytest.mark.parametrize("code", [0, 1], ids=["complete", "failed"])
def test_zero_seconds_means_at_once(code: int) -> None:
    async def body(plant: Plant) -> None:
        await edit_runtime(plant, {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 0}}}}})
        await finish(plant, ttlSecondsAfterFinished=0)
        await plant.settle()
        assert not await exists(plant)

    flow(body, node=ScriptedNode(lambda pod, run: code))


@pytest.mark.parametrize(
    "spec", [{"ttlSecondsAfterFinished": 100}, {"runPolicy": {"ttlSecondsAfterFinished": 100}}], ids=["field", "policy"]
)
def test_the_runtime_gives_the_default(spec: Object) -> None:
    async def body(plant: Plant) -> None:
        await edit_runtime(plant, {"spec": spec})
        await finish(plant)
        await finish(plant, "second", ttlSecondsAfterFinished=10)
        await asyncio.sleep(20)
        assert (await exists(plant), await exists(plant, "second")) == (True, False)
        await asyncio.sleep(90)
        assert not await exists(plant)

    flow(body)


def test_the_installation_gives_the_default_also_to_jobs_that_ended_before_it_did() -> None:
    async def body(plant: Plant) -> None:
        await finish(plant)
        await asyncio.sleep(1000)
        assert await exists(plant)
        await set_policy(plant, jobRetentionPolicy="delete_on_completion", ttlSecondsAfterFinished="1500")
        await asyncio.sleep(400)
        assert await exists(plant)
        await asyncio.sleep(200)
        assert not await exists(plant)

    flow(body)


def test_a_ttl_that_the_live_runtime_gets_later_reaches_finished_jobs() -> None:
    async def body(plant: Plant) -> None:
        await finish(plant)
        await asyncio.sleep(50)
        await edit_runtime(plant, {"spec": {"ttlSecondsAfterFinished": 40}})
        await plant.settle()
        assert not await exists(plant)

    flow(body)


def test_another_runtime_of_the_same_name_says_nothing_to_jobs_of_the_old_one() -> None:
    async def body(plant: Plant) -> None:
        await finish(plant)
        runtime = await plant.client.get(RUNTIMES, "torch-distributed")
        await edit_runtime(plant, {"metadata": {"annotations": {"trainmaster.dev/allow-delete-in-use": "true"}}})
        await plant.client.delete(RUNTIMES, "torch-distributed")
        fresh = {"name": "torch-distributed", "labels": runtime["metadata"]["labels"]}
        spec = {**runtime["spec"], "ttlSecondsAfterFinished": 0}
        await plant.client.create(RUNTIMES, {**runtime, "metadata": fresh, "spec": spec})
        await asyncio.sleep(100)
        assert await exists(plant)
        await finish(plant, "second")
        await plant.settle()
        assert not await exists(plant, "second")

    flow(body)


def test_an_annotation_does_where_a_crd_drops_the_field() -> None:
    async def body(plant: Plant) -> None:
        trainjob = make_trainjob()
        trainjob["metadata"]["annotations"] = {TTL_ANNOTATION: "30"}
        await plant.apply((TRAIN_JOBS, trainjob))
        ended = await plant.wait_for(TRAIN_JOBS, "first", lambda job: job.get("status", {}).get("retention"))
        assert ended["status"]["retention"]["source"] == f"TrainJob annotation {TTL_ANNOTATION}"
        await asyncio.sleep(31)
        assert not await exists(plant)

    flow(body)


def test_a_deadline_from_an_annotation_ends_the_job() -> None:
    async def body(plant: Plant) -> None:
        trainjob = make_trainjob()
        trainjob["metadata"]["annotations"] = {DEADLINE_ANNOTATION: "30"}
        await plant.apply((TRAIN_JOBS, trainjob))
        ended = await plant.wait_for(TRAIN_JOBS, "first", is_finished)
        assert ended["status"]["conditions"][-1]["reason"] == "DeadlineExceeded"
        await asyncio.sleep(5)
        assert await plant.list_all(PODS) == []

    flow(body, node=ScriptedNode(lambda pod, run: -1))


def test_the_term_in_force_its_source_and_the_moment_are_shown() -> None:
    async def body(plant: Plant) -> None:
        await finish(plant, ttlSecondsAfterFinished=60)
        await plant.settle()
        status = (await plant.client.get(TRAIN_JOBS, "first", "default"))["status"]
        assert status["retention"]["ttlSecondsAfterFinished"] == 60
        assert status["retention"]["source"] == "TrainJob spec.ttlSecondsAfterFinished"
        assert status["retention"]["deleteAt"] > status["conditions"][-1]["lastTransitionTime"]
        await edit(plant, {"spec": {"ttlSecondsAfterFinished": None}})
        await plant.settle()
        assert "retention" not in (await plant.client.get(TRAIN_JOBS, "first", "default"))["status"]

    flow(body)


def test_a_longer_ttl_is_never_missed_and_a_shorter_one_acts_at_once() -> None:
    async def body(plant: Plant) -> None:
        await finish(plant, ttlSecondsAfterFinished=60)
        await asyncio.sleep(50)
        await edit(plant, {"spec": {"ttlSecondsAfterFinished": 1000}})
        await asyncio.sleep(50)
        assert await exists(plant)
        await edit(plant, {"spec": {"ttlSecondsAfterFinished": 20}})
        await plant.settle()
        assert not await exists(plant)

    flow(body)


def test_what_fell_due_while_nobody_looked_goes_at_once_and_nothing_is_forgotten() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with running_plant(store=store) as plant:
            await finish(plant, ttlSecondsAfterFinished=60)
            await finish(plant, "second", ttlSecondsAfterFinished=6000)
        await asyncio.sleep(500)
        async with running_plant(store=store, runtimes=False) as plant:
            await plant.settle()
            assert (await exists(plant), await exists(plant, "second")) == (False, True)
            await asyncio.sleep(6000)
            assert not await exists(plant, "second")

    run_virtual(main(), limit=86_400)


def test_a_job_made_anew_under_the_same_name_has_its_own_time() -> None:
    async def body(plant: Plant) -> None:
        await finish(plant, ttlSecondsAfterFinished=60)
        await asyncio.sleep(30)
        await plant.client.delete(TRAIN_JOBS, "first", "default")
        await plant.settle()
        await finish(plant, ttlSecondsAfterFinished=60)
        await asyncio.sleep(40)
        assert await exists(plant)
        await asyncio.sleep(30)
        assert not await exists(plant)

    flow(body)


def test_a_suspended_job_is_not_over_and_stays() -> None:
    async def body(plant: Plant) -> None:
        await plant.apply((TRAIN_JOBS, make_trainjob(suspend=True, ttlSecondsAfterFinished=0)))
        await asyncio.sleep(1000)
        assert await exists(plant)

    flow(body)


def test_an_enforced_retention_is_refused_at_create_and_clamped_when_it_came_later() -> None:
    async def body(plant: Plant) -> None:
        await finish(plant, ttlSecondsAfterFinished=1000)
        patch = {
            "metadata": {"annotations": {ENFORCED_ANNOTATION: "true"}},
            "spec": {"ttlSecondsAfterFinished": 100},
        }
        await edit_runtime(plant, patch)
        await plant.settle()
        kept = (await plant.client.get(TRAIN_JOBS, "first", "default"))["status"]["retention"]
        assert kept["ttlSecondsAfterFinished"] == 100
        assert kept["source"].endswith("instead of 1000 on the TrainJob")
        with pytest.raises(StatusError, match="must not be longer than 100"):
            await finish(plant, "second", ttlSecondsAfterFinished=101)
        with pytest.raises(StatusError, match="must not be longer than 100"):
            await edit(plant, {"spec": {"ttlSecondsAfterFinished": 2000}})
        await asyncio.sleep(101)
        assert not await exists(plant)

    flow(body)


def test_a_finalizer_of_others_is_reported_and_left_alone() -> None:
    async def body(plant: Plant) -> None:
        trainjob = make_trainjob()
        trainjob["metadata"]["finalizers"] = ["example.com/backup"]
        trainjob["spec"]["ttlSecondsAfterFinished"] = 5
        await plant.apply((TRAIN_JOBS, trainjob))
        await asyncio.sleep(100)
        assert (await plant.client.get(TRAIN_JOBS, "first", "default"))["metadata"]["deletionTimestamp"]
        (event,) = [e for e in await plant.list_all(EVENTS) if e["reason"] == "FinalizerPending"]
        assert "example.com/backup" in event["message"]
        await edit(plant, {"metadata": {"finalizers": None}})
        await plant.settle()
        assert not await exists(plant)

    flow(body)


def test_only_the_newest_of_a_namespace_stay_where_the_policy_says_so() -> None:
    async def body(plant: Plant) -> None:
        await set_policy(plant, successfulJobsHistoryLimit="2", failedJobsHistoryLimit="1")
        for number in range(4):
            await finish(plant, f"job-{number}")
            await asyncio.sleep(2)
        await plant.settle()
        assert [job["metadata"]["name"] for job in await plant.list_all(TRAIN_JOBS)] == ["job-2", "job-3"]

    flow(body)
