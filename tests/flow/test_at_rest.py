"""Finished jobs at rest: a server that starts has no work with them, until their TTL or a policy says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.flow.plant import CHAIN, CONTROLLERS, NODE, ScriptedNode
from tests.flow.stage import is_finished, make_trainjob
from tests.support.prepared import copy_runtimes
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS
from trainmaster.apiserver.at_rest import ObjectPacking
from trainmaster.controllers.lifecycle.at_rest import RestRules
from trainmaster.controllers.lifecycle.census import Census
from trainmaster.engine.apply import apply_in_one
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.manager import Manager
from trainmaster.kit.metrics import Metrics
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import Store
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.flow

KINDS = (TRAIN_JOBS, JOB_SETS, JOBS, PODS)


@asynccontextmanager
async def running_server(
    store: Store, node: ScriptedNode | None = None, *, wall_step: float = 0.0
) -> AsyncIterator[tuple[Cluster, Manager, Metrics]]:
    """With the view as the feed, as in `trainmaster up`."""
    async with running_cluster(store=store) as cluster, Scope("test") as scope:
        client, metrics = cluster.client, Metrics()
        assert isinstance(cluster.clock, VirtualClock)
        cluster.clock.step_wall(wall_step)
        if cluster.view.find(NODES, "", NODE["metadata"]["name"]) is None:
            await client.create(NODES, NODE)
        manager = Manager(
            CONTROLLERS,
            view=cluster.view,
            feed=cluster.view,
            apply=apply_in_one(client),
            recorder=EventRecorder(client, cluster.clock),
            clock=cluster.clock,
            metrics=metrics,
            settled=store.settled_revision,
        )
        if node is not None:
            scope.spawn_forever(node.run(client, cluster.clock), name="test.node")
        async with manager.running():
            yield cluster, manager, metrics
        scope.cancel()


async def end_and_pack(cluster: Cluster, manager: Manager, ttls: dict[str, int | None]) -> None:
    """Lets jobs run and come to rest."""
    for name, ttl in ttls.items():
        spec: Object = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
        await cluster.client.create(TRAIN_JOBS, make_trainjob(name=name, **spec), "default")
    chain = [item for item in CHAIN if item.name != "scheduler"]
    rules = RestRules(cluster.view, chain, None)
    packing = ObjectPacking(cluster.registry, cluster.clock, rules, lambda: manager.is_settled)
    await asyncio.sleep(60)
    assert all(is_finished(job) for job in cluster.view.list(TRAIN_JOBS))
    await packing.pack()
    assert not list_packed(cluster), "they have changed lately"
    await asyncio.sleep(700)
    await packing.pack()


def list_packed(cluster: Cluster) -> list[str]:
    found = [record for gvr in KINDS for record in cluster.store.scan(gvr.collection) if record.is_packed]
    return [f"{record.bucket} {record.name}" for record in found]


def count_passes(metrics: Metrics, controller: str) -> float:
    prefix = f'trainmaster_reconcile_total{{controller="{controller}"'
    lines = [line for line in metrics.render().splitlines() if line.startswith(prefix)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_a_start_has_no_work_with_jobs_at_rest_until_their_ttl_expires() -> None:
    async def main() -> None:
        store = copy_runtimes()
        async with running_server(store, ScriptedNode()) as (cluster, manager, _):
            await end_and_pack(cluster, manager, {"a": 2000, "b": None})
            packed = list_packed(cluster)
            assert {"trainer.kubeflow.org/trainjobs default/a", "trainer.kubeflow.org/trainjobs default/b"} <= {*packed}
            assert sum(name.startswith("pods ") for name in packed) == 4
        async with running_server(store) as (cluster, manager, metrics):
            await asyncio.sleep(100)
            for controller in ("trainjob", "job", "retention", "history-limits"):
                assert count_passes(metrics, controller) == 0, controller
            assert list_packed(cluster) == packed
            census = cluster.view.summary(Census)
            await census.count_at_rest(cluster.view.list_outlines)
            assert census.count_finished() == {("default",): 2}
            await asyncio.sleep(2000)
            assert census.count_finished() == {("default",): 1}
            assert [job["metadata"]["name"] for job in cluster.view.list(TRAIN_JOBS)] == ["b"]
            await cluster.settle()
            assert (len(cluster.view.list(PODS)), len(cluster.view.list(JOB_SETS))) == (2, 1)

    run_virtual(main(), limit=86_400)


def test_a_clock_that_was_set_back_does_not_keep_a_job_at_rest_beyond_its_ttl() -> None:
    async def main() -> None:
        store = copy_runtimes()
        async with running_server(store, ScriptedNode()) as (cluster, manager, _):
            await end_and_pack(cluster, manager, {"a": 2000})
        async with running_server(store, wall_step=-7200.0) as (cluster, _, _):
            await asyncio.sleep(1990)
            assert cluster.view.list(TRAIN_JOBS)
            await asyncio.sleep(20)
            assert not cluster.view.list(TRAIN_JOBS)

    run_virtual(main(), limit=86_400)


def test_a_policy_that_changes_later_counts_for_jobs_at_rest() -> None:
    meta = {"name": "trainmaster-policy", "namespace": "kubeflow-system"}
    policy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"successfulJobsHistoryLimit": "1"}}

    async def main() -> None:
        store = copy_runtimes()
        async with running_server(store, ScriptedNode()) as (cluster, manager, _):
            await end_and_pack(cluster, manager, {"a": None, "b": None})
        async with running_server(store) as (cluster, manager, _):
            await asyncio.sleep(1)
            await cluster.client.create(CONFIG_MAPS, policy, "kubeflow-system")
            await asyncio.sleep(10)
            assert len(cluster.view.list(TRAIN_JOBS)) == 1

    run_virtual(main(), limit=86_400)
