"""What takes too long for `make test`: failover with the times of an installation, after each write.

make heavy
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.flow.stage import Stage, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.made import check_one_jobset_each
from tests.seam.operator_child import make_orders, running_child
from tests.seam.stage import IDENTITY, KwokNode, open_site
from tests.seam.test_failover import check_kills, check_stop, finish
from trainmaster.api.resources import JOB_SETS
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

_STILL_SECONDS = 30.0


def test_a_leader_that_is_killed_after_a_write_is_followed_by_another(
    seam_cluster: KubeCluster, tmp_path: Path
) -> None:
    check_kills(seam_cluster, tmp_path, [1, 2, 3], lease={})


def test_a_leader_that_is_killed_between_the_parts_of_an_mpi_job_is_followed_by_another(
    seam_cluster: KubeCluster, tmp_path: Path
) -> None:
    """Snapshot, Secret, ConfigMap, JobSet and status."""
    job = make_trainjob(runtime="deepspeed-distributed")
    check_kills(seam_cluster, tmp_path, [1, 2, 3, 4, 5], job=job)


def test_a_leader_without_another_that_stood_still_goes_on(seam_cluster: KubeCluster, tmp_path: Path) -> None:
    """Nobody took its Lease, so it renews it, and then writes again."""

    async def play() -> None:
        async with open_site(seam_cluster) as site, Scope("alone") as scope:
            node = KwokNode(namespace=site.namespace)
            scope.spawn_forever(node.run(site.client, SystemClock()), name="alone.node")
            stage = Stage(site.client, site.namespace, node, site.come_to_rest)
            orders = make_orders(seam_cluster, IDENTITY.user, site.namespace, "alone/1")
            with running_child(orders, tmp_path / "alone.log") as leader:
                await asyncio.to_thread(leader.wait_until_leading)
                await stage.submit()
                await stage.wait_for(JOB_SETS, "first", lambda jobset: True)
                leader.send(signal.SIGSTOP)
                await asyncio.sleep(_STILL_SECONDS)
                leader.send(signal.SIGCONT)
                await finish(stage, "first")
                await stage.submit(make_trainjob(name="second", nodes=1))
                await finish(stage, "second")
                assert leader.process.poll() is None, leader.read_log()[-2000:]
            check_one_jobset_each(seam_cluster, site.namespace)

    asyncio.run(play())


def test_a_leader_that_stood_still_for_longer_than_its_lease_sends_nothing_more(
    seam_cluster: KubeCluster, tmp_path: Path
) -> None:
    check_stop(seam_cluster, tmp_path, seconds=_STILL_SECONDS, lease={})
