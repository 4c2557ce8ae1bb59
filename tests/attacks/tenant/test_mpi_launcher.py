"""The launcher of a tenant's MPIJob executes commands in its own workers, and in no other Pod."""

from __future__ import annotations

import time

import pytest

from tests.attacks.site import POD_SECONDS, Caller, Site, unique
from tests.support.clients import JSON

pytestmark = pytest.mark.attacks

LAUNCHER = """
/etc/mpi/kubexec.sh {job}-worker-0 hostname
/etc/mpi/kubexec.sh {job}-worker-1 'echo out; echo err >&2; exit 7' || echo code $?
echo given | /opt/kube/kubectl exec -i {job}-worker-1 -- cat
/opt/kube/kubectl exec {other} -- hostname || echo not in another Pod
/opt/kube/kubectl exec -n bob {job}-worker-0 -- hostname || echo not in another namespace
[ -e /opt/kube/again ] || {{ touch /opt/kube/again; exit 1; }}
"""


def build_job(name: str, script: str) -> JSON:
    def build(command: list[str], **more: object) -> JSON:
        container = {"name": "mpi", "image": "plain", **({"command": command} if command else {})}
        return {"template": {"spec": {"containers": [container]}}, **more}

    specs = {"Launcher": build(["sh", "-c", script], restartPolicy="OnFailure"), "Worker": build([], replicas=2)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": specs},
    }


def wait_for_end(caller: Caller, path: str) -> str:
    deadline = time.monotonic() + POD_SECONDS
    while True:
        status = caller.kube.get(path).get("status", {})
        for condition in status.get("conditions", []):
            if condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True":
                return str(condition["type"])
        assert time.monotonic() < deadline, status
        time.sleep(0.05)


def test_a_tenants_launcher_reaches_its_workers_only(site: Site) -> None:
    ann, job, other = site.ann, unique("mpi"), unique("other")
    ann.start_pod(other, "sleep 600")
    ann.wait_for_pod(other, "Running")
    ann.kube.create(ann.path("mpijobs", group="kubeflow.org/v1"), build_job(job, LAUNCHER.format(job=job, other=other)))
    ended = wait_for_end(ann, ann.path("mpijobs", job, group="kubeflow.org/v1"))
    log = ann.read_log(f"{job}-launcher")
    status = ann.kube.get(ann.path("pods", f"{job}-launcher"))["status"]
    assert ended == "Succeeded" and status["containerStatuses"][0]["restartCount"] == 1, log
    printed = [line for line in log.splitlines() if not line.startswith(("+", "kubectl exec:"))]
    streams = sorted(printed[1:4])
    assert (printed[0], streams, printed[4:]) == (
        f"{job}-worker-0",
        ["code 7", "err", "out"],
        ["given", "not in another Pod", "not in another namespace"],
    ), log
    user = f'User "system:serviceaccount:{ann.namespace}:{job}-launcher" cannot'
    assert f'kubectl exec: pods "{other}" is forbidden: {user} create resource "pods/exec"' in log
    assert f'kubectl exec: pods "{job}-worker-0" is forbidden: {user} get resource "pods"' in log
    ann.kube.delete(ann.path("mpijobs", job, group="kubeflow.org/v1"))
    ann.kube.delete(f"{ann.path('pods', other)}?gracePeriodSeconds=0")
