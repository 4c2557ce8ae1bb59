"""The operator as a user installs it: the release `trainmaster` of the chart, in a `restricted` namespace."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.kube.images import TRAINMASTER
from tests.kube.real import RealCluster
from tests.support.installation import CHART, RELEASE, Helm
from trainmaster.api.meta import Object
from trainmaster.operator.names import NAME, NAMESPACE

HISTORY = "/var/lib/trainmaster/history"
_REGISTRY, _, _IMAGE = TRAINMASTER.partition("/")
_REPOSITORY, _, _TAG = _IMAGE.partition(":")
VALUES: Object = {
    "image": {"registry": _REGISTRY, "repository": _REPOSITORY, "tag": _TAG, "pullPolicy": "Never"},
    # The archive is lost with the Pod, as there are no volumes here; so there can be only one.
    "manager": {"replicas": 1},
    "history": {"enabled": True, "directory": HISTORY, "persistence": {"enabled": False}},
}
_PATIENCE = ("--wait", "--timeout", "120s")


def make_helm(cluster: RealCluster) -> Helm:
    return Helm(cluster.find_program("helm"), cluster.work, cluster.kubeconfig)


def deploy(cluster: RealCluster) -> None:
    """Returns once one leads: it has installed its runtimes by then."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    meta = {"name": NAMESPACE, "labels": labels}
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}))
    helm, runtime = make_helm(cluster), "clustertrainingruntime/torch-distributed"
    place = ("--namespace", NAMESPACE, "--create-namespace")
    try:
        helm.run("install", RELEASE, str(CHART), *place, *_PATIENCE, helm.write(VALUES))
        cluster.kubectl("wait", "--for=create", runtime, "--timeout=60s")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{read_log(cluster)}") from None


def upgrade(cluster: RealCluster, *assignments: str) -> None:
    sets = [part for one in assignments for part in ("--set", one)]
    make_helm(cluster).run("upgrade", RELEASE, str(CHART), "-n", NAMESPACE, *_PATIENCE, "--reuse-values", *sets)


def uninstall(cluster: RealCluster) -> None:
    make_helm(cluster).run("uninstall", RELEASE, "-n", NAMESPACE, *_PATIENCE)


def run_command(cluster: RealCluster, action: str, *arguments: str) -> str:
    """`trainmaster operator install`, for example."""
    command = [sys.executable, "-m", "trainmaster.cli", "operator", action, *arguments]
    done = subprocess.run([*command, "--kubeconfig", str(cluster.kubeconfig)], capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert done.returncode == 0, f"{text}\n{read_log(cluster)}"
    return text


def await_gone(cluster: RealCluster, pods: set[str]) -> None:
    """Helm does not wait for the Pods that it removes."""
    cluster.kubectl("wait", "--for=delete", *sorted(pods), "-n", NAMESPACE, "--timeout=60s")


def list_operators(cluster: RealCluster) -> set[str]:
    """The names of its Pods."""
    selector = ("-l", f"app.kubernetes.io/name={NAME}", "-n", NAMESPACE)
    return set(cluster.kubectl("get", "pods", *selector, "-o", "name").split())


def read_record(cluster: RealCluster, job: str, namespace: str) -> str:
    """What the operator's archive says about a job; empty if it has no record of it."""
    command = ["exec", f"deployment/{NAME}", "-n", NAMESPACE, "--", "trainmaster"]
    command += ["history", "get", job, "-n", namespace, "--archive", HISTORY]
    try:
        return cluster.kubectl(*command)
    except AssertionError:
        return ""


def read_log(cluster: RealCluster) -> str:
    """Of the operator's Pods, with what kept them from starting."""
    pods = cluster.kubectl("describe", "pods", "-n", NAMESPACE)
    return pods + cluster.kubectl("logs", f"deployment/{NAME}", "-n", NAMESPACE, "--tail=200")
