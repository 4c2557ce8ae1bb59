"""Whatever happens between the operator and the API server, a TrainJob ends as it does without it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.made import check_one_jobset_each
from tests.seam.sameness import describe_all, list_differences
from tests.seam.stage import KwokNode, Site, open_site, write_again_and_again
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, LEASES, TRAIN_JOBS
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope

pytestmark = pytest.mark.kube

_STORMS = 6
_STORM_SECONDS = 4.0

Trouble = Callable[[Site, Stage, Scope], Awaitable[None]]


async def no_trouble(site: Site, stage: Stage, scope: Scope) -> None:
    await site.start()
    await stage.submit()


async def play(cluster: KubeCluster, trouble: Trouble) -> tuple[Site, dict[str, Object]]:
    """Lets one TrainJob run through the trouble, which starts the operator and submits; returns how it ended."""
    async with open_site(cluster) as site, Scope("stage") as scope:
        node = KwokNode(namespace=site.namespace)
        scope.spawn_forever(node.run(site.client, SystemClock()), name="stage.node")
        stage = Stage(site.client, site.namespace, node, site.come_to_rest)
        await trouble(site, stage, scope)
        await stage.wait_for(TRAIN_JOBS, "first", is_finished)
        await stage.come_to_rest()
        check_one_jobset_each(cluster, site.namespace)
        return site, await describe_all(stage)


_PEACE: dict[str, Object] = {}


def check_same_end(cluster: KubeCluster, trouble: Trouble) -> Site:
    if not _PEACE:
        _PEACE.update(asyncio.run(play(cluster, no_trouble))[1])
    site, found = asyncio.run(play(cluster, trouble))
    assert list_differences(_PEACE, found) == []
    return site


def test_connections_are_cut_again_and_again(seam_cluster: KubeCluster) -> None:
    async def trouble(site: Site, stage: Stage, scope: Scope) -> None:
        await site.start()
        await stage.submit()
        for _ in range(15):
            site.proxy.cut()
            await asyncio.sleep(0.1)

    site = check_same_end(seam_cluster, trouble)
    assert site.proxy.cuts >= 15


def test_the_server_cannot_be_reached_while_everything_happens(seam_cluster: KubeCluster) -> None:
    async def trouble(site: Site, stage: Stage, scope: Scope) -> None:
        await site.start()
        await stage.submit()
        await stage.wait_for(JOB_SETS, "first", lambda jobset: True)
        site.proxy.refusing = True
        site.proxy.cut()
        await stage.wait_for(JOB_SETS, "first", lambda jobset: jobset.get("status", {}).get("terminalState"))
        site.proxy.refusing = False

    check_same_end(seam_cluster, trouble)


def test_strangers_change_the_same_objects_without_a_pause(seam_cluster: KubeCluster) -> None:
    async def trouble(site: Site, stage: Stage, scope: Scope) -> None:
        await site.start()
        for gvr in (TRAIN_JOBS, TRAIN_JOBS, TRAIN_JOBS, JOB_SETS):
            work = write_again_and_again(site.client, gvr, site.namespace, pause=0.0)
            scope.spawn(end_after(_STORM_SECONDS, work), name="stranger")
        await stage.submit()

    # Whether a write meets a stranger's is a matter of chance; of several storms one strikes.
    conflicts = 0
    for _ in range(_STORMS):
        conflicts = check_same_end(seam_cluster, trouble).calls["PATCH trainjobs 409"]
        if conflicts:
            break
    assert conflicts > 0, f"no conflict in {_STORMS} storms"


async def end_after(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(work, seconds)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_operator_ends_after_its_nth_write_and_another_goes_on(seam_cluster: KubeCluster, number: int) -> None:
    async def trouble(site: Site, stage: Stage, scope: Scope) -> None:
        site.stop_after = number
        await site.start()
        await stage.submit()
        await site.ended()
        site.stop_after = 0
        await site.start()

    check_same_end(seam_cluster, trouble)


def test_of_two_operators_one_works_and_the_other_takes_over(seam_cluster: KubeCluster) -> None:
    async def trouble(site: Site, stage: Stage, scope: Scope) -> None:
        await site.start()
        other = Site(site.cluster, site.client, site.namespace, site.proxy, scope)
        starting = scope.spawn(other.start(), name="second")
        await stage.submit(make_trainjob())
        await stage.wait_for(JOB_SETS, "first", lambda jobset: True)
        holder = (await site.client.get(LEASES, "trainmaster-operator", site.namespace))["spec"]["holderIdentity"]
        assert not starting.done()
        await site.stop()
        await starting
        lease = (await site.client.get(LEASES, "trainmaster-operator", site.namespace))["spec"]
        assert lease["holderIdentity"] != holder and lease["leaseTransitions"] == 1
        site.take(other)

    check_same_end(seam_cluster, trouble)


def test_the_api_server_is_restarted_in_between(seam_cluster: KubeCluster) -> None:
    async def trouble(site: Site, stage: Stage, scope: Scope) -> None:
        await site.start()
        await stage.submit()
        await stage.wait_for(JOB_SETS, "first", lambda jobset: True)
        # On this thread: a process that a thread started ends with it (PR_SET_PDEATHSIG).
        seam_cluster.restart_apiserver()
        await asyncio.to_thread(seam_cluster.await_apiserver)

    check_same_end(seam_cluster, trouble)
