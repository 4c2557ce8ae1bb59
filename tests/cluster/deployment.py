"""The operator in Pods of a `RealCluster`: non-root, a read-only root, no capabilities, in a `restricted` namespace."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.kube.images import TRAINMASTER
from tests.kube.real import RealCluster
from trainmaster.api.meta import Object
from trainmaster.operator.names import NAME, NAMESPACE

_LABELS = {"app.kubernetes.io/name": NAME}
HISTORY = "/var/lib/trainmaster/history"
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def build_deployment(arguments: Sequence[str] = (), replicas: int = 1) -> Object:
    container = {
        "name": "operator",
        "image": TRAINMASTER,
        "imagePullPolicy": "Never",
        "args": ["operator", "--history", HISTORY, *arguments],
        "securityContext": _CONTAINED,
        "resources": {"limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "history", "mountPath": HISTORY}],
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": RESTRICTED,
        "containers": [container],
        "volumes": [{"name": "history", "emptyDir": {}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def deploy(cluster: RealCluster, *arguments: str) -> None:
    """Returns once one leads: it has installed its runtimes by then."""
    cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    cluster.apply(json.dumps(build_deployment(arguments)))
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
