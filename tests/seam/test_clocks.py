"""The clock of the operator's machine is an hour ahead of, or behind, the API server's; nothing is early or late."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.made import check_one_jobset_each
from tests.seam.sameness import describe_all, list_differences
from tests.seam.stage import KwokNode, open_site
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import EVENTS, TRAIN_JOBS
from trainmaster.api.status import NotFound
from trainmaster.kit.clock import SystemClock, parse_time
from trainmaster.kit.scopes import Scope

pytestmark = pytest.mark.kube

_HOUR = 3600.0
_HALF_AN_HOUR = 1800


class WrongClock(SystemClock):
    """Only the wall clock can be wrong."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._ahead)

    def unix(self) -> float:
        return super().unix() + self._ahead


def test_deadlines_and_ttls_are_those_of_the_api_servers_clock(seam_cluster: KubeCluster) -> None:
    async def play() -> list[dict[str, Object]]:
        return await asyncio.gather(*(play_with(seam_cluster, ahead) for ahead in (0.0, _HOUR, -_HOUR)))

    right, ahead, behind = asyncio.run(play())
    assert list_differences(right, ahead) == [] == list_differences(right, behind)


async def play_with(cluster: KubeCluster, ahead: float) -> dict[str, Object]:
    """How jobs ended: one with a deadline of half an hour, one that is kept for half an hour, one for a second."""
    async with open_site(cluster) as site, Scope("clocks") as scope:
        node = KwokNode(namespace=site.namespace)
        scope.spawn_forever(node.run(site.client, SystemClock()), name="clocks.node")
        stage = Stage(site.client, site.namespace, node, site.come_to_rest)
        site.clock = WrongClock(ahead)
        await site.start()
        await stage.submit(make_trainjob(name="first", nodes=1, activeDeadlineSeconds=_HALF_AN_HOUR))
        await stage.submit(make_trainjob(name="kept", nodes=1, ttlSecondsAfterFinished=_HALF_AN_HOUR))
        await stage.submit(make_trainjob(name="brief", nodes=1, ttlSecondsAfterFinished=1))
        for name in ("first", "kept"):
            ended = await stage.wait_for(TRAIN_JOBS, name, is_finished)
            assert is_true(list_conditions(ended), "Complete"), ended["status"]
        await stage.eventually(lambda: is_gone(stage, "brief"))
        await site.come_to_rest()
        check_one_jobset_each(cluster, site.namespace)
        await check_times(stage)
        found = await describe_all(stage)
        found.get("trainjobs/kept", {}).get("status", {}).pop("retention", None)
        return found


async def is_gone(stage: Stage, name: str) -> bool:
    try:
        await stage.client.get(TRAIN_JOBS, name, stage.namespace)
    except NotFound:
        return True
    return False


async def check_times(stage: Stage) -> None:
    """What the operator stores is the time of the API server, to a few seconds."""
    kept = await stage.client.get(TRAIN_JOBS, "kept", stage.namespace)
    made = parse_time(kept["metadata"]["creationTimestamp"])
    stored = [parse_time(kept["status"]["retention"]["deleteAt"]) - timedelta(seconds=_HALF_AN_HOUR)]
    stored += [
        parse_time(event["lastTimestamp"])
        for event in await stage.list_all(EVENTS)
        if (event.get("reportingComponent") or "").startswith("train")
    ]
    assert all(abs((moment - made).total_seconds()) < _HOUR / 2 for moment in stored), (made, stored)
