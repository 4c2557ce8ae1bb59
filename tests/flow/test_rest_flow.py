"""The REST services on a whole system in virtual time: what a create makes, what a crash leaves, what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from trainmaster.api.labels import SCRIPT_OF, USER
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, NAMESPACES, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import PatchType, WriteOptions
from trainmaster.jobs.compose.trainjob import OVERRIDES, PATCHES
from trainmaster.kit import failpoints
from trainmaster.kit.failpoints import Failpoint
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.creation.guide_jobs import GuideJobs
from trainmaster.rest.services.creation.guide_request import GuideRequest
from trainmaster.rest.services.creation.server_fields import ServerFields
from trainmaster.rest.services.creation.sweeping import LEFT_SECONDS, NET_SECONDS, Sweeper
from trainmaster.rest.services.creation.templates import Templates
from trainmaster.rest.services.deleting import delete_job
from trainmaster.rest.services.job_reader import JobReader
from trainmaster.rest.services.records import NoRecords
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

ORDER = GuideRequest("alice", "default", "pytorch", "print(1)\n", 2, 0, "100m", "64Mi")
STEPS = ("system_made", "latest_made", "copy_made", "trainjob_made", "owned")


@dataclass
class Desk:
    """The services of one process; a crash is another desk on the same plant."""

    plant: Plant
    maker: GuideJobs
    sweeper: Sweeper
    reader: JobReader

    async def create(self, order: GuideRequest = ORDER) -> str:
        made = await self.maker.create(self.plant.client, order)
        return str(made["metadata"]["name"])

    async def find(self, gvr: GVR, name: str) -> Object | None:
        try:
            return await self.plant.client.get(gvr, name, "default")
        except NotFound:
            return None

    async def list_names(self, gvr: GVR) -> set[str]:
        return {obj["metadata"]["name"] for obj in await self.plant.list_all(gvr)}

    async def list_scripts(self) -> set[str]:
        return {
            obj["metadata"]["name"]
            for obj in await self.plant.list_all(CONFIG_MAPS)
            if SCRIPT_OF in (obj["metadata"].get("labels") or {})
        }


def build_desk(plant: Plant, fields: frozenset[str] = frozenset({OVERRIDES, PATCHES})) -> Desk:
    clock = plant.cluster.clock
    sweeper = Sweeper(plant.client, clock)

    async def read_fields() -> frozenset[str]:
        return fields

    maker = GuideJobs(Templates(), ServerFields(read_fields, clock), clock, remind=sweeper.remind)
    return Desk(plant, maker, sweeper, JobReader(NoRecords(), clock))


def play(test: Callable[[Desk], Awaitable[None]], script: Callable[[Object, int], int] | None = None) -> None:
    async def main() -> None:
        node = ScriptedNode() if script is None else ScriptedNode(script)
        async with running_plant(node) as plant:
            await test(build_desk(plant))

    run_virtual(main(), limit=86_400)


def run_on(pod: Object, run: int) -> int:
    return -1


# What a create makes


def test_a_create_makes_the_guides_objects() -> None:
    async def test(desk: Desk) -> None:
        name = await desk.create()
        assert re.fullmatch(r"alice-job-\d{14}", name)
        job = await desk.find(TRAIN_JOBS, name)
        latest = await desk.find(CONFIG_MAPS, "alice-train-script")
        copy = await desk.find(CONFIG_MAPS, f"{name}-script")
        system = await desk.find(CONFIG_MAPS, "pytorch-pet-setup")
        assert job and latest and copy and system
        assert latest["data"] == copy["data"] == {"train.py": ORDER.code}
        assert (copy["immutable"], latest.get("immutable")) == (True, None)
        (owner,) = copy["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("TrainJob", job["metadata"]["uid"])
        spec = job["spec"]
        assert spec["trainer"]["numNodes"] == 2
        amounts = {"cpu": "100m", "memory": "64Mi"}
        assert spec["trainer"]["resourcesPerNode"] == {"requests": amounts, "limits": amounts}
        assert not spec.get("suspend")
        assert job["metadata"]["labels"][USER] == "alice"
        await desk.plant.wait_for(TRAIN_JOBS, name, lambda job: has_ended(job))
        state = await desk.reader.get_state(desk.plant.client, "default", name)
        assert (state.state, state.completed_at is None) == ("Complete", False)

    play(test)


def has_ended(job: Object) -> bool:
    return any(one["type"] in ("Complete", "Failed") for one in (job.get("status") or {}).get("conditions", ()))


def test_pods_mount_their_own_code_and_the_shared_script() -> None:
    async def test(desk: Desk) -> None:
        first = await desk.create()
        await desk.create(replace(ORDER, code="print(2)\n"))
        await desk.plant.settle()
        pods = [pod for pod in await desk.plant.list_all(PODS) if pod["metadata"]["name"].startswith(first)]
        assert len(pods) == 2
        for pod in pods:
            assert re.fullmatch(rf"{first}-node-0-[01]-[a-z0-9]{{5}}", pod["metadata"]["name"])
            mounts = {mount["mountPath"]: mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
            volumes = {volume["name"]: volume.get("configMap", {}).get("name") for volume in pod["spec"]["volumes"]}
            assert volumes[mounts["/workspace/scripts"]] == f"{first}-script"
            assert volumes[mounts["/shared"]] == "pytorch-pet-setup"
        copy = await desk.find(CONFIG_MAPS, f"{first}-script")
        latest = await desk.find(CONFIG_MAPS, "alice-train-script")
        assert copy and copy["data"]["train.py"] == "print(1)\n"
        assert latest and latest["data"]["train.py"] == "print(2)\n"

    play(test, run_on)


def test_a_gpu_job_asks_for_gpus_and_tensorflow_for_its_number_of_workers() -> None:
    async def test(desk: Desk) -> None:
        name = await desk.create(replace(ORDER, framework="tensorflow", gpu_per_node=4, cpu_per_node=None))
        job = await desk.find(TRAIN_JOBS, name)
        assert job is not None
        trainer = job["spec"]["trainer"]
        amounts = {"memory": "64Mi", "nvidia.com/gpu": "4"}
        assert {key: str(value) for key, value in trainer["resourcesPerNode"]["limits"].items()} == amounts
        assert trainer["env"] == [{"name": "PET_NNODES", "value": "2"}]
        assert job["spec"]["runtimeRef"]["name"] == "tensorflow-distributed"

    play(test)


def test_two_in_one_second_both_succeed() -> None:
    async def test(desk: Desk) -> None:
        other = build_desk(desk.plant)
        names = [await desk.create(), await other.create(), await desk.create(), await other.create()]
        assert len(set(names)) == 4
        assert await desk.list_names(TRAIN_JOBS) == set(names)
        assert all(re.fullmatch(r"alice-job-\d{14}", name) for name in names)

    play(test)


def test_a_name_that_a_trainjob_of_somebody_else_has_is_left_alone() -> None:
    async def test(desk: Desk) -> None:
        name = await desk.create()
        await desk.plant.client.delete(CONFIG_MAPS, f"{name}-script", "default")
        other = build_desk(desk.plant)
        second = await other.create()
        assert second != name
        assert await other.list_scripts() == {f"{second}-script"}

    play(test)


def test_a_server_without_overrides_gets_patches_with_the_same_pods() -> None:
    async def test(desk: Desk) -> None:
        modern = build_desk(desk.plant, frozenset({PATCHES}))
        name = await modern.create()
        job = await desk.find(TRAIN_JOBS, name)
        assert job is not None
        assert OVERRIDES not in job["spec"] and PATCHES in job["spec"]
        await desk.plant.settle()
        for pod in await desk.plant.list_all(PODS):
            paths = {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
            assert {"/shared", "/workspace/scripts"} <= paths

    play(test, run_on)


def test_a_system_config_map_follows_the_template_until_somebody_edits_it() -> None:
    async def test(desk: Desk) -> None:
        client, name = desk.plant.client, "pytorch-pet-setup"
        await desk.create()
        made = await client.get(CONFIG_MAPS, name, "default")
        await desk.create()
        again = await client.get(CONFIG_MAPS, name, "default")
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        edited = {"data": {"setup_pytorch_env.sh": "# mine\n"}}
        await client.patch(CONFIG_MAPS, name, PatchType.MERGE, edited, "default")
        await desk.create()
        kept = await client.get(CONFIG_MAPS, name, "default")
        assert kept["data"] == edited["data"]

    play(test)


# Refusals


@pytest.mark.parametrize("order", [replace(ORDER, framework="mxnet"), replace(ORDER, code="print(")])
def test_an_order_that_is_wrong_makes_nothing(order: GuideRequest) -> None:
    async def test(desk: Desk) -> None:
        before = await desk.list_names(CONFIG_MAPS)
        with pytest.raises(Problem) as refused:
            await desk.create(order)
        assert refused.value.status == 422
        assert await desk.list_names(CONFIG_MAPS) == before

    play(test)


def test_an_unknown_framework_is_answered_with_those_that_there_are() -> None:
    async def test(desk: Desk) -> None:
        with pytest.raises(Problem, match="there are pytorch, tensorflow"):
            await desk.create(replace(ORDER, framework="mxnet"))

    play(test)


def test_a_trainjob_that_is_refused_takes_its_copy_along() -> None:
    async def test(desk: Desk) -> None:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/trainjobs.trainer.kubeflow.org": "1"}}}
        await desk.plant.client.create(GVR("", "v1", "resourcequotas"), quota, "default")
        await desk.plant.settle()
        first = await desk.create()
        with pytest.raises(Problem, match="exceeded quota") as refused:
            await desk.create()
        assert refused.value.status == 403
        assert await desk.list_scripts() == {f"{first}-script"}

    play(test)


def test_a_runtime_that_is_not_installed_is_told() -> None:
    async def test(desk: Desk) -> None:
        await desk.plant.client.delete(CLUSTER_TRAINING_RUNTIMES, "pytorch-simple")
        with pytest.raises(Problem, match="pytorch-simple") as refused:
            await desk.create()
        assert refused.value.status == 422
        assert refused.value.hint == "ask an administrator to install the runtime of this framework"
        assert await desk.list_scripts() == set()

    play(test)


def test_a_namespace_that_does_not_exist_is_told() -> None:
    async def test(desk: Desk) -> None:
        with pytest.raises(StatusError, match='namespaces "nowhere" not found'):
            await desk.create(replace(ORDER, namespace="nowhere"))

    play(test)


# Crashes


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_after_any_step_leaves_nothing_half_after_ten_minutes(step: str) -> None:
    async def test(desk: Desk) -> None:
        with failpoints.calling(f"rest.{step}", crash), pytest.raises(Failpoint):
            await desk.create()
        again = build_desk(desk.plant)
        before = await again.list_scripts()
        assert await again.sweeper.sweep() > 0
        assert await again.list_scripts() == before
        await desk.plant.cluster.clock.sleep(LEFT_SECONDS + 1)
        await again.sweeper.sweep()
        jobs = await again.list_names(TRAIN_JOBS)
        assert len(jobs) == (1 if step in ("trainjob_made", "owned") else 0)
        assert await again.list_scripts() == {f"{name}-script" for name in jobs}
        for name in jobs:
            copy = await again.find(CONFIG_MAPS, f"{name}-script")
            assert copy is not None and copy["metadata"]["ownerReferences"]
        # The user tries again, and it goes through.
        name = await again.create()
        await desk.plant.client.delete(TRAIN_JOBS, name, "default")
        await desk.plant.settle()
        assert f"{name}-script" not in await again.list_scripts()

    play(test)


def crash() -> None:
    raise Failpoint("the process died")


def test_the_sweep_waits_until_the_first_is_due_and_wakes_when_reminded() -> None:
    async def test(desk: Desk) -> None:
        assert await desk.sweeper.sweep() == NET_SECONDS
        with failpoints.calling("rest.copy_made", crash), pytest.raises(Failpoint):
            await desk.create()
        left = await desk.sweeper.sweep()
        assert LEFT_SECONDS - 2 <= left <= LEFT_SECONDS
        await desk.plant.cluster.clock.sleep(300)
        assert abs(await desk.sweeper.sweep() - (left - 300)) < 2

    play(test)


def test_an_owner_that_cannot_be_written_is_made_up_for_by_the_sweep() -> None:
    async def test(desk: Desk) -> None:
        class Deaf:
            """Refuses the last step."""

            def __getattr__(self, name: str) -> Any:
                return getattr(desk.plant.client, name)

            async def patch(self, gvr: GVR, name: str, *rest: Any, options: WriteOptions = WriteOptions()) -> Object:  # noqa: B008
                if name.endswith("-script") and "-job-" in name:
                    raise StatusError(503, "ServiceUnavailable", "not now")
                return await desk.plant.client.patch(gvr, name, *rest, options=options)

        made = await desk.maker.create(Deaf(), ORDER)  # type: ignore[arg-type]
        name = made["metadata"]["name"]
        copy = await desk.find(CONFIG_MAPS, f"{name}-script")
        assert copy is not None and "ownerReferences" not in copy["metadata"]
        await desk.plant.cluster.clock.sleep(LEFT_SECONDS + 1)
        await desk.sweeper.sweep()
        copy = await desk.find(CONFIG_MAPS, f"{name}-script")
        assert copy is not None and copy["metadata"]["ownerReferences"]

    play(test)


# Reading and deleting


def test_what_has_not_ended_is_running_and_says_why_it_waits() -> None:
    async def test(desk: Desk) -> None:
        client = desk.plant.client
        name = await desk.create(replace(ORDER, gpu_per_node=8))
        await desk.plant.settle()
        state = await desk.reader.get_state(client, "default", name)
        assert state.state == "Running"
        assert state.message.startswith("Pending: ")
        with pytest.raises(Problem) as early:
            await desk.reader.get_log(client, "default", name, 0)
        assert (early.value.status, early.value.kind) == (409, "not-started")
        await client.patch(TRAIN_JOBS, name, PatchType.MERGE, {"spec": {"suspend": True}}, "default")
        await desk.plant.settle()
        state = await desk.reader.get_state(client, "default", name)
        assert (state.state, state.message.partition(":")[0]) == ("Running", "Suspended")

    play(test)


def test_a_failed_job_says_why() -> None:
    async def test(desk: Desk) -> None:
        name = await desk.create()
        await desk.plant.wait_for(TRAIN_JOBS, name, has_ended)
        state = await desk.reader.get_state(desk.plant.client, "default", name)
        assert state.state == "Failed"
        assert "exit code 3" in state.message or "ValueError" in state.message

    play(test, lambda pod, run: 3)


def test_a_worker_out_of_range_is_told_how_many_there_are() -> None:
    async def test(desk: Desk) -> None:
        name = await desk.create()
        with pytest.raises(Problem, match="there is no worker 2; this job has 2, 0 to 1"):
            await desk.reader.get_log(desk.plant.client, "default", name, 2)

    play(test)


def test_deleting_twice_is_no_error_and_keeps_the_system_config_map() -> None:
    async def test(desk: Desk) -> None:
        client = desk.plant.client
        first, second = await desk.create(), await desk.create()
        done = await delete_job(client, desk.reader, "default", first, with_user_script=True)
        assert f"alice-train-script stays: {second} has not ended" in done.message
        again = await delete_job(client, desk.reader, "default", first)
        assert "nothing was deleted" in again.message
        done = await delete_job(client, desk.reader, "default", second, with_user_script=True)
        assert "alice-train-script is deleted" in done.message
        await desk.plant.cluster.clock.sleep(60)
        names = await desk.list_names(CONFIG_MAPS)
        assert "pytorch-pet-setup" in names
        assert not {f"{first}-script", f"{second}-script", "alice-train-script"} & names
        assert await desk.list_names(PODS) == set()

    play(test, run_on)


def test_a_job_that_nobody_knows_is_not_found() -> None:
    async def test(desk: Desk) -> None:
        await desk.plant.client.create(NAMESPACES, {"metadata": {"name": "other"}})
        name = await desk.create()
        with pytest.raises(Problem) as missing:
            await desk.reader.get_state(desk.plant.client, "other", name)
        assert missing.value.status == 404

    play(test)
