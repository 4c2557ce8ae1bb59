"""Directories through which the Pods of a gang start programs in each other, without the control plane.

All Pods of a TrainJob with MPI share one (`remote_start/program.py`). In that of an MPIJob, the shims of the workers
listen (`shim/sessions.py`). Only the launcher sees it, and cannot write to it: so it can start programs in the workers
of its own job, as its Role allows, and in no other Pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.resources import PODS
from trainmaster.api.v1jobs.frameworks import MPI, OPERATOR_NAME
from trainmaster.api.v1jobs.mpijobs import build_launcher_name
from trainmaster.api.workloads import POD, find_controller
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.workloads import Workloads


@dataclass(frozen=True, slots=True)
class GangDirectories:
    root: Path
    client: Client
    workloads: Workloads

    async def make(self, pod: Pod) -> str:
        """For the gang that the Pod really belongs to: its labels may name another one."""
        workload = await self.workloads.resolve(pod.raw)
        directory = self.root / (workload.gang or pod.uid)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(directory)

    async def is_launcher(self, pod: Pod) -> bool:
        """Whether it is the launcher of an MPIJob. By its name, which no other Pod can have."""
        workload = await self.workloads.resolve(pod.raw)
        return workload.kind == MPI.kind and pod.name == build_launcher_name(workload.name)

    async def find_socket(self, pod: Pod) -> str:
        """Where the shim of an MPIJob's worker listens to the launcher; "" for other Pods."""
        workload = await self.workloads.resolve(pod.raw)
        if workload.kind != MPI.kind or await self.is_launcher(pod):
            return ""
        return f"{await self.make(pod)}/{pod.uid}"

    async def find_unused(self, pod: Pod) -> Path | None:
        """The directory of a deleted Pod's gang, if no other Pod uses it. The Pod itself says which one: nothing may be
        left to verify it, so everybody who says the same, in any namespace, counts as a user."""
        gang, selector = _read_claim(pod)
        directory = self.root / gang
        if not directory.is_dir():
            return None
        if selector:
            found = await self.client.list(PODS, "", ListOptions(label_selector=selector))
            others = (Pod(item) for item in found.items if item["metadata"]["uid"] != pod.uid)
            if any(_read_claim(other)[0] == gang for other in others):
                return None
        return directory


def _read_claim(pod: Pod) -> tuple[str, str]:
    """(gang, selector for its Pods) according to the Pod."""
    owner = find_controller(pod.raw, POD)
    if owner is not None and owner.kind == MPI.kind:
        return owner.uid, f"{OPERATOR_NAME}={MPI.controller}"
    gang = pod.labels.get(JOBSET_UID)
    return (gang, f"{JOBSET_UID}={gang}") if gang else (pod.uid, "")
