"""Jobs on the whole system in one process: server, controllers, garbage collection, a scripted node.

Tests that stand for a line of the conformance list carry its number; docs/job.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from trainmaster.api.conditions import find_condition, is_true, list_conditions
from trainmaster.api.labels import WAITING
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import EVENTS, JOBS, PODS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import DeleteOptions, PatchType, WatchOptions
from trainmaster.controllers.job.reconciler import CONTROLLER
from trainmaster.engine.request import Request
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import parse_time
from trainmaster.kit.timeline import Now
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow


def make_job(name: str = "j", **spec: Any) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": pod}, **spec},
    }


def indexed(completions: int, **spec: Any) -> Object:
    return make_job(completionMode="Indexed", completions=completions, parallelism=completions, **spec)


def run(test: Callable[[Plant], Coroutine[Any, Any, None]], node: ScriptedNode | None = None) -> None:
    async def main() -> None:
        async with running_plant(node, runtimes=False) as plant:
            await test(plant)

    run_virtual(main())


def run_for_ever(pod: Object, run: int) -> int:
    return -1


def has(kind: str) -> Callable[[Object], bool]:
    return lambda job: is_true(list_conditions(job), kind)


async def wait_until_gone(plant: Plant, name: str = "j") -> None:
    async with plant.client.watch(JOBS, "default", WatchOptions(field_selector=f"metadata.name={name}")) as events:
        async for event in events:
            if event.type == "DELETED":
                return


def test_ke_06_indexed_pods_have_their_index_and_its_host_name() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(4)))
        job = await plant.wait_for(JOBS, "j", has("Complete"))
        assert job["status"]["completedIndexes"] == "0-3"
        pods = await plant.list_all(PODS)
        assert sorted(pod["spec"]["hostname"] for pod in pods) == ["j-0", "j-1", "j-2", "j-3"]
        key = "batch.kubernetes.io/job-completion-index"
        assert sorted(pod["metadata"]["labels"][key] for pod in pods) == ["0", "1", "2", "3"]
        events = [event for event in await plant.list_all(EVENTS) if event["involvedObject"]["kind"] == "Job"]
        texts = [(event["reason"], event["message"]) for event in events]
        made = [("SuccessfulCreate", f"Created pod: {pod['metadata']['name']}") for pod in pods]
        assert sorted(texts) == sorted([*made, ("Completed", "Job completed")])

    run(test)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_ke_09_deleting_a_job_removes_its_pods(propagation: str) -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(2)))
        await plant.wait_for(JOBS, "j", lambda job: job.get("status", {}).get("ready") == 2)
        await plant.client.delete(JOBS, "j", "default", DeleteOptions(propagation=propagation))
        while await plant.list_all(PODS):
            await plant.cluster.clock.sleep(0.1)
        await plant.settle()
        assert await plant.list_all(JOBS) == []

    run(test, ScriptedNode(run_for_ever))


def test_ke_09_a_job_deleted_without_a_word_leaves_its_pods() -> None:
    """Upstream's default for Jobs."""

    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(1)))
        await plant.wait_for(JOBS, "j", has("Complete"))
        await plant.client.delete(JOBS, "j", "default", DeleteOptions())
        await plant.settle()
        (pod,) = await plant.list_all(PODS)
        assert "ownerReferences" not in pod["metadata"]

    run(test)


def test_ke_12_an_orphan_is_adopted_and_a_stranger_released() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, make_job(parallelism=2, completions=2)))
        job = await plant.wait_for(JOBS, "j", lambda job: job.get("status", {}).get("ready") == 2)
        uid = job["metadata"]["uid"]
        name = (await plant.list_all(PODS))[0]["metadata"]["name"]
        await plant.client.patch(PODS, name, PatchType.MERGE, {"metadata": {"ownerReferences": None}}, "default")
        await plant.wait_for(PODS, name, lambda pod: ObjectModel(pod).is_owned_by(uid))
        await plant.client.patch(PODS, name, PatchType.MERGE, {"metadata": {"labels": None}}, "default")
        await plant.wait_for(PODS, name, lambda pod: not ObjectModel(pod).is_owned_by(uid))
        job = await plant.wait_for(JOBS, "j", lambda job: job["status"].get("active") == 2)
        assert "failed" not in job["status"]
        await plant.settle()
        assert len(await plant.list_all(PODS)) == 3

    run(test, ScriptedNode(run_for_ever))


def test_ke_10_failed_pods_are_replaced_until_the_job_completes() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(2)))
        job = await plant.wait_for(JOBS, "j", has("Complete"))
        assert (job["status"]["succeeded"], job["status"]["failed"]) == (2, 2)

    run(test, ScriptedNode(lambda pod, run: 1 if run == 0 else 0))


def test_ke_16_a_job_of_another_controller_is_untouched() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, make_job(managedBy="acme.io/other")))
        await plant.settle()
        (job,) = await plant.list_all(JOBS)
        assert (job["status"], await plant.list_all(PODS)) == ({}, [])

    run(test)


def test_ki_02_the_pauses_double_from_the_end_of_the_last_pod() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(1, backoffLimit=3)))
        await plant.wait_for(JOBS, "j", has("Failed"))
        pods = sorted(await plant.list_all(PODS), key=lambda pod: pod["metadata"]["creationTimestamp"])
        ends = [pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] for pod in pods]
        births = [pod["metadata"]["creationTimestamp"] for pod in pods]
        pauses = [parse_time(birth) - parse_time(end) for end, birth in zip(ends, births[1:], strict=False)]
        for pause, want in zip(pauses, (10, 20, 40), strict=True):
            assert timedelta(seconds=want) <= pause < timedelta(seconds=2 * want)

    run(test, ScriptedNode(lambda pod, run: 1))


