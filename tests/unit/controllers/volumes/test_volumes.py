"""Claims and volumes: bound, made, released and reclaimed, through an in-process API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from trainmaster.api.storage import build_storage_class
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.client.writes import apply_in_order
from trainmaster.controllers.volumes import claims, volumes
from trainmaster.engine.apply import is_passing
from trainmaster.engine.request import Request
from trainmaster.jobs.models.volumes import PersistentVolume
from trainmaster.kit.timeline import Now
from trainmaster.node.volumes.reclaim import Reclaimer
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

MEBI = {"resources": {"requests": {"storage": "1Mi"}}, "accessModes": ["ReadWriteOnce"]}


class Bench:
    def __init__(self, cluster: Cluster, root: Path, crash_after: int = 0) -> None:
        self.cluster, self.client, self.root = cluster, cluster.client, root
        self.crash_after = crash_after
        self.written = 0
        self.said: list[str] = []

    async def create(self, gvr: GVR, kind: str, name: str, **body: Any) -> Object:
        obj = {"apiVersion": gvr.api_version, "kind": kind, "metadata": {"name": name}, **body}
        return await self.client.create(gvr, obj, "default" if gvr in (PERSISTENT_VOLUME_CLAIMS, PODS) else "")

    async def claim(self, name: str = "c", **spec: Any) -> Object:
        return await self.create(PERSISTENT_VOLUME_CLAIMS, "PersistentVolumeClaim", name, spec={**MEBI, **spec})

    async def volume(self, name: str = "v", **spec: Any) -> Object:
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, **spec}
        return await self.create(PERSISTENT_VOLUMES, "PersistentVolume", name, spec=spec)

    async def add_class(self) -> None:
        await self.client.create(STORAGE_CLASSES, build_storage_class())

    def get_claim(self, name: str = "c") -> Object:
        found = self.cluster.view.find(PERSISTENT_VOLUME_CLAIMS, "default", name)
        assert found is not None
        return found

    def list_volumes(self) -> list[Object]:
        return list(self.cluster.view.list(PERSISTENT_VOLUMES))

    async def settle(self) -> None:
        """Every controller looks at every object until nothing changes; then once more, silently."""
        for _ in range(50):
            before = self.cluster.store.revision
            for controller in (claims.CONTROLLER, volumes.CONTROLLER):
                for obj in self.cluster.view.list(controller.kind):
                    await self._visit(controller.reconcile, obj)
            if self.cluster.store.revision == before:
                return
        raise AssertionError("does not come to rest")

    async def _visit(self, reconcile: Any, obj: Object) -> None:
        meta = obj["metadata"]
        request = Request(meta.get("namespace", ""), meta["name"])
        plan = reconcile(self.cluster.view, request, Now(self.cluster.clock.now()), ())
        self.said += [note.message for note in plan.notes]
        for write in plan.all_writes:
            applied = await apply_in_order(self.client, [write], field_manager="volumes")
            if applied.refusal is not None:
                assert is_passing(applied.refusal), applied.refusal.error
                return
            self.written += 1
            if self.written == self.crash_after:
                return


def run(tmp_path: Path, test: Callable[[Bench], Awaitable[None]], crash_after: int = 0) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(Bench(cluster, tmp_path, crash_after))

    run_virtual(main())


def test_a_claim_without_a_class_gets_the_default_one_and_a_directory(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.add_class()
        made = await bench.claim()
        await bench.settle()
        claim, [volume] = bench.get_claim(), bench.list_volumes()
        assert volume["metadata"]["name"] == f"pvc-{made['metadata']['uid']}" == claim["spec"]["volumeName"]
        assert claim["spec"]["storageClassName"] == "local-directory"
        want = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"}}
        assert claim["status"] == want
        assert volume["status"]["phase"] == "Bound"
        assert volume["spec"]["claimRef"]["uid"] == made["metadata"]["uid"]
        assert "Successfully provisioned volume" in bench.said[0]

    run(tmp_path, test)


@pytest.mark.parametrize("crash_after", range(1, 6))
def test_a_crash_after_any_write_ends_the_same(tmp_path: Path, crash_after: int) -> None:
    async def test(bench: Bench) -> None:
        await bench.add_class()
        await bench.claim()
        await bench.settle()
        [volume] = bench.list_volumes()
        assert (bench.get_claim()["status"]["phase"], volume["status"]["phase"]) == ("Bound", "Bound")
        assert bench.written == 4

    run(tmp_path, test, crash_after)


@pytest.mark.parametrize(
    ("volume", "claim", "taken"),
    [
        pytest.param({}, {"storageClassName": ""}, True, id="one that fits"),
        pytest.param({}, {"storageClassName": "", "accessModes": ["ReadWriteMany"]}, False, id="another access mode"),
        pytest.param({"capacity": {"storage": "1Ki"}}, {"storageClassName": ""}, False, id="too small"),
        pytest.param({"storageClassName": "x"}, {"storageClassName": ""}, False, id="another class"),
        pytest.param({"storageClassName": "x"}, {"storageClassName": "x"}, True, id="the same class"),
        pytest.param({}, {"storageClassName": "", "volumeName": "v"}, True, id="by the claim's choice"),
        pytest.param(
            {"claimRef": {"namespace": "default", "name": "c"}, "storageClassName": "x"},
            {"storageClassName": "x"},
            True,
            id="by the volume's choice",
        ),
        pytest.param(
            {"claimRef": {"namespace": "default", "name": "other"}},
            {"storageClassName": ""},
            False,
            id="kept for another",
        ),
    ],
)
def test_volumes_made_by_hand_are_matched(tmp_path: Path, volume: Object, claim: Object, taken: bool) -> None:
    async def test(bench: Bench) -> None:
        await bench.volume(**volume)
        await bench.claim(**claim)
        await bench.settle()
        phase = bench.list_volumes()[0]["status"]["phase"]
        assert (bench.get_claim()["status"]["phase"], phase) == (
            ("Bound", "Bound") if taken else ("Pending", "Available")
        )

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("claim", "want"),
    [
        pytest.param({}, "no persistent volumes available for this claim and no storage class is set", id="no class"),
        pytest.param({"storageClassName": "x"}, 'storageclass.storage.k8s.io "x" not found', id="unknown class"),
    ],
)
def test_a_claim_that_waits_says_why(tmp_path: Path, claim: Object, want: str) -> None:
    async def test(bench: Bench) -> None:
        await bench.claim(**claim)
        await bench.settle()
        assert bench.said[0] == want
        assert bench.get_claim()["status"]["phase"] == "Pending"

    run(tmp_path, test)


def test_deleting_a_claim_deletes_its_directory_when_no_pod_uses_it(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.add_class()
        await bench.claim()
        await bench.settle()
        name = bench.list_volumes()[0]["metadata"]["name"]
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").touch()
        pod = {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        }
        await bench.create(PODS, "Pod", "p", spec=pod)
        await bench.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "default")
        await bench.settle()
        [volume] = bench.list_volumes()
        assert volume["status"]["phase"] == "Released"
        assert "deletionTimestamp" not in volume["metadata"], "a Pod still uses it"
        await bench.client.delete(PODS, "p", "default", DeleteOptions(grace_seconds=0))
        await bench.settle()
        [volume] = bench.list_volumes()
        assert "deletionTimestamp" in volume["metadata"]
        assert (tmp_path / name / "data").exists(), "the node removes it"
        reclaimer = Reclaimer(bench.client, bench.cluster.clock, tmp_path)
        await reclaimer.reclaim(PersistentVolume(volume))
        assert not (tmp_path / name).exists()
        assert bench.list_volumes() == []

    run(tmp_path, test)


def test_a_retained_volume_keeps_its_data_and_waits_for_a_person(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.client.create(STORAGE_CLASSES, {**build_storage_class(), "reclaimPolicy": "Retain"})
        await bench.claim()
        await bench.settle()
        name = bench.list_volumes()[0]["metadata"]["name"]
        (tmp_path / name).mkdir()
        await bench.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "default")
        await bench.settle()
        [volume] = bench.list_volumes()
        assert (volume["status"]["phase"], "deletionTimestamp" in volume["metadata"]) == ("Released", False)
        await bench.client.delete(PERSISTENT_VOLUMES, name)
        await Reclaimer(bench.client, bench.cluster.clock, tmp_path).reclaim(PersistentVolume(bench.list_volumes()[0]))
        assert (tmp_path / name).is_dir()
        assert bench.list_volumes() == []

    run(tmp_path, test)


def test_a_claim_may_grow_and_a_lost_volume_is_said(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.add_class()
        await bench.claim()
        await bench.settle()
        grow = {"spec": {"resources": {"requests": {"storage": "5Mi"}}}}
        await bench.client.patch(PERSISTENT_VOLUME_CLAIMS, "c", PatchType.MERGE, grow, "default")
        await bench.settle()
        assert bench.get_claim()["status"]["capacity"] == {"storage": "5Mi"}
        [volume] = bench.list_volumes()
        await bench.client.delete(PERSISTENT_VOLUMES, volume["metadata"]["name"])
        await Reclaimer(bench.client, bench.cluster.clock, tmp_path).reclaim(PersistentVolume(bench.list_volumes()[0]))
        await bench.settle()
        assert bench.get_claim()["status"]["phase"] == "Lost"
        assert bench.said[-1] == "Bound claim has lost its PersistentVolume. Data on the volume is lost!"

    run(tmp_path, test)
