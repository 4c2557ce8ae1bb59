"""What a TrainJob costs the API server, in calls of the operator."""

from __future__ import annotations

import asyncio

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.stage import KwokNode, open_site
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope

pytestmark = pytest.mark.kube

BURST = 20
MOST_CALLS = 5.5
"""What Kubeflow Trainer's manager makes as shipped. With everybody's rate limits raised it makes 3.0, as many as ours
when the Pods end within the delay of counts."""


async def run_jobs(stage: Stage, names: list[str]) -> None:
    await asyncio.gather(*(stage.submit(make_trainjob(name=name)) for name in names))
    await asyncio.gather(*(stage.wait_for(TRAIN_JOBS, name, is_finished) for name in names))


def test_a_trainjob_costs_few_calls(seam_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with open_site(seam_cluster) as site, Scope("stage") as scope:
            node = KwokNode(namespace=site.namespace)
            scope.spawn_forever(node.run(site.client, SystemClock()), name="stage.node")
            await site.start()
            stage = Stage(site.client, site.namespace, node, site.come_to_rest)
            for names in [["one"], [f"job-{number}" for number in range(BURST)]]:
                site.calls.clear()
                await run_jobs(stage, names)
                await stage.come_to_rest()
                # Reads are the caches' and do not grow with the number of TrainJobs.
                per_job = site.count_writes() / len(names)
                text = f"{per_job:.2f} calls per TrainJob of 2 Pods, {len(names)} at once"
                print(f"\n{text}: {dict(sorted(site.calls.items()))}")
                assert per_job <= MOST_CALLS

    asyncio.run(main())
