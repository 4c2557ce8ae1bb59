"""One operator writes at a time, whatever happens to the leader: the next one goes on, and nothing is made twice."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.operator_child import OperatorChild, make_orders, running_child
from tests.seam.sameness import describe_all, list_differences
from tests.seam.stage import IDENTITY, KwokNode, open_site
from tests.seam.test_v1 import wait
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.kit.clock import SystemClock, parse_time
from trainmaster.kit.scopes import Scope

pytestmark = pytest.mark.kube

QUICK = {"duration": 5, "deadline": 3.0, "period": 0.8, "wait": 0.3}
_MANY = 20
_SOONER = 12.0
"""Less than the lease lasts."""


@dataclass
class Pair:
    """A leader and another operator that waits, in a namespace of their own."""

    stage: Stage
    leader: OperatorChild
    other: OperatorChild
    read_audit: Callable[[], list[dict[str, Any]]]

    async def wait_until_taken_over(self) -> None:
        await asyncio.to_thread(self.other.wait_until_leading)

    def count_jobsets(self) -> Counter[str]:
        """By name: how many were made, whether or not they still exist."""
        return Counter(
            event["objectRef"]["name"]
            for event in self.read_audit()
            if event["objectRef"]["resource"] == "jobsets" and event["verb"] == "create"
            if event["responseStatus"]["code"] == 201
        )


@asynccontextmanager
async def running_pair(cluster: KubeCluster, logs: Path, **leaders: Any) -> AsyncIterator[Pair]:
    async with open_site(cluster) as site, Scope("pair") as scope:
        node = KwokNode(namespace=site.namespace)
        scope.spawn_forever(node.run(site.client, SystemClock()), name="pair.node")
        stage = Stage(site.client, site.namespace, node, site.come_to_rest)
        times = {"lease": leaders.pop("lease", QUICK)}
        first = make_orders(cluster, IDENTITY.user, site.namespace, "first/1", **times, **leaders)
        second = make_orders(cluster, IDENTITY.user, site.namespace, "second/1", **times)
        with running_child(first, logs / f"{site.namespace}-1.log") as leader:
            await asyncio.to_thread(leader.wait_until_leading)
            with running_child(second, logs / f"{site.namespace}-2.log") as other:

                async def is_waiting() -> bool:
                    return "another process leads" in other.read_log()

                await wait(is_waiting)
                yield Pair(stage, leader, other, lambda: cluster.read_audit(site.namespace))


async def finish(stage: Stage, name: str) -> None:
    await stage.wait_for(TRAIN_JOBS, name, is_finished)


async def describe_settled(stage: Stage) -> dict[str, Object]:
    """Once nothing in the namespace changes any more."""
    before: dict[tuple[str, str], str] = {}
    while True:
        now = await stage.list_versions()
        if now == before:
            return await describe_all(stage)
        before = now
        await asyncio.sleep(2.5)


async def play_kill(
    cluster: KubeCluster, logs: Path, number: int, job: Object | None, **leaders: Any
) -> dict[str, Object]:
    """How the job of a leader ended that was killed after its n-th write; 0: never."""
    async with running_pair(cluster, logs, kill_after=number, **leaders) as pair:
        await pair.stage.submit(job)
        if number:
            assert await asyncio.to_thread(pair.leader.wait) == -signal.SIGKILL
            await pair.wait_until_taken_over()
        await finish(pair.stage, "first")
        assert pair.count_jobsets() == {"first": 1}
        return await describe_settled(pair.stage)


def check_kills(
    cluster: KubeCluster, logs: Path, numbers: list[int], *, job: Object | None = None, **leaders: Any
) -> None:
    """All at the same time, and beside them one that is left alone."""

    async def play() -> list[dict[str, Object]]:
        return await asyncio.gather(*(play_kill(cluster, logs, number, job, **leaders) for number in (0, *numbers)))

    peace, *found = asyncio.run(play())
    assert [list_differences(peace, each) for each in found] == [[] for _ in numbers]


def test_a_leader_that_is_killed_after_a_write_is_followed_by_another(
    seam_cluster: KubeCluster, tmp_path: Path
) -> None:
    check_kills(seam_cluster, tmp_path, [1, 2, 3])


def test_a_leader_that_stood_still_sends_nothing_more(seam_cluster: KubeCluster, tmp_path: Path) -> None:
    check_stop(seam_cluster, tmp_path)


def check_stop(cluster: KubeCluster, logs: Path, *, seconds: float = 0.0, **leaders: Any) -> None:
    """Beside one that is left alone. `seconds`: it stands still for at least as long."""

    async def play() -> tuple[dict[str, Object], dict[str, Object]]:
        return await asyncio.gather(
            play_many(cluster, logs, None, **leaders), play_many(cluster, logs, seconds, **leaders)
        )

    peace, found = asyncio.run(play())
    assert list_differences(peace, found) == []


async def play_many(cluster: KubeCluster, logs: Path, still: float | None, **leaders: Any) -> dict[str, Object]:
    """How many jobs ended. If `still`, the leader is stopped while it has a lot to do, and has to leave all of that to
    the other."""
    async with running_pair(cluster, logs, **leaders) as pair:
        names = [f"job-{number}" for number in range(_MANY)]
        for name in names:
            await pair.stage.submit(make_trainjob(name=name, nodes=1))
        await pair.stage.wait_for(JOB_SETS, names[0], lambda jobset: True)
        if still is None:
            await finish_all(pair, names)
        else:
            await finish_without_leader(pair, names, still)
        assert pair.count_jobsets() == dict.fromkeys(names, 1)
        return await describe_settled(pair.stage)


async def finish_without_leader(pair: Pair, names: list[str], still: float) -> None:
    pair.leader.send(signal.SIGSTOP)
    time = asyncio.get_running_loop().time
    end = time() + still
    await pair.wait_until_taken_over()
    await finish_all(pair, names)
    await asyncio.sleep(max(0.0, end - time()))
    continued = SystemClock().now()
    pair.leader.send(signal.SIGCONT)
    assert await asyncio.to_thread(pair.leader.wait) == 1
    assert any(words in pair.leader.read_log() for words in ("was taken by", "was not renewed")), "it says why it ended"
    late = list_writes(pair, "first/1", continued)
    assert late == [], late


async def finish_all(pair: Pair, names: list[str]) -> None:
    for name in names:
        await finish(pair.stage, name)


def list_writes(pair: Pair, agent: str, since: datetime) -> list[str]:
    """Not counting the lease itself, for which a version decides."""
    return [
        f"{event['verb']} {event['objectRef']['resource']} {event['responseStatus']['code']}"
        for event in pair.read_audit()
        if event["userAgent"] == agent and event["objectRef"]["resource"] != "leases"
        if parse_time(event["requestReceivedTimestamp"]) > since
    ]


def test_a_leader_that_is_told_to_stop_gives_the_lease_back(seam_cluster: KubeCluster, tmp_path: Path) -> None:
    """Otherwise the other would wait for 15 seconds, longer than anybody here does."""

    async def play() -> None:
        async with running_pair(seam_cluster, tmp_path, lease={}) as pair:
            await pair.stage.submit()
            pair.leader.send(signal.SIGTERM)
            async with asyncio.timeout(_SOONER):
                await pair.wait_until_taken_over()
            assert await asyncio.to_thread(pair.leader.wait) == 0
            assert "lease given back" in pair.leader.read_log()
            await finish(pair.stage, "first")
            assert pair.count_jobsets() == {"first": 1}

    asyncio.run(play())
