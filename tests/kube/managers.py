"""What runs beside the control plane: JobSet, Trainer (with its webhooks and shipped runtimes) and kwok's fake nodes.

Their CRDs, RBAC rules, webhooks and stages are rendered from the manifests of their own releases. Pod annotations
steer kwok, by the names that recorded jobs have (`tests/golden`): `recipe/outcome: fail` lets the Pod fail (with
`recipe/exit-code`), `hang` lets it run until it is deleted; `recipe/after` says how long it runs.
"""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import yaml

from tests.kube.cluster import RARE_SECONDS, KubeCluster
from tools.toolbox import Unavailable

_OUTCOME, _EXIT_CODE, _AFTER = "recipe/outcome", "recipe/exit-code", "recipe/after"
_NODES_SECONDS = 600.0
_READY = '{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
_OWNERS = ["Job", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "MXJob", "JAXJob"]
"""Kinds whose Pods end by themselves."""

_JOBSET = {"namespace": "jobset-system", "namePrefix": "jobset-"}
_TRAINER = {"namespace": "kubeflow-system"}

# No Go module carries Volcano's CRD, so this one lets any content in.
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VOLCANO_PODGROUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANY, "status": _ANY}}},
            }
        ],
    },
}


def render(cluster: KubeCluster, program: str, kept: str, folders: list[str], **fields: Any) -> str:
    """Kustomizes folders of a program's own manifests."""
    root = cluster.toolbox.find_manifest(program, kept)
    if root is None:
        raise Unavailable(cluster.toolbox.why_missing(program))
    folder = cluster.work / f"{program}-kustomize"
    folder.mkdir(exist_ok=True)
    resources = [os.path.relpath(root / inside, folder.resolve()) for inside in folders]
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}
    (folder / "kustomization.yaml").write_text(json.dumps({**kustomization, **fields}))
    return cluster.kubectl("kustomize", str(folder), "--load-restrictor=LoadRestrictionsNone")


def webhooks_on_loopback(rendered: str, port: int, ca: Path) -> str:
    """Calls webhooks at a loopback port instead of an in-cluster Service."""
    bundle = base64.b64encode(ca.read_bytes()).decode()
    items = [item for item in yaml.safe_load_all(rendered) if item and item["kind"] != "Service"]
    for item in items:
        for hook in item.get("webhooks", []):
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def install_jobset(cluster: KubeCluster) -> None:
    install_manager(
        cluster, _JOBSET, render(cluster, "jobset", "config", ["components/crd", "components/rbac"], **_JOBSET)
    )


def install_trainer(cluster: KubeCluster, *, podgroups: bool) -> None:
    if podgroups:
        coscheduling = cluster.toolbox.find_manifest("trainer", "coscheduling.yaml")
        assert coscheduling is not None
        cluster.apply(coscheduling.read_text())
        cluster.apply(json.dumps(VOLCANO_PODGROUPS))
    install_manager(cluster, _TRAINER, render(cluster, "trainer", "manifests", ["base/crds", "base/rbac"], **_TRAINER))


def install_manager(cluster: KubeCluster, scope: dict[str, str], rendered: str) -> None:
    """With the namespace that the manager's objects lie in."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scope["namespace"]}}
    cluster.apply(f"{json.dumps(namespace)}\n---\n{rendered}")


def prepare_manager(cluster: KubeCluster, name: str) -> Path:
    """Ports and serving certificate; returns the folder of the certificate."""
    for part in ("webhook", "metrics", "health"):
        cluster.ports[f"{name}-{part}"] = cluster.take_port()
    folder = cluster.work / f"{name}-tmp" / "k8s-webhook-server" / "serving-certs"
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tls.crt", "tls.key"):
        (folder / file).write_bytes((cluster.work / file).read_bytes())
    return folder


def _start(cluster: KubeCluster, name: str, config: dict[str, Any]) -> None:
    path = cluster.work / f"{name}-config.yaml"
    path.write_text(json.dumps(config))
    arguments = ["--config", str(path), "--kubeconfig", str(cluster.work / f"{name}.kubeconfig")]
    # The webhook server looks for its certificate below the folder for temporary files.
    cluster.start_program(name, [*arguments, "--zap-log-level", "info"], {"TMPDIR": str(cluster.work / f"{name}-tmp")})
    cluster.processes.wait_ready(name, f"http://127.0.0.1:{cluster.ports[f'{name}-health']}/readyz")


def start_jobset(cluster: KubeCluster) -> None:
    certificates = str(prepare_manager(cluster, "jobset"))
    hooks = render(cluster, "jobset", "config", ["components/webhook"], **_JOBSET)
    ports = cluster.ports
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": ports["jobset-webhook"], "certDir": certificates},
        "metrics": {"bindAddress": f"127.0.0.1:{ports['jobset-metrics']}", "certDir": certificates},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['jobset-health']}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 500, "burst": 500},
    }
    _start(cluster, "jobset", config)
    cluster.apply(webhooks_on_loopback(hooks, ports["jobset-webhook"], cluster.ca))


def start_trainer(cluster: KubeCluster) -> None:
    prepare_manager(cluster, "trainer")
    launch_trainer(cluster)
    hooks = render(cluster, "trainer", "manifests", ["base/webhook"], **_TRAINER)
    cluster.apply(webhooks_on_loopback(hooks, cluster.ports["trainer-webhook"], cluster.ca))
    cluster.apply(render(cluster, "trainer", "manifests", ["overlays/runtimes"]))


def launch_trainer(cluster: KubeCluster, server: str = "") -> None:
    """Its process alone, also again after it was killed. `server`: the API server's address, if it is another one."""
    ports = cluster.ports
    config = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": ports["trainer-webhook"]},
        "metrics": {"bindAddress": f"127.0.0.1:{ports['trainer-metrics']}", "secureServing": False},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['trainer-health']}"},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "clientConnection": {"qps": 500, "burst": 500},
    }
    cluster.write_kubeconfig("trainer", server)
    _start(cluster, "trainer", config)


