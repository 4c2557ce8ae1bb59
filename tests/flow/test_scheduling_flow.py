"""Jobs that share one small node, from the TrainJob down to the Pods and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.flow.plant import CONTROLLERS, NODE, Plant, ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import EVENTS, NODES, PODS, TRAIN_JOBS
from trainmaster.client.contract import PatchType
from trainmaster.client.writes import Applied, Write
from trainmaster.controllers.install import install_runtimes
from trainmaster.engine.apply import LARGEST, apply_in_one
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.manager import Manager
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

QUOTAS = GVR("", "v1", "resourcequotas")


def make_job(name: str, nodes: int, **limits: str) -> Object:
    job = make_trainjob(name=name, nodes=nodes)
    job["spec"]["trainer"]["resourcesPerNode"] = {"limits": limits, "requests": limits}
    return job


@asynccontextmanager
async def running_small(cpu: str, seconds: float = 5.0) -> AsyncIterator[Plant]:
    async with running_plant(ScriptedNode(seconds=seconds)) as plant:
        status = {"status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "500"}}}
        await plant.client.patch(NODES, "local", PatchType.MERGE, status, subresource="status")
        yield plant


def test_a_job_that_finds_no_room_says_so_and_starts_when_there_is_some() -> None:
    async def main() -> None:
        async with running_small("4") as plant:
            await plant.apply((TRAIN_JOBS, make_job("first", 2, cpu="2")), (TRAIN_JOBS, make_job("second", 2, cpu="1")))
            waiting = await plant.wait_for(TRAIN_JOBS, "second", lambda job: (job.get("status") or {}).get("waiting"))
            assert waiting["status"]["waiting"]["reason"] == "Queued"
            assert waiting["status"]["waiting"]["message"] == (
                'job "second-node-0": waiting for 2 CPUs: 0 of 4 free; first in the queue; '
                "starts when default/first ends"
            )
            events = [event for event in await plant.list_all(EVENTS) if event["reason"] == "Queued"]
            assert [event["involvedObject"]["name"] for event in events] == ["second"]
            done = await plant.wait_for(TRAIN_JOBS, "second", is_finished)
            assert "waiting" not in done["status"]
            await plant.wait_for(TRAIN_JOBS, "first", is_finished)

    run_virtual(main(), limit=86_400)


def test_a_job_over_its_quota_says_so_on_the_trainjob_and_takes_nothing() -> None:
    async def main() -> None:
        async with running_small("4") as plant:
            meta = {"name": "q", "namespace": "default"}
            quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "1"}}}
            await plant.apply((QUOTAS, quota), (TRAIN_JOBS, make_job("large", 2, cpu="1")))
            found = await plant.wait_for(TRAIN_JOBS, "large", lambda job: (job.get("status") or {}).get("waiting"))
            assert "exceeded quota: q" in found["status"]["waiting"]["message"]
            await plant.settle()
            assert not any(pod["spec"].get("nodeName") for pod in await plant.list_all(PODS))

    run_virtual(main(), limit=86_400)


def test_a_large_gang_whose_binding_was_cut_gets_the_rest_of_its_places() -> None:
    """A crash between two transactions of one plan, with somebody else waiting for what is left."""
    cut: list[int] = []

    async def main() -> None:
        async with running_cluster() as cluster:
            client, clock = cluster.client, cluster.clock
            await install_runtimes(client)
            await client.create(NODES, NODE)
            status = {"status": {"allocatable": {"cpu": "100", "pods": "500"}}}
            await client.patch(NODES, "local", PatchType.MERGE, status, subresource="status")
            whole = apply_in_one(client)

            async def apply(writes: Sequence[Write], manager: str) -> Applied:
                if manager == "scheduler" and len(writes) > LARGEST and not cut:
                    cut.append(len(writes))
                    await whole(writes[:LARGEST], manager)
                    await client.create(TRAIN_JOBS, make_job("other", 1, cpu="50"), "default")
                    await clock.sleep(1)
                    raise OSError("the process died here")
                return await whole(writes, manager)

            manager = Manager(
                CONTROLLERS,
                view=cluster.view,
                feed=cluster.view,
                apply=apply,
                recorder=EventRecorder(client, clock),
                clock=clock,
            )
            async with manager.running():
                await client.create(TRAIN_JOBS, make_job("large", 100, cpu="1"), "default")
                await clock.sleep(30)
            pods = (await client.list(PODS, "default")).items
            bound = {pod["metadata"]["name"].split("-")[0] for pod in pods if pod["spec"].get("nodeName")}
            assert cut == [64]
            assert bound == {"large"}
            assert all(pod["spec"].get("nodeName") for pod in pods if pod["metadata"]["name"].startswith("large"))

    run_virtual(main(), limit=86_400)
