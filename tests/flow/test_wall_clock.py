"""Somebody sets the wall clock, by an hour or by seconds, while a span runs: it ends exactly when it would have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from tests.flow.stage import make_trainjob
from tests.flow.test_job_flow import has, indexed, run_for_ever
from tests.unit.controllers.jobset.stage import make_jobset, make_replicated
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import EVENTS, JOB_SETS, JOBS, TRAIN_JOBS
from trainmaster.client.contract import WatchOptions
from trainmaster.kit.clock import parse_time
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.flow

STEPS = (0.0, -3600.0, -5.0, 5.0, 3600.0)
BEGUN = 10.0
"""Seconds after which the clock is set; every span below has begun by then, and none is over."""


async def wait_until_gone(plant: Plant, gvr: GVR, name: str) -> None:
    async with plant.client.watch(gvr, "default", WatchOptions(field_selector=f"metadata.name={name}")) as events:
        async for event in events:
            if event.type == "DELETED":
                return


async def see_the_ttl_of_a_job(plant: Plant) -> None:
    await plant.apply((JOBS, indexed(1, ttlSecondsAfterFinished=100)))
    await wait_until_gone(plant, JOBS, "j")


async def see_the_ttl_of_a_jobset(plant: Plant) -> None:
    await plant.apply((JOB_SETS, make_jobset(make_replicated("w", 1), ttlSecondsAfterFinished=100)))
    await wait_until_gone(plant, JOB_SETS, "js")


async def see_the_deadline_of_a_job(plant: Plant) -> None:
    plant.node.script = run_for_ever
    await plant.apply((JOBS, indexed(1, activeDeadlineSeconds=100)))
    await plant.wait_for(JOBS, "j", has("Failed"))


async def see_the_deadline_of_a_trainjob(plant: Plant) -> None:
    plant.node.script = run_for_ever
    await plant.apply((TRAIN_JOBS, make_trainjob(runtime="torch-distributed", activeDeadlineSeconds=100)))
    await plant.wait_for(TRAIN_JOBS, "first", lambda job: is_true(list_conditions(job), "Failed"))


async def see_the_pause_before_a_pod_is_replaced(plant: Plant) -> None:
    plant.node.script = lambda pod, run: 1 if run < 2 else 0
    await plant.apply((JOBS, indexed(1)))
    await plant.wait_for(JOBS, "j", has("Complete"))


async def see_the_pause_before_a_gang_restarts(plant: Plant) -> None:
    plant.node.script = lambda pod, run: 1
    jobset = make_jobset(make_replicated("w", 1, backoffLimit=0), failurePolicy={"maxRestarts": 4})
    await plant.apply((JOB_SETS, jobset))
    await plant.wait_for(JOB_SETS, "js", lambda found: is_true(list_conditions(found), "Failed"))


SPANS: tuple[Callable[[Plant], Awaitable[None]], ...] = (
    see_the_ttl_of_a_job,
    see_the_ttl_of_a_jobset,
    see_the_deadline_of_a_job,
    see_the_deadline_of_a_trainjob,
    see_the_pause_before_a_pod_is_replaced,
    see_the_pause_before_a_gang_restarts,
)


def measure(see: Callable[[Plant], Awaitable[None]], step: float) -> float:
    """Virtual seconds until the end has come."""

    async def main() -> float:
        async with running_plant() as plant:
            clock = plant.cluster.clock
            assert isinstance(clock, VirtualClock)
            asyncio.get_running_loop().call_later(BEGUN, clock.step_wall, step)
            await see(plant)
            return clock.monotonic()

    return run_virtual(main(), limit=10_000)


@pytest.mark.parametrize("see", SPANS, ids=[see.__name__.removeprefix("see_") for see in SPANS])
def test_setting_the_wall_clock_neither_hastens_nor_delays(see: Callable[[Plant], Awaitable[None]]) -> None:
    undisturbed, *others = [measure(see, step) for step in STEPS]
    assert undisturbed > BEGUN
    # Stored times have whole seconds: what is stored after the step is cut at another place of the second.
    assert all(abs(other - undisturbed) <= 1.5 for other in others), (undisturbed, others)


def test_a_job_ends_although_the_clock_was_set_back_before_its_start() -> None:
    """The API refuses a completionTime before the startTime."""

    async def main() -> tuple[Object, list[str]]:
        async with running_plant(ScriptedNode(seconds=BEGUN), runtimes=False) as plant:
            clock = plant.cluster.clock
            assert isinstance(clock, VirtualClock)
            await plant.apply((JOBS, indexed(1)))
            await plant.wait_for(JOBS, "j", lambda job: job.get("status", {}).get("ready"))
            clock.step_wall(-3600.0)
            job = await plant.wait_for(JOBS, "j", has("Complete"))
            return job, [event["reason"] for event in await plant.list_all(EVENTS)]

    job, reasons = run_virtual(main(), limit=1000)
    status = job["status"]
    assert parse_time(status["completionTime"]) == parse_time(status["startTime"])
    assert "FailedUpdate" not in reasons
