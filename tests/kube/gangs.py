"""The scheduler with the coscheduling plugin beside the cluster's own: Pods that name it get it, the others do not.

Its PodGroups are installed with it. It has the rights of kube-scheduler, and those to PodGroups.
"""

from __future__ import annotations

import json

from tests.kube.cluster import USERS, KubeCluster

SCHEDULER = "gangs"
"""What Pods have as their scheduler."""
_PROGRAM = "coscheduling"
_RBAC = "rbac.authorization.k8s.io"


def install_pod_groups(cluster: KubeCluster) -> None:
    found = cluster.toolbox.find_manifest(_PROGRAM, "podgroups.yaml")
    assert found is not None, cluster.toolbox.why_missing(_PROGRAM)
    cluster.apply(found.read_text())


def start_gang_scheduler(cluster: KubeCluster) -> None:
    """Returns when it is ready. The PodGroups must be installed before."""
    _grant(cluster)
    cluster.ports[_PROGRAM] = cluster.take_port()
    kubeconfig = str(cluster.work / "kube-scheduler.kubeconfig")
    plugin = [{"name": "Coscheduling"}]
    profile = {
        "schedulerName": SCHEDULER,
        "plugins": {
            "multiPoint": {"enabled": plugin},
            "queueSort": {"enabled": plugin, "disabled": [{"name": "*"}]},
        },
    }
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": kubeconfig},
        "profiles": [profile],
    }
    path = cluster.work / "gangs.json"
    path.write_text(json.dumps(config))
    arguments = ["--config", str(path), "--bind-address", "127.0.0.1", "--secure-port", str(cluster.ports[_PROGRAM])]
    # The plugin is not told of new nodes. Pods that it refused are looked at again after this (by default 5 minutes),
    # at the next of the scheduler's rounds, which are half a minute apart.
    arguments += ["--pod-max-in-unschedulable-pods-duration=10s"]
    arguments += ["--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig]
    cluster.start_program(_PROGRAM, arguments)
    cluster.processes.wait_ready(_PROGRAM, f"https://127.0.0.1:{cluster.ports[_PROGRAM]}/healthz")


def _grant(cluster: KubeCluster) -> None:
    meta = {"name": "gang-scheduler"}
    groups = {"apiGroups": ["scheduling.x-k8s.io"], "resources": ["podgroups", "podgroups/status"]}
    rules = [{**groups, "verbs": ["get", "list", "watch", "patch", "update"]}]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": meta["name"]},
        "subjects": [{"kind": "User", "apiGroup": _RBAC, "name": USERS["kube-scheduler"][0]}],
    }
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]}))
