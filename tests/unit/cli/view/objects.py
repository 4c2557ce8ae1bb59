"""TrainJobs and Pods as a server would show them, for the tests of the view."""

from __future__ import annotations

from typing import Any

from trainmaster.api.meta import Object


def make_trainjob(nodes: int = 2, processes: int = 1, **status: Any) -> Object:
    return {
        "metadata": {"name": "train", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed-0123456789"},
            "trainer": {"numNodes": nodes, "numProcPerNode": processes},
        },
        "status": status,
    }


def make_condition(kind: str, reason: str = "", message: str = "") -> Object:
    when = "2026-01-01T00:01:30Z"
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": when}


def make_pod(index: int = 0, phase: str = "Running", attempt: int = 0, job: str = "node", **state: Any) -> Object:
    """`state` is that of its container: running=..., waiting=..., terminated=..."""
    labels = {
        "jobset.sigs.k8s.io/jobset-uid": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": job,
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    name = f"train-{job}-0-{index}-{attempt}"
    created = f"2026-01-01T00:00:0{attempt}Z"
    return {
        "metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": created},
        "spec": {"nodeName": "local"},
        "status": {"phase": phase, "containerStatuses": [{"name": "node", "state": state}]},
    }


STARTED = {"startedAt": "2026-01-01T00:00:05Z"}
