"""A job counts as suspended for `--wait` when its Pods have ended, not when they have been told to."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.logworld import NAMESPACE, LogWorld
from trainmaster.cli import waiting
from trainmaster.jobs.lookups import get_training_job
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual, settle

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("ends_by", ["removal", "its phase"])
def test_waiting_for_a_suspension_ends_with_the_last_pod(ends_by: str) -> None:
    async def main() -> None:
        async with running_cluster() as cluster, asyncio.TaskGroup() as group:
            world = LogWorld(cluster)
            await world.submit()
            await world.start("a")
            await world.finish("Suspended")
            job = await get_training_job(world, NAMESPACE, world.name)
            waits = group.create_task(waiting.wait_for(world, [job], waiting.SUSPENDED))
            await settle()
            assert not waits.done(), "its Pod still runs"
            await (world.remove("a") if ends_by == "removal" else world.end("a", 143))
            assert await waits == []

    run_virtual(main())
