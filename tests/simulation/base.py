"""The initial state of every seed: namespaces, one node, a few runtimes. Created once per process.

A seed starts its server from these records as from a disk, which is much faster than creating them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tests.simulation.disk import Image
from tests.simulation.loop import SimClock, SimLoop
from tests.simulation.sharing import STATUS
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.labels import ANCESTOR_STEP
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, NODES
from trainmaster.apiserver import stored
from trainmaster.apiserver.local import LocalClient
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.client.contract import PatchType
from trainmaster.kit.ids import SeededIds
from trainmaster.store.memory import MemoryStore

ROOT_CA = "(a test)"
LATE = "sim-late"
"""A runtime that is created during the run."""
RUNTIMES = ("sim-torch", "sim-plain", "sim-stages", "sim-ttl", "sim-patient", LATE)


@dataclass(frozen=True, slots=True)
class Base:
    catalogue: Catalogue
    image: Image
    objects: dict[tuple[str, str], Object]
    revision: int
    late_runtime: Object


@cache
def build_base() -> Base:
    # Without definitions: they are large, they are written once, and no controller reads them.
    kinds = Catalogue([kind for kind in catalogue.build().kinds if kind.group != "apiextensions.k8s.io"])
    loop = SimLoop()
    store = MemoryStore()
    try:
        loop.run_until_complete(_fill(store, kinds, SimClock(loop)))
    finally:
        loop.close()
    image = {bucket: {record.name: record for record in store.scan(bucket)} for bucket in store.buckets()}
    objects = {
        (bucket, name): stored.parse(record.value)
        for bucket, records in image.items()
        for name, record in records.items()
    }
    return Base(kinds, image, objects, store.revision, _build_runtime(LATE, restarts=1))


async def _fill(store: MemoryStore, kinds: Catalogue, clock: SimClock) -> None:
    registry = ObjectRegistry(store, kinds, clock, SeededIds(0))
    client = LocalClient(registry)
    async with registry.running(ROOT_CA):
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}})
        await client.patch(NODES, "local", PatchType.MERGE, {"status": STATUS}, subresource="status")
        for runtime in _build_runtimes():
            await client.create(CLUSTER_TRAINING_RUNTIMES, runtime)
        await registry.settled()
    registry.close()


def _build_runtimes() -> list[Object]:
    stages = _build_runtime("sim-stages", restarts=1)
    node = stages["spec"]["template"]["spec"]["replicatedJobs"][0]
    first = _build_job("dataset-initializer", "dataset-initializer")
    node["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    stages["spec"]["template"]["spec"]["replicatedJobs"].insert(0, first)
    ttl = _build_runtime("sim-ttl", restarts=1)
    ttl["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 20
    torch = _build_runtime("sim-torch", restarts=3)
    torch["spec"]["mlPolicy"]["torch"] = {}
    patient = _build_runtime("sim-patient", restarts=0, backoff_limit=2)
    return [torch, _build_runtime("sim-plain", restarts=0), stages, ttl, patient]


def _build_runtime(name: str, *, restarts: int, backoff_limit: int = 0) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {
                "spec": {
                    "failurePolicy": {"maxRestarts": restarts},
                    "replicatedJobs": [_build_job("node", "trainer", backoff_limit)],
                }
            },
        },
    }


def _build_job(name: str, step: str, backoff_limit: int = 0) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": name, "image": "i"}]}
    return {
        "name": name,
        "template": {
            "metadata": {"labels": {ANCESTOR_STEP: step}},
            "spec": {"backoffLimit": backoff_limit, "template": {"spec": pod}},
        },
    }
