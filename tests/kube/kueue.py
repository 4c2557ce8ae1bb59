"""Kueue's manager beside the control plane, with its webhooks, which also convert its kinds, and its visibility API,
which tells positions in queues.

It reads certificates from fixed paths, /etc/kueue and /visibility, so it runs with a root of its own: a tmpfs in a
mount namespace of its own, with the folders of ours that it needs. That needs root.
"""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import yaml

from tests.kube.cluster import KubeCluster
from tests.kube.managers import install_manager, prepare_manager, render, webhooks_on_loopback
from tools.toolbox import Unavailable

_KUEUE = {"namespace": "kueue-system", "namePrefix": "kueue-"}
_FRAMEWORKS = ["batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]
_METRICS = "/etc/kueue/metrics/certs"
_IN_OWN_ROOT = f"""
set -e
here="$PWD"
mount -t tmpfs none /etc
for folder in /bin /lib /lib64 /usr /tmp /root /home /var /srv /proc /dev; do
    test ! -d $folder || {{ mkdir /etc$folder && mount --rbind $folder /etc$folder; }}
done
for folder in {_METRICS} /visibility; do mkdir -p /etc$folder && cp tls.crt tls.key /etc$folder/; done
exec chroot /etc /bin/sh -c 'cd "$0" && exec "$@"' "$here" "$0" "$@"
"""
_VISIBILITY = "visibility-server"


def install_kueue(cluster: KubeCluster) -> None:
    if os.geteuid():
        raise Unavailable("Kueue needs root here: it reads a certificate below /etc")
    prepare_manager(cluster, "kueue")
    cluster.ports["kueue-visibility"] = cluster.take_port()
    rendered = render(cluster, "kueue", "config", ["crd", "rbac", "visibility"], **_KUEUE)
    rendered = _convert_on_loopback(cluster, rendered)
    install_manager(cluster, _KUEUE, json.dumps(_serve_on_loopback(cluster, json.loads(rendered))))


def _convert_on_loopback(cluster: KubeCluster, rendered: str) -> str:
    bundle = base64.b64encode(cluster.ca.read_bytes()).decode()
    items = [item for item in yaml.safe_load_all(rendered) if item]
    for item in items:
        conversion = item["spec"].get("conversion") if item["kind"] == "CustomResourceDefinition" else None
        if conversion and "webhook" in conversion:
            url = f"https://127.0.0.1:{cluster.ports['kueue-webhook']}/convert"
            conversion["webhook"]["clientConfig"] = {"url": url, "caBundle": bundle}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _serve_on_loopback(cluster: KubeCluster, items: Any) -> Any:
    """The APIServices of the visibility API lead to a loopback port instead of Pods. Kustomize has moved a binding that
    belongs to kube-system."""
    for item in items["items"]:
        if item["kind"] == "RoleBinding" and item["metadata"]["name"].endswith("auth-reader"):
            item["metadata"]["namespace"] = "kube-system"
        if item["kind"] == "APIService":
            item["spec"]["service"]["port"] = cluster.ports["kueue-visibility"]
        if item["kind"] == "Service" and item["metadata"]["name"].endswith(_VISIBILITY):
            item["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    return items


def start_kueue(cluster: KubeCluster) -> None:
    hooks = render(cluster, "kueue", "config", ["webhook"], **_KUEUE)
    ports = cluster.ports
    certificates = cluster.work / "kueue-tmp" / "k8s-webhook-server" / "serving-certs"
    config: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": _KUEUE["namespace"],
        "webhook": {"host": "127.0.0.1", "port": ports["kueue-webhook"], "certDir": str(certificates)},
        "metrics": {"bindAddress": f"127.0.0.1:{ports['kueue-metrics']}"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['kueue-health']}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 500, "burst": 500},
        "integrations": {"frameworks": _FRAMEWORKS},
        "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": ports["kueue-visibility"]},
    }
    path = cluster.work / "kueue-config.yaml"
    path.write_text(json.dumps(config))
    program = cluster.toolbox.find_program("kueue")
    if program is None:
        raise Unavailable(cluster.toolbox.why_missing("kueue"))
    arguments = ["--config", str(path), "--kubeconfig", str(cluster.work / "kueue.kubeconfig"), "--zap-log-level", "2"]
    before = [*cluster.processes.before, "unshare", "--mount", "sh", "-c", _IN_OWN_ROOT]
    cluster.processes.start("kueue", program, arguments, before=before)
    cluster.processes.wait_ready("kueue", f"http://127.0.0.1:{ports['kueue-health']}/readyz")
    cluster.apply(webhooks_on_loopback(hooks, ports["kueue-webhook"], cluster.ca))
