"""Stalls with all controllers at work, in virtual time: a program that reports its steps and then stops doing so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.flow.plant import CHAIN, Plant, ScriptedNode, running_plant
from tests.flow.stage import make_trainjob
from tests.flow.test_job_flow import run_for_ever
from trainmaster.api.conditions import find_condition, is_true, list_conditions
from trainmaster.api.labels import FIRST_ATTEMPT, ON_STALL
from trainmaster.api.lifecycle.stalls import StallRules
from trainmaster.api.meta import Object
from trainmaster.api.patches import merge
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.api.status import Invalid, NotFound
from trainmaster.api.training import reports
from trainmaster.api.training.pace import PaceMeter
from trainmaster.client.contract import PatchType
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.trainjob.reconciler import CONTROLLER as TRAINJOB
from trainmaster.controllers.trainjob.reconciler import build_controller
from trainmaster.jobs.control import ask_for_attempt
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.attendance import Attendance
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import Store
from trainmaster.store.memory import MemoryStore
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.flow

NAME = "first"


class Later:
    """The clock of the cluster, which exists only when the controllers do."""

    clock: Clock | None = None
    attendance: Attendance | None = None

    def count(self) -> float:
        return 0.0 if self.attendance is None else self.attendance.count_seconds()


@dataclass
class Training:
    plant: Plant
    meter: PaceMeter

    @property
    def clock(self) -> VirtualClock:
        assert isinstance(self.plant.cluster.clock, VirtualClock)
        return self.plant.cluster.clock

    async def start(self, policy: str = "", *, restarts: int | None = None) -> None:
        trainjob = make_trainjob(nodes=1)
        if policy:
            trainjob["metadata"]["annotations"] = {ON_STALL: policy}
        if restarts is not None:
            await self.plant.apply((CLUSTER_TRAINING_RUNTIMES, await self.build_bounded(restarts)))
            trainjob["spec"]["runtimeRef"]["name"] = "bounded"
        await self.plant.apply((TRAIN_JOBS, trainjob))
        await self.wait_for_rank()

    async def build_bounded(self, restarts: int) -> Object:
        base = await self.plant.client.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
        runtime = merge.apply(base, {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": restarts}}}}})
        return {**runtime, "metadata": {"name": "bounded", "labels": base["metadata"].get("labels", {})}}

    async def wait_for_rank(self, attempt: int = 0) -> None:
        def runs(pod: Object) -> bool:
            is_of = int(pod["metadata"].get("annotations", {}).get(FIRST_ATTEMPT, 0)) == attempt
            return is_of and (pod.get("status") or {}).get("phase") == "Running"

        while not any(map(runs, await self.plant.list_all(PODS))):
            await self.clock.sleep(0.5)
        await self.plant.settle()

    async def train(self, steps: int, *, first: int = 1) -> None:
        for step in range(first, first + steps):
            await self.clock.sleep(5)
            await self.report(step)

    async def report(self, step: int) -> None:
        """As the endpoint for reports does."""
        trainjob, client = await self.get(), self.plant.client
        jobset = await client.get(JOB_SETS, NAME, "default")
        pod = next(one for one in await self.plant.list_all(PODS) if "deletionTimestamp" not in one["metadata"])
        report = {
            "metrics": [{"name": reports.STEP, "value": str(step)}],
            "lastUpdatedTime": format_time(self.clock.now()),
        }
        began = reports.find_beginning(jobset, reports.read_reporter(pod, None))
        wanted = reports.decide(report, trainjob, self.clock.now(), began)
        assert wanted is not None
        start = reports.find_program_start(began, reports.read_reporter(pod, None))
        patch = reports.build_patch(wanted, self.meter.measure(trainjob, wanted, start))
        await client.patch(TRAIN_JOBS, NAME, PatchType.MERGE, patch, "default", subresource="status")

    async def get(self) -> Object:
        return await self.plant.client.get(TRAIN_JOBS, NAME, "default")

    async def get_status(self) -> Object:
        found: Object = (await self.get()).get("status") or {}
        return found

    async def edit(self, patch: Object) -> None:
        await self.plant.client.patch(TRAIN_JOBS, NAME, PatchType.MERGE, patch, "default")

    async def list_reasons(self) -> list[str]:
        """Of events about stalls."""
        await self.plant.settle()
        return [one for one in await self.plant.list_event_reasons() if one in ("Stalled", "Advancing")]

    async def find_jobset(self) -> JobSet | None:
        try:
            return JobSet(await self.plant.client.get(JOB_SETS, NAME, "default"))
        except NotFound:
            return None


@asynccontextmanager
async def training(store: Store | None = None) -> AsyncIterator[Training]:
    """`store`: of a server that has ended."""
    later = Later()
    controller = build_controller(FrameworkContext(stalls=StallRules(count_watched=later.count)))
    chain = tuple(controller if one is TRAINJOB else one for one in CHAIN)
    async with running_plant(ScriptedNode(run_for_ever), controllers=chain, store=store) as plant:
        clock = plant.cluster.clock
        later.attendance = Attendance(clock)
        async with Scope("attendance") as scope:
            scope.spawn_forever(later.attendance.run(), name="attendance")
            yield Training(plant, PaceMeter(clock))


def play(test: Callable[[Training], Awaitable[None]]) -> None:
    async def main() -> None:
        async with training() as job:
            await test(job)

    run_virtual(main(), limit=100_000)


def test_a_stall_is_seen_told_once_and_over_with_the_next_step() -> None:
    async def act(job: Training) -> None:
        await job.start()
        await job.train(5)
        await job.clock.sleep(290)
        assert "stalled" not in await job.get_status()
        await job.clock.sleep(20)
        stalled = (await job.get_status())["stalled"]
        assert stalled["position"] == "5"
        assert TrainJob(await job.get()).state.word == "Running"
        await job.clock.sleep(3600)
        assert await job.list_reasons() == ["Stalled"]
        await job.report(6)
        await job.plant.settle()
        assert "stalled" not in await job.get_status()
        assert await job.list_reasons() == ["Stalled", "Advancing"]

    play(act)


def test_a_stalled_job_whose_policy_is_to_fail_fails_and_nothing_of_it_is_left_running() -> None:
    async def act(job: Training) -> None:
        await job.start("fail")
        await job.train(5)
        failed = await job.plant.wait_for(TRAIN_JOBS, NAME, lambda one: is_true(list_conditions(one), "Failed"))
        condition = find_condition(list_conditions(failed), "Failed")
        assert condition is not None
        assert condition["reason"] == "Stalled"
        assert "no step has come after step 5" in condition["message"]
        await job.clock.sleep(60)
        assert await job.find_jobset() is None
        assert await job.plant.list_all(PODS) == []
        assert "stalled" not in await job.get_status()

    play(act)


def test_a_stalled_job_whose_policy_is_to_restart_has_one_gang_at_a_time() -> None:
    async def act(job: Training) -> None:
        await job.start("restart", restarts=2)
        most = 0

        async def count() -> None:
            nonlocal most
            while True:
                most = max(most, len(await job.plant.list_all(PODS)))
                await job.clock.sleep(0.1)

        async with Scope("count") as scope:
            scope.spawn_forever(count(), name="count")
            await job.train(5)
            for attempt in (1, 2):
                await job.wait_for_rank(attempt)
                assert (await job.get_status())["stalls"]["restarts"] == attempt
                await job.train(2, first=4)
            failed = await job.plant.wait_for(TRAIN_JOBS, NAME, lambda one: is_true(list_conditions(one), "Failed"))
        condition = find_condition(list_conditions(failed), "Failed")
        assert condition is not None
        assert "2 restarts because of that did not help, and maxRestarts is 2" in condition["message"]
        assert most == 1

    play(act)


def test_a_restart_by_a_user_during_a_stall_is_the_next_attempt() -> None:
    async def act(job: Training) -> None:
        await job.start()
        await job.train(5)
        await job.clock.sleep(400)
        trainjob = TrainJob(await job.get())
        assert await ask_for_attempt(job.plant.client, trainjob, await job.find_jobset()) == 1
        await job.wait_for_rank(1)
        await job.train(3, first=6)
        assert "stalled" not in await job.get_status()
        await job.edit({"metadata": {"annotations": {ON_STALL: "restart"}}})
        await job.clock.sleep(400)
        await job.wait_for_rank(2)

    play(act)


def test_a_suspended_job_does_not_stall_and_its_next_start_is_waited_for() -> None:
    async def act(job: Training) -> None:
        await job.start("fail")
        await job.train(5)
        await job.edit({"spec": {"suspend": True}})
        await job.clock.sleep(36_000)
        await job.edit({"spec": {"suspend": False}})
        await job.clock.sleep(1)
        await job.wait_for_rank()
        await job.clock.sleep(200)
        await job.train(5, first=6)
        assert await job.list_reasons() == []

    play(act)


@pytest.mark.parametrize("seconds", [86_400.0 * 400, -86_400.0 * 400])
def test_a_jump_of_the_wall_clock_makes_no_stall_and_hides_none(seconds: float) -> None:
    async def act(job: Training) -> None:
        await job.start()
        await job.train(5)
        await job.plant.settle()
        job.clock.step_wall(seconds)
        await job.clock.sleep(290)
        assert "stalled" not in await job.get_status()
        await job.clock.sleep(20)
        assert "stalled" in await job.get_status()

    play(act)


@pytest.mark.parametrize("policy", ["observe", "fail", "restart"])
def test_a_server_that_comes_back_gives_the_job_its_full_time(policy: str) -> None:
    async def main() -> None:
        store = MemoryStore()
        async with training(store) as job:
            await job.start(policy, restarts=2)
            await job.train(5)
            now = job.clock.now()
        async with training(store) as job:
            job.clock.step_wall((now - job.clock.now()).total_seconds() + 36_000)
            await job.clock.sleep(280)
            assert "stalled" not in await job.get_status()
            assert await job.list_reasons() == []
            await job.clock.sleep(40)
            assert await job.list_reasons() == ["Stalled"]

    run_virtual(main(), limit=100_000)


@pytest.mark.parametrize("policy", ["restrat", "", "Fail", "restart,fail"])
def test_a_misspelt_policy_is_refused_with_what_there_is(policy: str) -> None:
    async def act(job: Training) -> None:
        trainjob = make_trainjob(nodes=1)
        trainjob["metadata"]["annotations"] = {ON_STALL: policy}
        with pytest.raises(Invalid, match="must be observe, restart or fail"):
            await job.plant.apply((TRAIN_JOBS, trainjob))

    play(act)


def test_a_job_that_may_not_be_restarted_fails_at_its_first_stall() -> None:
    async def act(job: Training) -> None:
        await job.start("restart", restarts=0)
        await job.train(5)
        failed = await job.plant.wait_for(TRAIN_JOBS, NAME, lambda one: is_true(list_conditions(one), "Failed"))
        condition: Any = find_condition(list_conditions(failed), "Failed")
        assert condition["message"].count("maxRestarts is 0") == 1

    play(act)


def test_deleting_a_stalled_job_leaves_nothing() -> None:
    async def act(job: Training) -> None:
        await job.start("restart", restarts=3)
        await job.train(5)
        await job.clock.sleep(299)
        await job.plant.client.delete(TRAIN_JOBS, NAME, "default")
        await job.clock.sleep(3600)
        for gvr in (TRAIN_JOBS, JOB_SETS, PODS):
            assert await job.plant.list_all(gvr) == []
        await asyncio.sleep(0)

    play(act)
