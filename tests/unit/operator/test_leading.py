"""The end of a leader: its controllers stop, the lease is given back, and then the rest is brought to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.support.prepared import copy_runtimes
from trainmaster.api.labels import ALLOW_DELETE_IN_USE
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, EVENTS, LEASES, TRAIN_JOBS
from trainmaster.client.contract import Client, PatchType, WriteOptions
from trainmaster.client.http import HttpClient
from trainmaster.kit.ids import SeededIds
from trainmaster.kit.scopes import Scope
from trainmaster.operator.mode import OperatorSettings, running_operator
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


class Fenced:
    """A local client with a fence, as the one over HTTP has; events are written only once they may be."""

    def __init__(self, client: Client, may_write: asyncio.Event, check: Callable[[], None] = lambda: None) -> None:
        self._client = client
        self._may_write = may_write
        self._check = check

    server = "https://server"

    def observed(self, observe: object) -> Fenced:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def fenced(self, check: Callable[[], None]) -> Fenced:
        return Fenced(self._client, self._may_write, check)

    async def create(self, gvr: GVR, obj: Object, namespace: str = "", **options: Any) -> Object:
        if gvr == EVENTS:
            await self._may_write.wait()
        self._check()
        return await self._client.create(gvr, obj, namespace, **options)

    async def patch(
        self, gvr: GVR, name: str, kind: PatchType, patch: object, namespace: str = "", **options: Any
    ) -> Object:
        self._check()
        return await self._client.patch(gvr, name, kind, patch, namespace, **options)


def test_events_are_written_after_the_lease_was_given_back() -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with running_cluster(store=copy_runtimes(), clock=clock) as cluster, Scope("test") as scope:
            client, may_write = cluster.client, asyncio.Event()
            await submit_without_runtime(client)
            settings = OperatorSettings(lease_namespace="default", runtimes=False)
            remote = cast(HttpClient, Fenced(client, may_write))

            async def operate() -> None:
                async with running_operator(remote, settings, clock=clock, ids=SeededIds(1)):
                    await asyncio.get_running_loop().create_future()

            operating = scope.spawn_guarded(operate(), name="operator")
            await asyncio.sleep(30)
            assert (await client.get(TRAIN_JOBS, "a", "default"))["status"]["waiting"]
            assert await read_holder(client)
            operating.cancel()
            await asyncio.sleep(1)
            assert await read_holder(client) == "" and not operating.done()
            assert (await client.list(EVENTS, "default")).items == []
            may_write.set()
            await asyncio.wait([operating])
            assert (await client.list(EVENTS, "default")).items

    run_virtual(main())


async def submit_without_runtime(client: Client) -> None:
    """A job of which the operator has something to say."""
    spec = {"runtimeRef": {"name": "plain"}}
    job = {"apiVersion": TRAIN_JOBS.api_version, "kind": "TrainJob", "metadata": {"name": "a"}, "spec": spec}
    await client.create(TRAIN_JOBS, job, "default", options=WriteOptions())
    allowed = {"metadata": {"annotations": {ALLOW_DELETE_IN_USE: "true"}}}
    await client.patch(CLUSTER_TRAINING_RUNTIMES, "plain", PatchType.MERGE, allowed)
    await client.delete(CLUSTER_TRAINING_RUNTIMES, "plain")


async def read_holder(client: Client) -> str:
    lease = await client.get(LEASES, "trainmaster-operator", "default")
    return str(lease["spec"].get("holderIdentity", ""))
