"""The guard of the disk on a machine that is made up: what Pods hold, and how much room is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.resources import NAMESPACES, RESOURCE_QUOTAS
from trainmaster.api.tenancy import STORAGE
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.disk import guard as storage_guard
from trainmaster.node.disk.eviction import Eviction
from trainmaster.node.disk.guard import GuardActions, GuardedPod, StorageGuard
from trainmaster.node.disk.usage import DiskUsage, TreeUsage
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

MIB = 1 << 20


class Machine:
    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.client = cluster.client
        self.free = 1000 * MIB
        self.held: dict[str, list[int]] = {}
        """By the directory of a Pod: what one measurement after the other finds, the last one from then on."""
        self.evicted: list[Eviction] = []
        self.guard = StorageGuard(
            cluster.client,
            cluster.clock,
            DiskUsage(cluster.clock, lambda path, _: TreeUsage(self._measure(path))),
            GuardActions(self._list_pods, self.evicted.append, self._drop, self._list_kept),
            disk=root,
            claims=root / "claims",
            environments=root / "environments",
            min_free=100 * MIB,
        )

    def _measure(self, path: str) -> int:
        found = self.held.get(path, [0])
        return found.pop(0) if len(found) > 1 else found[0]

    async def _list_pods(self) -> list[GuardedPod]:
        return [
            GuardedPod(Pod({"metadata": {"name": name, "namespace": "ann", "uid": name}}), name, is_over=False)
            for name in self.held
        ]

    async def _drop(self, uid: str) -> None:
        raise AssertionError(f"{uid} is not over")

    async def _list_kept(self, namespace: str) -> list[str]:
        return []

    async def look(self, seconds: int) -> None:
        for _ in range(seconds):
            await asyncio.sleep(1)
            await self.guard.check()


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: Callable[[Machine], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            machine = Machine(cluster, tmp_path)
            monkeypatch.setattr(storage_guard, "_read_space", lambda _: (machine.free, 1000 * MIB))
            await cluster.client.create(NAMESPACES, make("Namespace", "ann"))
            quota = {**make("ResourceQuota", "tenant"), "spec": {"hard": {STORAGE: "20Mi"}}}
            await cluster.client.create(RESOURCE_QUOTAS, quota, "ann")
            await test(machine)

    run_virtual(main())


def make(kind: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def test_who_takes_all_at_once_while_the_disk_is_looked_at_is_evicted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room goes fast, so all Pods are measured at once, and that finds what the measurement for the budget did not."""

    async def test(machine: Machine) -> None:
        machine.held = {"taker": [0, 30 * MIB], "calm": [10 * MIB]}
        await machine.look(1)
        machine.free -= 300 * MIB
        await machine.look(1)
        assert machine.evicted == []
        await machine.look(20)
        assert [eviction.uid for eviction in machine.evicted] == ["taker"]
        assert "namespace ann keeps 40Mi on the disk and may keep 20Mi" in machine.evicted[0].message

    run(tmp_path, monkeypatch, test)


def test_who_does_not_grow_above_the_budget_may_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(machine: Machine) -> None:
        machine.held = {"calm": [15 * MIB], "taker": [0]}
        await machine.look(10)
        machine.held["taker"] = [10 * MIB]
        await machine.look(20)
        assert [eviction.uid for eviction in machine.evicted] == ["taker"]

    run(tmp_path, monkeypatch, test)
