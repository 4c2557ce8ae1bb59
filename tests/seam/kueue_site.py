"""A cluster with Kueue and our operator with its webhooks, and in one namespace the queues of examples/kueue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.flow.stage import Stage, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.kube.processes import free_port
from tests.seam.admission_site import AdmissionSite
from tests.seam.stage import GROUPS, KwokNode, make_config
from trainmaster.api.labels import JOBSET_NAME, QUEUE_NAME
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_labels
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ActingIdentity, PatchType, WriteOptions
from trainmaster.client.http import HttpClient

T = TypeVar("T")
_GROUP, _VERSION = "kueue.x-k8s.io", "v1beta2"
WORKLOADS = GVR(_GROUP, _VERSION, "workloads")
EXAMPLES = Path(__file__).parents[2] / "examples" / "kueue"
NAMESPACE = "kueue-team"


def read_example(file: str, namespace: str = NAMESPACE) -> list[Object]:
    """Its objects, in the namespace of the test."""
    items = list(yaml.safe_load_all((EXAMPLES / file).read_text()))
    for item in items:
        if "namespace" in item["metadata"]:
            item["metadata"]["namespace"] = namespace
    return items


@dataclass(frozen=True)
class KueueSite:
    cluster: KubeCluster
    namespace: str
    identity: ActingIdentity

    def play(self, work: Callable[[KueueStage], Awaitable[None]]) -> None:
        async def main() -> None:
            client = HttpClient(make_config(self.cluster, self.cluster.ports["kube-apiserver"]), user_agent="test/1")
            try:
                await work(KueueStage(client, self.namespace, KwokNode(namespace=self.namespace), _nothing))
            finally:
                await client.close()

        asyncio.run(main())


async def _nothing() -> None:
    return None


@contextmanager
def running_site(cluster: KubeCluster, log: Path) -> Iterator[KueueSite]:
    identity = ActingIdentity("system:serviceaccount:trainmaster-system:kueue-operator", groups=GROUPS)
    site = AdmissionSite(cluster, NAMESPACE, free_port(), identity, ())
    cluster.kubectl("create", "namespace", NAMESPACE)
    site.install_operator()
    made = KueueSite(cluster, NAMESPACE, identity)
    with site.operating(log):
        site.install(site.plan)
        made.play(_wait_until_checked)
        cluster.apply(yaml.safe_dump_all(read_example("queues.yaml")))
        yield made


async def _wait_until_checked(stage: KueueStage) -> None:
    async def is_refused() -> bool:
        job = make_trainjob(name="nowhere", runtime="nowhere")
        job["metadata"]["namespace"] = stage.namespace
        try:
            await stage.client.create(TRAIN_JOBS, job, stage.namespace, options=WriteOptions(dry_run=True))
        except StatusError as error:
            return "must be created before" in error.message
        return False

    await stage.eventually(is_refused)


class KueueStage(Stage):
    async def queue(self, name: str, *, cpu: str = "1", nodes: int = 2, queue: str = "team", **spec: Any) -> Object:
        """Submits a job, by default to the queue of the example."""
        job = make_trainjob(name=name, nodes=nodes, **spec)
        job["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": cpu, "memory": "1Gi"}}
        job["metadata"]["labels"] = {QUEUE_NAME: queue}
        return await self.submit(job)

    async def get(self, name: str) -> Object:
        return await self.client.get(TRAIN_JOBS, name, self.namespace)

    async def list_pods(self, name: str, phase: str = "Running") -> list[Object]:
        """That are not being stopped."""
        return [
            pod
            for pod in await self.list_all(PODS)
            if read_labels(pod).get(JOBSET_NAME) == name
            and pod["status"].get("phase") == phase
            and "deletionTimestamp" not in pod["metadata"]
        ]

    async def wait_for_pods(self, name: str, count: int) -> list[Object]:
        async def find() -> list[Object]:
            pods = await self.list_pods(name)
            return pods if len(pods) == count else []

        return await self.eventually(find)

    async def end_pods(self, name: str, *, job: str = "") -> None:
        """Its running Pods succeed; `job`: only those of one replicated job."""
        for pod in await self.list_pods(name):
            if job and read_labels(pod)["jobset.sigs.k8s.io/replicatedjob-name"] != job:
                continue
            status = deepcopy(pod["status"])
            ended = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:00Z"}
            for container in status.get("containerStatuses") or ():
                container |= {"state": {"terminated": ended}, "ready": False}
            patch = {"status": {**status, "phase": "Succeeded", "conditions": []}}
            await self.client.patch(
                PODS, pod["metadata"]["name"], PatchType.MERGE, patch, self.namespace, subresource="status"
            )

    async def find_workload(self, name: str) -> Object | None:
        for workload in await self.list_all(WORKLOADS):
            owners = workload["metadata"].get("ownerReferences") or ()
            if any((owner["kind"], owner["name"]) == ("TrainJob", name) for owner in owners):
                return workload
        return None
