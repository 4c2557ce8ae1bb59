"""A node of a given size, and gangs of Pods that want to run on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.unit.controllers.world import NOW, World
from trainmaster.api import labels
from trainmaster.api.devices import Device, list_leased, render_devices
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, NODES, PODS
from trainmaster.api.v1jobs.frameworks import API_VERSION, PYTORCH, REPLICA_TYPE
from trainmaster.controllers.scheduler.reconciler import CONTROLLER, REPORT
from trainmaster.controllers.waiting import find_annotated
from trainmaster.engine.plan import Plan
from trainmaster.kit.clock import format_time


class Stage(World):
    def __init__(
        self, *, cpu: str = "8", memory: str = "32Gi", gpus: int = 2, devices: list[Device] | None = None
    ) -> None:
        super().__init__()
        found = devices if devices is not None else [Device(number, f"GPU-{number}") for number in range(gpus)]
        healthy = sum(1 for device in found if not device.unhealthy)
        offered = {"cpu": cpu, "memory": memory, "pods": "100", "nvidia.com/gpu": str(healthy)}
        notes = {labels.DEVICES: render_devices(found)}
        self.add(NODES, {"metadata": {"name": "local", "annotations": notes}, "status": {"allocatable": offered}})
        self._minutes = 0

    def add_pod(self, name: str, *, priority: int = 0, marks: Object | None = None, **requests: str) -> Object:
        meta: Object = {"name": name, "namespace": "default", "labels": marks or {}, "creationTimestamp": self._tick()}
        container = {"name": "main", "resources": {"requests": translate(requests)}}
        return self.add(PODS, {"metadata": meta, "spec": {"containers": [container], "priority": priority}})

    def add_jobset(self, name: str, *roles: Object, restarts: int = 0, **spec: Any) -> Object:
        meta = {"name": name, "namespace": "default", "creationTimestamp": self._tick(), "generation": 1}
        body = {"replicatedJobs": list(roles), **spec}
        return self.add(JOB_SETS, {"metadata": meta, "spec": body, "status": {"restarts": restarts}})

    def add_pods(self, jobset: Object, role: str, count: int | None = None, *, priority: int = 0) -> list[str]:
        """The Pods that the Jobs of that role make, or the first so many of them."""
        found = next(entry for entry in jobset["spec"]["replicatedJobs"] if entry["name"] == role)
        job = found["template"]["spec"]
        attempt = jobset["status"]["restarts"]
        marks = {
            labels.JOBSET_UID: jobset["metadata"]["uid"],
            labels.JOBSET_NAME: jobset["metadata"]["name"],
            labels.REPLICATED_JOB_NAME: role,
            labels.RESTART_ATTEMPT: str(attempt),
        }
        names = [f"{jobset['metadata']['name']}-{role}-{attempt}-{number}" for number in range(job["parallelism"])][
            :count
        ]
        for name in names:
            meta = {"name": name, "namespace": "default", "labels": marks}
            spec = {**job["template"]["spec"], "priority": priority}
            self.add(PODS, {"metadata": meta, "spec": spec})
        return names

    def add_gang(
        self, name: str, nodes: int = 2, *, priority: int = 0, restarts: int = 0, **requests: str
    ) -> list[str]:
        jobset = self.add_jobset(name, make_role("node", nodes, None, **requests), restarts=restarts)
        return self.add_pods(jobset, "node", priority=priority)

    def add_v1_job(self, name: str, least: int, replicas: dict[str, int], **requests: str) -> list[str]:
        """A PyTorchJob with `minAvailable`, and its Pods."""
        container = {"name": "pytorch", "resources": {"requests": translate(requests)}}
        template = {"spec": {"containers": [container]}}
        types = {kind: {"replicas": count, "template": template} for kind, count in replicas.items()}
        meta = {"name": name, "namespace": "default", "creationTimestamp": self._tick(), "generation": 1}
        policy = {"schedulingPolicy": {"minAvailable": least}}
        job = self.add(PYTORCH.gvr, {"metadata": meta, "spec": {PYTORCH.replicas_field: types, "runPolicy": policy}})
        owner = {"apiVersion": API_VERSION, "kind": PYTORCH.kind, "uid": job["metadata"]["uid"], "controller": True}
        names = [f"{name}-{kind.lower()}-{index}" for kind, count in replicas.items() for index in range(count)]
        for pod in names:
            marks = {REPLICA_TYPE: pod.split("-")[-2]}
            pod_meta = {"name": pod, "namespace": "default", "labels": marks, "ownerReferences": [owner]}
            self.add(PODS, {"metadata": pod_meta, "spec": template["spec"]})
        return names

    def list_bound(self, *names: str) -> list[str]:
        return [name for name in names if self.get(PODS, name)["spec"].get("nodeName")]

    def look(self) -> Plan:
        """Passes until nothing changes; what the last one that wrote did."""
        last = Plan()
        for _ in range(20):
            plan = self.run(CONTROLLER, "local", namespace="")
            if not plan.all_writes:
                return last
            last = plan
        raise AssertionError("no end")

    def report(self) -> Plan:
        plan = self.run(CONTROLLER, REPORT.name, namespace="")
        return plan

    def is_bound(self, *names: str) -> bool:
        found = {bool(self.get(PODS, name)["spec"].get("nodeName")) for name in names}
        assert len(found) == 1, f"some of {names} are bound and some are not"
        return found.pop()

    def end(self, *names: str, phase: str = "Succeeded") -> None:
        for name in names:
            self.merge(PODS, name, {"status": {"phase": phase}})

    def remove(self, *names: str) -> None:
        for name in names:
            del self.objects[PODS, "default", name]

    def get_condition(self, name: str) -> str:
        conditions = (self.get(PODS, name).get("status") or {}).get("conditions") or [{"message": ""}]
        return str(conditions[0]["message"])

    def get_sentence(self, *names: str) -> str:
        """What the one Pod of the gang that speaks for it says."""
        found = [mark["message"] for name in names if (mark := find_annotated(self.get(PODS, name))) is not None]
        assert len(found) == 1, found
        return str(found[0])

    def list_leases(self, *names: str) -> list[str]:
        return [device for name in names for device in list_leased(self.get(PODS, name))]

    def _tick(self) -> str:
        """Everything is made a minute after what was made before."""
        self._minutes += 1
        return format_time(NOW + timedelta(minutes=self._minutes))


def translate(requests: dict[str, str]) -> dict[str, str]:
    return {"nvidia.com/gpu" if name == "gpu" else name: amount for name, amount in requests.items()}


def make_role(name: str, nodes: int = 1, after: dict[str, str] | None = None, **requests: str) -> Object:
    pod = {"spec": {"containers": [{"name": "main", "resources": {"requests": translate(requests)}}]}}
    job = {"parallelism": nodes, "completions": nodes, "template": pod}
    depends = [{"name": other, "status": status} for other, status in (after or {}).items()]
    return {"name": name, "replicas": 1, "template": {"spec": job}, **({"dependsOn": depends} if depends else {})}