def test_ki_08_a_job_deleted_while_no_controller_runs_leaves_nothing() -> None:
    """Pods have no finalizers that somebody would have to remove."""

    async def main() -> None:
        async with running_cluster() as cluster:
            await cluster.client.create(JOBS, indexed(2), "default")
            plan = CONTROLLER.reconcile(cluster.view, Request("default", "j"), Now(cluster.clock.now()), ())
            cluster.client.apply_atomically(plan.all_writes, field_manager="job")
            pods = (await cluster.client.list(PODS, "default")).items
            assert [pod["metadata"].get("finalizers") for pod in pods] == [None, None]
            await cluster.client.delete(JOBS, "j", "default", DeleteOptions(propagation="Background"))
            await cluster.settle()
            assert (await cluster.client.list(PODS, "default")).items == []

    run_virtual(main())


def test_kt_01_a_job_goes_with_its_pods_when_its_time_is_over() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(1, ttlSecondsAfterFinished=10)))
        job = await plant.wait_for(JOBS, "j", has("Complete"))
        condition = find_condition(list_conditions(job), "Complete")
        assert condition is not None
        await wait_until_gone(plant)
        assert plant.cluster.clock.now() >= parse_time(condition["lastTransitionTime"]) + timedelta(seconds=10)
        await plant.settle()
        assert await plant.list_all(PODS) == []

    run(test)


def test_kt_01_a_finalizer_holds_a_job_whose_time_is_over() -> None:
    async def test(plant: Plant) -> None:
        job = indexed(1, ttlSecondsAfterFinished=10)
        job["metadata"]["finalizers"] = ["example.com/keep"]
        await plant.apply((JOBS, job))
        await plant.wait_for(JOBS, "j", lambda job: "deletionTimestamp" in job["metadata"])
        await plant.cluster.clock.sleep(60)
        await plant.client.get(JOBS, "j", "default")
        await plant.client.patch(JOBS, "j", PatchType.MERGE, {"metadata": {"finalizers": None}}, "default")
        await plant.settle()
        with pytest.raises(NotFound):
            await plant.client.get(JOBS, "j", "default")

    run(test)


def test_kt_01_a_longer_time_set_in_between_wins() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(1, ttlSecondsAfterFinished=10)))
        await plant.wait_for(JOBS, "j", has("Complete"))
        await plant.cluster.clock.sleep(9)
        patch = {"spec": {"ttlSecondsAfterFinished": 100}}
        await plant.client.patch(JOBS, "j", PatchType.MERGE, patch, "default")
        await plant.cluster.clock.sleep(60)
        assert len(await plant.list_all(JOBS)) == 1
        await wait_until_gone(plant)

    run(test)


def test_a_pod_removed_by_force_counts_and_is_replaced() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(2)))
        await plant.wait_for(JOBS, "j", lambda job: job.get("status", {}).get("ready") == 2)
        name = (await plant.list_all(PODS))[0]["metadata"]["name"]
        await plant.client.delete(PODS, name, "default", DeleteOptions(grace_seconds=0))
        job = await plant.wait_for(JOBS, "j", lambda job: job["status"].get("failed"))
        assert (job["status"]["failed"], job["status"]["active"]) == (1, 1)
        await plant.wait_for(JOBS, "j", lambda job: job["status"].get("ready") == 2)
        assert sorted(Pod(pod).index or 0 for pod in await plant.list_all(PODS)) == [0, 1]

    run(test, ScriptedNode(run_for_ever))


def test_a_job_of_two_thousand_indexes_completes() -> None:
    async def test(plant: Plant) -> None:
        await plant.apply((JOBS, indexed(2000)))
        job = await plant.wait_for(JOBS, "j", has("Complete"))
        assert job["status"]["completedIndexes"] == "0-1999"

    run(test)


QUOTA: Object = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q"},
    "spec": {"hard": {"pods": "1"}},
}
QUOTAS = GVR("", "v1", "resourcequotas")


def test_pods_that_have_ended_make_room_in_a_quota() -> None:
    async def test(plant: Plant) -> None:
        await plant.client.create(QUOTAS, QUOTA, "default")
        await plant.apply((JOBS, make_job(completions=3, parallelism=1)))
        job = await plant.wait_for(JOBS, "j", has("Complete"))
        assert job["status"]["succeeded"] == 3

    run(test)


def test_a_job_that_a_quota_does_not_let_in_says_so_and_goes_on_when_there_is_room() -> None:
    async def test(plant: Plant) -> None:
        await plant.client.create(QUOTAS, QUOTA, "default")
        await plant.apply((JOBS, indexed(2)))
        job = await plant.wait_for(JOBS, "j", lambda job: WAITING in job["metadata"].get("annotations", {}))
        assert "exceeded quota: q" in job["metadata"]["annotations"][WAITING]
        await plant.settle()
        assert "FailedCreate" in await plant.list_event_reasons()
        assert await plant.list_all(PODS) == []
        await plant.client.patch(QUOTAS, "q", PatchType.MERGE, {"spec": {"hard": {"pods": "2"}}}, "default")
        job = await plant.wait_for(JOBS, "j", has("Complete"))
        assert WAITING not in job["metadata"].get("annotations", {})

    run(test)


def test_the_account_that_pods_run_under_comes_back() -> None:
    accounts = GVR("", "v1", "serviceaccounts")

    async def test(plant: Plant) -> None:
        await plant.client.delete(accounts, "default", "default")
        await plant.settle()
        await plant.apply((JOBS, indexed(1)))
        await plant.wait_for(JOBS, "j", has("Complete"))

    run(test)
