"""Long outages below the operator: no API server for a minute, no etcd for half a minute. Jobs end as without them.

The operator loses its Lease meanwhile and comes back, as a Deployment sees to it. In the same namespace a TTL passes
during the outage, another job is started after it, and one is resumed.

make heavy
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.flow.plant import Script
from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.made import check_one_jobset_each
from tests.seam.sameness import describe_all, list_differences
from tests.seam.stage import KwokNode, open_site
from tests.seam.test_namespace_deleted import is_active
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]

_APISERVER_SECONDS = 60.0
_ETCD_SECONDS = 30.0
_TTL = 10
_HELD = "first"

Outage = Callable[[KubeCluster], Awaitable[None]]


async def none(cluster: KubeCluster) -> None:
    return None


async def lose_apiserver(cluster: KubeCluster) -> None:
    with cluster.without_apiserver():
        await asyncio.sleep(_APISERVER_SECONDS)
    await asyncio.to_thread(cluster.await_apiserver)


async def lose_etcd(cluster: KubeCluster) -> None:
    with cluster.without_etcd():
        await asyncio.sleep(_ETCD_SECONDS)
    await asyncio.to_thread(cluster.await_etcd)
    await asyncio.to_thread(cluster.await_apiserver)


async def stop_etcd(cluster: KubeCluster) -> None:
    """It accepts requests and answers none."""
    with standing_still(cluster.processes.pids["etcd"]):
        await asyncio.sleep(_ETCD_SECONDS)
    await asyncio.to_thread(cluster.await_apiserver)


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def make_script(after: asyncio.Event) -> Script:
    """The Pods of one job run until the outage is over; those of others succeed at once."""

    def play(pod: Object, run: int) -> int:
        is_held = pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == _HELD
        return -1 if is_held and not after.is_set() else 0

    return play


async def play(cluster: KubeCluster, outage: Outage) -> dict[str, Object]:
    over = asyncio.Event()
    async with open_site(cluster) as site, Scope("outage") as scope:
        node = KwokNode(make_script(over), namespace=site.namespace)
        running = scope.spawn(node.run(site.client, SystemClock()), name="outage.node")
        stage = Stage(site.client, site.namespace, node, site.come_to_rest)
        await site.start()
        await stage.submit(make_trainjob(name=_HELD))
        await stage.submit(make_trainjob(name="brief", nodes=1, ttlSecondsAfterFinished=_TTL))
        await stage.submit(make_trainjob(name="later", nodes=1, suspend=True))
        await stage.wait_for(TRAIN_JOBS, "brief", is_finished)
        await stage.wait_for(TRAIN_JOBS, _HELD, is_active)
        await stage.wait_for(TRAIN_JOBS, "later", lambda job: job.get("status", {}).get("conditions"))
        await outage(cluster)
        over.set()
        running.cancel()
        # Pods that ran meanwhile are news to another one.
        scope.spawn_forever(node.run(site.client, SystemClock()), name="outage.node")
        await stage.submit(make_trainjob(name="after", nodes=1))
        await stage.edit(TRAIN_JOBS, "later", {"spec": {"suspend": False}})
        for name in (_HELD, "after", "later"):
            await stage.wait_for(TRAIN_JOBS, name, is_finished)
        await stage.eventually(lambda: is_gone(stage, "brief"))
        await stage.come_to_rest()
        check_one_jobset_each(cluster, site.namespace)
        return await describe_all(stage)


async def is_gone(stage: Stage, name: str) -> bool:
    try:
        found = [await stage.list_all(gvr) for gvr in (TRAIN_JOBS, JOB_SETS, CONFIG_MAPS)]
    except StatusError as error:
        assert error.code >= 500, error
        return False
    return not any(obj["metadata"]["name"].startswith(name) for objects in found for obj in objects)


_PEACE: dict[str, Object] = {}


@pytest.mark.parametrize("outage", [lose_apiserver, lose_etcd, stop_etcd])
def test_jobs_end_as_without_the_outage(seam_cluster: KubeCluster, outage: Outage) -> None:
    if not _PEACE:
        _PEACE.update(asyncio.run(play(seam_cluster, none)))
    assert list_differences(_PEACE, asyncio.run(play(seam_cluster, outage))) == []
