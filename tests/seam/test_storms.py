"""An API server in trouble: it answers some requests with errors, then all, then some again. Jobs end as without it,
and the operator does not make it worse by asking again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import get_args

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.faults import Fault, FaultyServer, Storm
from tests.seam.made import check_one_jobset_each
from tests.seam.sameness import describe_all, list_differences
from tests.seam.stage import KwokNode, open_site
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, TRAIN_JOBS
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope

pytestmark = pytest.mark.kube

FAULTS: Sequence[Fault] = get_args(Fault)
_SHARE = 0.3
_ALL_SECONDS = 3.0
_MOST = 24
"""Requests of one kind for one path in these seconds. A pass that fails is repeated after 5 ms, 10 ms, 20 ms, ..., so
ten times; there are two jobs, and the seconds are longer on a busy machine."""


def test_in_a_storm_jobs_end_as_without_it_and_the_server_is_not_hammered(seam_cluster: KubeCluster) -> None:
    check_storms(seam_cluster, FAULTS, seed=20_26)


def check_storms(cluster: KubeCluster, faults: Sequence[Fault], *, seed: int) -> None:
    """All at the same time, each in a namespace of its own, and one without a storm."""

    async def play() -> list[dict[str, Object]]:
        return await asyncio.gather(*(play_storm(cluster, fault, seed) for fault in (None, *faults)))

    peace, *found = asyncio.run(play())
    differences = {fault: list_differences(peace, each) for fault, each in zip(faults, found, strict=True)}
    assert differences == {fault: [] for fault in faults}


async def play_storm(cluster: KubeCluster, fault: Fault | None, seed: int) -> dict[str, Object]:
    """How two jobs ended; one of them is deleted after its TTL."""
    async with open_site(cluster) as site, FaultyServer(cluster, seed).running() as server, Scope("storm") as scope:
        node = KwokNode(namespace=site.namespace)
        scope.spawn_forever(node.run(site.client, SystemClock()), name="storm.node")
        stage = Stage(site.client, site.namespace, node, site.come_to_rest)
        site.config = server.config
        await site.start()
        if fault is not None:
            server.storm = Storm(fault, _SHARE)
        await stage.submit()
        await stage.submit(make_trainjob(name="brief", nodes=1, ttlSecondsAfterFinished=0))
        await stage.wait_for(CONFIG_MAPS, "first-runtime-snapshot", lambda snapshot: True)
        if fault is not None:
            await refuse_everything(server, fault)
        await stage.wait_for(TRAIN_JOBS, "first", is_finished)
        await stage.eventually(lambda: is_gone(stage, "brief"))
        struck = [one for one in server.seen if one.struck]
        assert bool(struck) == (fault is not None)
        server.storm = None
        await site.come_to_rest()
        check_one_jobset_each(cluster, site.namespace)
        return await describe_all(stage)


async def refuse_everything(server: FaultyServer, fault: Fault) -> None:
    """For a while; watches have to begin anew. Then as before."""
    began = asyncio.get_running_loop().time()
    server.storm = Storm(fault)
    server.cut()
    await asyncio.sleep(_ALL_SECONDS)
    asked = server.count(since=began)
    server.storm = Storm(fault, _SHARE)
    assert {request: count for request, count in asked.items() if count > _MOST} == {}


async def is_gone(stage: Stage, name: str) -> bool:
    """A TrainJob and everything that was made for it."""
    found = [await stage.list_all(gvr) for gvr in (TRAIN_JOBS, JOB_SETS, CONFIG_MAPS)]
    return not any(obj["metadata"]["name"].startswith(name) for objects in found for obj in objects)
