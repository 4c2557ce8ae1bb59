"""A world of objects for tests of pure reconcilers: a view over plain dictionaries, and a way to carry out plans.

It knows merge patches, uids and resource versions, and nothing else of an API server: no defaults, no validation, no
garbage collection. Tests that need those use the real in-process cluster (tests/flow).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from trainmaster.api.meta import GVR, Object
from trainmaster.client.writes import Create, Delete, Patch, Write
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import Plan
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


class World:
    def __init__(self) -> None:
        self.objects: dict[tuple[GVR, str, str], Object] = {}
        self._counter = 0

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        return self.objects.get((gvr, namespace, name))

    def get(self, gvr: GVR, name: str, namespace: str = "default") -> Object:
        return self.objects[gvr, namespace, name]

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        found = []
        for (other, space, _), obj in sorted(self.objects.items(), key=lambda item: item[0][1:]):
            own = obj["metadata"].get("labels") or {}
            matches = all(own.get(key) == value for key, value in (labels or {}).items())
            if other == gvr and namespace in ("", space) and matches:
                found.append(obj)
        return found

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return [
            obj
            for obj in self.list(gvr, namespace)
            if any(ref["uid"] == owner_uid for ref in obj["metadata"].get("ownerReferences") or ())
        ]

    def add(self, gvr: GVR, obj: Mapping[str, Any]) -> Object:
        new = deepcopy(dict(obj))
        self._counter += 1
        meta = new["metadata"]
        meta.setdefault("uid", f"uid-{self._counter}")
        meta.setdefault("creationTimestamp", format_time(NOW))
        meta["resourceVersion"] = str(self._counter)
        self.objects[gvr, meta.get("namespace", ""), meta["name"]] = new
        return new

    def merge(self, gvr: GVR, name: str, patch: Mapping[str, Any], namespace: str = "default") -> Object:
        old = self.objects[gvr, namespace, name]
        head = patch.get("metadata") or {}
        for key in ("uid", "resourceVersion"):
            assert head.get(key, old["metadata"][key]) == old["metadata"][key], f"{key} of {name} moved on"
        return self.add(gvr, _merge(old, patch))

    def carry_out(self, writes: Sequence[Write]) -> None:
        for write in writes:
            match write:
                case Create(gvr, obj):
                    key = (gvr, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
                    assert key not in self.objects, f"{key} exists"
                    self.add(gvr, obj)
                case Patch(gvr, namespace, name, patch, _):
                    self.merge(gvr, name, patch, namespace)
                case Delete(gvr, namespace, name):
                    del self.objects[gvr, namespace, name]

    def run(self, controller: Controller, name: str, now: datetime = NOW, namespace: str = "default") -> Plan:
        """One pass, carried out."""
        plan = controller.reconcile(self, Request(namespace, name), Now(now), ())
        self.carry_out(plan.all_writes)
        return plan


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    result = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def make_runtime(
    *,
    name: str = "torch-distributed",
    nodes: int = 1,
    policy: Mapping[str, Any] | None = None,
    jobset: Mapping[str, Any] | None = None,
    job: Mapping[str, Any] | None = None,
) -> Object:
    container = {"name": "node", "image": "image:1", "resources": {}}
    pod = {"metadata": {}, "spec": {"containers": [container]}}
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": pod, **(job or {})},
    }
    replicated = {"name": "node", "groupName": "default", "replicas": 1, "template": template}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": nodes, **({"torch": {}} if policy is None else policy)},
            "template": {"spec": {"replicatedJobs": [replicated], **(jobset or {})}},
        },
    }


def make_trainjob(
    *, name: str = "a-torch", runtime: str = "torch-distributed", trainer: Mapping[str, Any] | None = None, **spec: Any
) -> Object:
    body: Object = {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": runtime},
        "suspend": False,
        **spec,
    }
    if trainer is not None:
        body["trainer"] = dict(trainer)
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": body,
    }


def make_jobset(*, name: str = "js", replicas: int = 1, completions: int = 2, **spec: Any) -> Object:
    pod = {"spec": {"containers": [{"name": "node", "image": "i"}], "restartPolicy": "Never"}}
    job = {"completionMode": "Indexed", "parallelism": completions, "completions": completions, "template": pod}
    replicated = {"name": "node", "groupName": "default", "replicas": replicas, "template": {"spec": job}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicatedJobs": [replicated], **spec},
    }


def make_job(*, name: str = "js-node-0", completions: int = 2, **spec: Any) -> Object:
    pod = {
        "metadata": {"labels": {}},
        "spec": {"containers": [{"name": "node", "image": "i"}], "restartPolicy": "Never"},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": completions,
            "completions": completions,
            "backoffLimit": 0,
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": pod,
            **spec,
        },
    }
