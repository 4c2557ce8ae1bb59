"""The operator in Pods of a `RealCluster`, as an installation makes it: non-root, a read-only root, no capabilities, in
a `restricted` namespace. Its webhooks are not configured: tests of this tier also write what they would refuse.
"""

from __future__ import annotations

import json

from tests.kube.images import TRAINMASTER
from tests.kube.real import RealCluster
from trainmaster.api.meta import Object
from trainmaster.operator.install import build_objects, read_values
from trainmaster.operator.names import NAME, NAMESPACE

HISTORY = "/var/lib/trainmaster/history"


def build_values() -> Object:
    registry, _, name = TRAINMASTER.partition("/")
    repository, _, tag = name.partition(":")
    return {
        "image": {"registry": registry, "repository": repository, "tag": tag, "pullPolicy": "Never"},
        "manager": {"replicas": 1},
        "history": {"enabled": True, "directory": HISTORY, "persistence": {"enabled": False}},
        "webhook": {"enabled": False},
    }


def deploy(cluster: RealCluster) -> None:
    """Returns once one leads: it has installed its runtimes by then."""
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": build_objects(read_values(build_values()))}))
    runtime = "clustertrainingruntime/torch-distributed"
    try:
        cluster.kubectl("wait", "--for=create", runtime, "--timeout=60s")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{read_log(cluster)}") from None


def read_record(cluster: RealCluster, job: str, namespace: str) -> str:
    """What the operator's archive says about a job; empty if it has no record of it."""
    command = ["exec", f"deployment/{NAME}", "-n", NAMESPACE, "--", "/usr/bin/python3", "-m", "trainmaster.cli"]
    command += ["history", "get", job, "-n", namespace, "--archive", HISTORY]
    try:
        return cluster.kubectl(*command)
    except AssertionError:
        return ""


def read_log(cluster: RealCluster) -> str:
    """Of the operator's Pods, with what kept them from starting."""
    pods = cluster.kubectl("describe", "pods", "-n", NAMESPACE)
    return pods + cluster.kubectl("logs", f"deployment/{NAME}", "-n", NAMESPACE, "--tail=200")
