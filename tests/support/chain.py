"""A TrainJob with its JobSet and Job as controllers create them, for tests without controllers.

Pods are given `Chain.metadata`: who works for whom is verified up to the TrainJob, so all of it has to exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainmaster.api.labels import JOBSET_NAME, JOBSET_UID, REPLICATED_JOB_NAME
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.client.contract import Client
from trainmaster.controllers.ownership import build_owner_reference

_TRAINER = "trainer.kubeflow.org/v1alpha1"


@dataclass(frozen=True)
class Chain:
    trainjob: Object
    jobset: Object
    job: Object

    @property
    def uid(self) -> str:
        return str(self.trainjob["metadata"]["uid"])

    @property
    def labels(self) -> dict[str, str]:
        meta = self.jobset["metadata"]
        return {JOBSET_NAME: meta["name"], JOBSET_UID: meta["uid"], REPLICATED_JOB_NAME: "node"}

    def metadata(self, **labels: str) -> Object:
        return {"labels": {**self.labels, **labels}, "ownerReferences": [build_owner_reference(self.job)]}


async def make_chain(client: Client, name: str = "j", namespace: str = "default") -> Chain:
    pod: Object = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "i"}]}}
    roles = [{"name": "node", "template": {"spec": {"template": pod}}}]
    runtime = {**_build(_TRAINER, "TrainingRuntime", name), "spec": {"template": {"spec": {"replicatedJobs": roles}}}}
    await client.create(TRAINING_RUNTIMES, runtime, namespace)
    reference = {"name": name, "kind": "TrainingRuntime"}
    body = {**_build(_TRAINER, "TrainJob", name), "spec": {"runtimeRef": reference}}
    trainjob = await client.create(TRAIN_JOBS, body, namespace)
    body = {**_build("jobset.x-k8s.io/v1alpha2", "JobSet", name, trainjob), "spec": {"replicatedJobs": roles}}
    jobset = await client.create(JOB_SETS, body, namespace)
    body = {**_build("batch/v1", "Job", f"{name}-node-0", jobset), "spec": {"template": pod}}
    return Chain(trainjob, jobset, await client.create(JOBS, body, namespace))


def _build(version: str, kind: str, name: str, owner: Object | None = None) -> dict[str, Any]:
    owners = {} if owner is None else {"ownerReferences": [build_owner_reference(owner)]}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **owners}}
