"""The launcher of a tenant's MPIJob executes commands in its own workers, and in no other Pod."""

from __future__ import annotations

import time

import pytest

from tests.attacks.site import POD_SECONDS, Caller, Site, make_caller, unique
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
DIRECTORY = """
touch /trainmaster/gang/mine 2>/dev/null || echo not written to
rm -f /trainmaster/gang/* 2>/dev/null || echo not removed
ls /trainmaster/gang | wc -l
/etc/mpi/kubexec.sh {job}-worker-0 'ls -d /trainmaster/gang 2>/dev/null || echo not seen by a worker'
"""
TOKEN = "cat /var/run/secrets/kubernetes.io/serviceaccount/token"


def build_job(name: str, script: str, workers: int = 2) -> JSON:
    def build(command: list[str], **more: object) -> JSON:
        container = {"name": "mpi", "image": "plain", **({"command": command} if command else {})}
        return {"template": {"spec": {"containers": [container]}}, **more}

    specs = {"Launcher": build(["sh", "-c", script], restartPolicy="OnFailure"), "Worker": build([], replicas=workers)}
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


def run_launcher(caller: Caller, script: str, workers: int = 2) -> str:
    """What the launcher of a job prints. The job is deleted."""
    job = unique("mpi")
    path = caller.path("mpijobs", job, group="kubeflow.org/v1")
    caller.kube.create(caller.path("mpijobs", group="kubeflow.org/v1"), build_job(job, script.format(job=job), workers))
    try:
        ended = wait_for_end(caller, path)
        log = caller.read_log(f"{job}-launcher")
        assert ended == "Succeeded", log
        return log
    finally:
        caller.kube.delete(path)


def test_the_directory_where_workers_listen_is_the_launchers_alone_and_read_only(site: Site) -> None:
    log = run_launcher(site.ann, DIRECTORY)
    printed = [line for line in log.splitlines() if not line.startswith("+")]
    assert printed == ["not written to", "not removed", "2", "not seen by a worker"]


def test_the_launchers_account_can_do_nothing_else_for_its_tenant(site: Site) -> None:
    """Neither what the tenant may not do, nor what the tenant may: quotas and limits are those of the tenant."""
    ann, other = site.ann, unique("other")
    ann.start_pod(other, "sleep 600")
    ann.wait_for_pod(other, "Running")
    job = unique("mpi")
    path = ann.path("mpijobs", job, group="kubeflow.org/v1")
    ann.kube.create(
        ann.path("mpijobs", group="kubeflow.org/v1"), build_job(job, f"{TOKEN}; echo; sleep 600", workers=0)
    )
    ann.wait_for_pod(f"{job}-launcher", "Running")
    launcher = make_caller(site.server, ann.namespace, wait_for_token(ann, f"{job}-launcher"))
    roles = "rbac.authorization.k8s.io/v1"
    assert launcher.kube.call("GET", launcher.path("pods"))[0] == 200, "as upstream"
    for method, place, body in (
        ("GET", launcher.path("secrets"), None),
        ("GET", launcher.path("configmaps"), None),
        ("POST", launcher.path("pods"), launcher.build_pod("mine", "true")),
        ("DELETE", launcher.path("pods", other), None),
        ("POST", f"{launcher.path('pods', other, 'exec')}?command=id&stdout=true", None),
        ("POST", f"{launcher.path('pods', f'{job}-launcher', 'exec')}?command=id&stdout=true", None),
        ("POST", launcher.path("mpijobs", group="kubeflow.org/v1"), build_job("mine", "true")),
        ("PATCH", launcher.path("roles", f"{job}-launcher", group=roles), {"rules": []}),
        ("POST", launcher.path("serviceaccounts", "default", "token"), {}),
        ("GET", f"/api/v1/namespaces/{site.bob.namespace}/pods", None),
        ("GET", "/api/v1/nodes", None),
    ):
        assert launcher.kube.call(method, place, body)[0] == 403, (method, place)
    for group, resource in ((roles, "roles"), (roles, "rolebindings")):
        body = {"metadata": {"name": "mine"}}
        assert ann.kube.call("POST", ann.path(resource, group=group), body)[0] == 403, (
            "nor may the tenant grant it more"
        )
    launcher.close()
    ann.kube.delete(path)
    ann.kube.delete(f"{ann.path('pods', other)}?gracePeriodSeconds=0")


def wait_for_token(caller: Caller, pod: str) -> str:
    deadline = time.monotonic() + POD_SECONDS
    while not (found := caller.read_log(pod).strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
