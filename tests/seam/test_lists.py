"""What the operator asks for when connections break: each kind is listed once at the start, and once more after a gap
that no watch can bridge, however often it is cut off."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.faults import FaultyServer
from tests.seam.made import check_one_jobset_each
from tests.seam.stage import KwokNode, Site, open_site, write_again_and_again
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope

pytestmark = pytest.mark.kube

_CUTS = 12
_PAUSE_SECONDS = 0.3


def count_lists(server: FaultyServer) -> Counter[str]:
    """Path -> how often it was listed. Only collections that are watched: those were listed for the cache."""
    watched = {one.path for one in server.seen if one.watches}
    return Counter(one.path for one in server.seen if one.method == "GET" and not one.watches and one.path in watched)


def test_each_kind_is_listed_once_and_once_more_after_a_gap(seam_cluster: KubeCluster) -> None:
    async def play() -> None:
        async with open_site(seam_cluster) as site, FaultyServer(seam_cluster, 1).running() as server:
            site.config = server.config
            async with Scope("lists") as scope:
                node = KwokNode(namespace=site.namespace)
                scope.spawn_forever(node.run(site.client, SystemClock()), name="lists.node")
                stage = Stage(site.client, site.namespace, node, site.come_to_rest)
                await site.start()
                await run_job(stage, "first")
                once = count_lists(server)
                assert len(once) >= 8 and set(once.values()) == {1}, once
                await cut_while_objects_change(site, server, scope)
                await run_job(stage, "second")
                assert count_lists(server) == once
                await make_gap(seam_cluster, stage, server)
                await run_job(stage, "third")
                await stage.come_to_rest()
                assert count_lists(server) - once <= once, count_lists(server) - once
                assert count_lists(server)[f"{_find_path(once, 'trainjobs')}"] == 2
                check_one_jobset_each(seam_cluster, site.namespace)

    asyncio.run(play())


def _find_path(lists: Counter[str], plural: str) -> str:
    return next(path for path in lists if path.endswith(f"/{plural}"))


async def run_job(stage: Stage, name: str) -> None:
    await stage.submit(make_trainjob(name=name, nodes=1))
    await stage.wait_for(TRAIN_JOBS, name, is_finished)


async def cut_while_objects_change(site: Site, server: FaultyServer, scope: Scope) -> None:
    strangers = [
        scope.spawn(write_again_and_again(site.client, gvr, site.namespace), name="stranger")
        for gvr in (TRAIN_JOBS, JOB_SETS)
    ]
    for _ in range(_CUTS):
        await asyncio.sleep(_PAUSE_SECONDS)
        server.cut()
    for stranger in strangers:
        stranger.cancel()


async def make_gap(cluster: KubeCluster, stage: Stage, server: FaultyServer) -> None:
    """Objects change while the operator is cut off; the API server is then another one, which does not remember how."""
    server.refusing = True
    server.cut()
    for number in range(3):
        for name in ("first", "second"):
            await stage.edit(TRAIN_JOBS, name, {"metadata": {"labels": {"stranger": str(number)}}})
            await stage.edit(JOB_SETS, name, {"metadata": {"labels": {"stranger": str(number)}}})
    # On this thread: a process that a thread started ends with it (PR_SET_PDEATHSIG).
    cluster.restart_apiserver()
    await asyncio.to_thread(cluster.await_apiserver)
    server.refusing = False
