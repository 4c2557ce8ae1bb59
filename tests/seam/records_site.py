"""What the tests of the records start: an archive that a test has filled, an operator that serves it, and an APIService
that leads from a real kube-apiserver to this operator, which runs outside of the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kube.cluster import KubeCluster
from tests.kube.processes import free_port
from tests.seam.operator_run import Run, operating
from trainmaster.api.meta import Object
from trainmaster.history.archive import Archive
from trainmaster.history.logs import FOLDER
from trainmaster.history.record import RecordedDeletion, RecordSources, build_record
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.operator.names import NAME as OPERATOR
from trainmaster.operator.records.installation import NAME, RecordsPlan, build_records_api

GONE = RecordedDeletion("2026-01-01T01:00:00Z", "kubernetes-admin", "kubectl delete")
_CREATED, _ENDED = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"


@dataclass(frozen=True)
class PlantedJob:
    """A job that was deleted before anything was started."""

    namespace: str
    name: str
    uid: str
    kind: str = "TrainJob"
    ended: str = _ENDED
    ranks: int = 0
    """Each printed a line in each of two attempts."""


def plant(directory: Path, jobs: list[PlantedJob]) -> None:
    archive = Archive.open(directory)
    for job in jobs:
        archive.put([build_record(RecordSources(make_ended(job)), GONE)])
        archive.note({}, {f"js-{job.uid}": job.uid})
        for attempt in (0, 1):
            for rank in range(job.ranks):
                place = PodPlace(f"js-{job.uid}", attempt, "node", 0, rank, f"{job.name}-node-0-{rank}-{attempt}")
                file = directory / FOLDER / str(place) / "node.0.log"
                file.parent.mkdir(parents=True)
                text = f"hello from {rank} in attempt {attempt}"
                file.write_text(f"2026-01-01T00:0{attempt}:0{rank}.000000000Z stdout F {text}\n")
    archive.close()


def make_ended(job: PlantedJob) -> Object:
    conditions = [{"type": "Complete", "status": "True", "lastTransitionTime": job.ended}]
    spec: dict[str, Any] = {"runtimeRef": {"name": "torch-distributed"}}
    if job.kind != "TrainJob":
        spec, conditions[0]["type"] = {"pytorchReplicaSpecs": {}}, "Succeeded"
    group = "trainer.kubeflow.org/v1alpha1" if job.kind == "TrainJob" else "kubeflow.org/v1"
    meta = {"name": job.name, "namespace": job.namespace, "uid": job.uid, "creationTimestamp": _CREATED}
    return {
        "apiVersion": group,
        "kind": job.kind,
        "metadata": meta,
        "spec": spec,
        "status": {"conditions": conditions},
    }


@dataclass
class ServedRecords:
    run: Run
    port: int
    start: Callable[[], AbstractContextManager[Run]]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Another process like the first one, which has ended."""
        with self.start():
            yield


@contextmanager
def serving(cluster: KubeCluster, own: str, folder: Path, namespaces: list[str], *more: str) -> Iterator[ServedRecords]:
    """An operator with the archive `folder/archive`. `own`: its namespace, which exists; `more` flags."""
    port = free_port()
    install(cluster, own, port)
    flags = ["--namespace", ",".join(namespaces), "--lease-namespace", own, "--records-port", str(port), *more]

    def start() -> AbstractContextManager[Run]:
        return operating(cluster.kubeconfig, folder / "log", *flags, "--history", str(folder / "archive"))

    try:
        with start() as run:
            run.wait_for("operator.ready")
            cluster.kubectl("wait", "--for=condition=Available", f"apiservice/{NAME}", "--timeout=60s")
            yield ServedRecords(run, port, start)
    finally:
        # Without its operator it would keep namespaces from being deleted.
        cluster.kubectl("delete", "apiservice", NAME)


def install(cluster: KubeCluster, own: str, port: int) -> None:
    meta = {"name": OPERATOR, "namespace": own}
    spec = {"type": "ExternalName", "externalName": "localhost"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
    items = [service, *build_records_api(RecordsPlan(own, OPERATOR, port))]
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