def start_nodes(cluster: KubeCluster) -> None:
    parts, stages = cluster.parts, cluster.work / "kwok.yaml"
    patches = _stage_patches(parts.running_ms, parts.complete_ms)
    rendered = render(cluster, "kwok", "kustomize", ["stage/fast"], patches=patches)
    stages.write_text(f"{rendered}---\n{json.dumps(_failing_stage(parts.complete_ms))}\n")
    cluster.ports["kwok"] = cluster.take_port()
    arguments = ["--kubeconfig", str(cluster.kubeconfig), "--config", str(stages), "--manage-all-nodes"]
    lease = RARE_SECONDS if parts.rare_heartbeats else 40
    arguments += ["--node-lease-duration-seconds", str(lease)]
    arguments += ["--server-address", f"127.0.0.1:{cluster.ports['kwok']}"]
    cluster.start_program("kwok", arguments, {"HOME": str(cluster.work)})
    add_nodes(cluster, range(parts.nodes))


def add_nodes(cluster: KubeCluster, numbers: range) -> None:
    """Further fake nodes; returns once all nodes are ready."""
    nodes = [_node(f"node-{number}") for number in numbers]
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    # `kubectl wait` looks at one node after the other, which takes minutes for thousands.
    deadline = time.monotonic() + _NODES_SECONDS
    while (missing := _count_unready(cluster)) and time.monotonic() < deadline:
        time.sleep(1)
    assert not missing, f"{missing} fake nodes are not ready after {_NODES_SECONDS:g} s"


def _count_unready(cluster: KubeCluster) -> int:
    listed = cluster.kubectl("get", "nodes", "--chunk-size=0", "-o", f"jsonpath={_READY}").split("\n")[:-1]
    return len(listed) - listed.count("True")


def _node(name: str) -> dict[str, Any]:
    size = {"cpu": "256", "memory": "2Ti", "pods": "10000", "nvidia.com/gpu": "64", "ephemeral-storage": "4Ti"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    status = {"capacity": size, "allocatable": size}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def _stage_patches(running_ms: int, complete_ms: int) -> list[dict[str, Any]]:
    def patch(stage: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        return {"target": {"kind": "Stage", "name": stage}, "patch": json.dumps(operations)}

    def delay(value: dict[str, Any]) -> dict[str, Any]:
        return {"op": "add", "path": "/spec/delay", "value": value}

    matches = "/spec/selector/matchExpressions"
    unsteered = {"key": _read_annotation(_OUTCOME), "operator": "DoesNotExist"}
    completing = [
        delay(_delay_end(complete_ms)),
        # Upstream's third expression lets the Pods of batch Jobs end.
        {"op": "replace", "path": f"{matches}/2/values", "value": _OWNERS},
        {"op": "add", "path": f"{matches}/-", "value": unsteered},
    ]
    ready = patch("pod-ready", [delay({"durationMilliseconds": running_ms})])
    return [ready, patch("pod-complete", completing)]


def _read_annotation(name: str) -> str:
    return f'.metadata.annotations["{name}"]'


def _delay_end(complete_ms: int) -> dict[str, Any]:
    return {"durationMilliseconds": complete_ms, "durationFrom": {"expressionFrom": _read_annotation(_AFTER)}}


def _failing_stage(complete_ms: int) -> dict[str, Any]:
    matches = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Running"]},
        {"key": _read_annotation(_OUTCOME), "operator": "In", "values": ["fail"]},
    ]
    terminated = "{exitCode: {{ $code }}, reason: Error, finishedAt: {{ Now | Quote }}, startedAt: {{ Now | Quote }}}"
    container = "{name: {{ .name | Quote }}, image: {{ .image | Quote }}, ready: false, restartCount: 0, started: false"
    template = (
        f'{{{{ $code := or ( index .metadata.annotations "{_EXIT_CODE}" ) "1" }}}}\n'
        "phase: Failed\ncontainerStatuses:\n{{ range .spec.containers }}\n"
        f"- {container}, state: {{terminated: {terminated}}}}}\n{{{{ end }}}}\n"
    )
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": "pod-fail"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "delay": _delay_end(complete_ms),
            "selector": {"matchExpressions": matches},
            "next": {"statusTemplate": template},
        },
    }
