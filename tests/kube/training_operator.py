"""training-operator 1.8, which runs the kinds of `kubeflow.org/v1`, beside the control plane, with its webhooks.

It manages the certificate of its webhooks itself. Nothing turns that off, but it leaves a Secret alone whose
certificates are valid for more than 90 days. Then it waits for a file in a fixed folder, although its server reads the
certificate below the folder for temporary files. So only one can run on a machine at a time; a second one waits.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kube.cluster import KubeCluster
from tests.kube.keys import Authority, generate_rsa
from tests.kube.managers import VOLCANO_PODGROUPS, install_manager, prepare_manager, render, webhooks_on_loopback
from tools.cache import exclusive

NAME = "training-operator"
NAMESPACE = "kubeflow"
_SCOPE = {"namespace": NAMESPACE}
_BASE = "base"
_AWAITED = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")
"""Fixed in its source."""
_VALIDITY = datetime.timedelta(days=730)


def install_training_operator(cluster: KubeCluster) -> None:
    """CRDs and rules, and the PodGroup kinds of the two gang schedulers that it knows."""
    coscheduling = cluster.toolbox.find_manifest(NAME, "coscheduling.yaml")
    assert coscheduling is not None
    cluster.apply(coscheduling.read_text())
    cluster.apply(json.dumps(VOLCANO_PODGROUPS))
    rules = ("role", "cluster-role-binding", "service-account")
    folders = [f"{_BASE}/crds", *(f"{_BASE}/rbac/{name}.yaml" for name in rules)]
    install_manager(cluster, _SCOPE, render(cluster, NAME, "manifests", folders, **_SCOPE))


@contextmanager
def running_training_operator(
    cluster: KubeCluster, *, gang: str = "", threads: int = 1, schemes: Sequence[str] = ()
) -> Iterator[None]:
    """With upstream's settings. `gang`: `volcano`, or the name of a scheduler that knows PodGroups. `schemes`: the only
    kinds that it runs."""
    with exclusive(_AWAITED.with_name(".lock")):
        placed = not _AWAITED.exists()
        try:
            _start(cluster, gang, threads, schemes)
            yield
        finally:
            if NAME in cluster.processes.pids:
                cluster.processes.kill(NAME)
            if placed:
                _AWAITED.unlink(missing_ok=True)


def _start(cluster: KubeCluster, gang: str, threads: int, schemes: Sequence[str]) -> None:
    folder = prepare_manager(cluster, NAME)
    authority = Authority(folder, generate_rsa(), names=(f"{NAME}-ca",), validity=_VALIDITY)
    authority.write_key()
    authority.issue_server("localhost", f"{NAME}.{NAMESPACE}.svc")
    if not _AWAITED.exists():
        _AWAITED.write_bytes((folder / "tls.crt").read_bytes())
    files = ("ca.crt", "ca.key", "tls.crt", "tls.key")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{NAME}-webhook-cert", "namespace": NAMESPACE},
        "data": {name: base64.b64encode((folder / name).read_bytes()).decode() for name in files},
    }
    cluster.apply(json.dumps(secret))
    ports = cluster.ports
    hooks = render(cluster, NAME, "manifests", [f"{_BASE}/webhook"], **_SCOPE)
    hooks = webhooks_on_loopback(hooks, ports[f"{NAME}-webhook"], folder / "ca.crt")
    cluster.apply(hooks)
    flags = {
        "kubeconfig": str(cluster.work / f"{NAME}.kubeconfig"),
        "metrics-bind-address": f"127.0.0.1:{ports[f'{NAME}-metrics']}",
        "health-probe-bind-address": f"127.0.0.1:{ports[f'{NAME}-health']}",
        "webhook-server-port": str(ports[f"{NAME}-webhook"]),
        "controller-threads": str(threads),
        "zap-log-level": "info",
    }
    if gang:
        flags["gang-scheduler-name"] = gang
    environ = {"TMPDIR": str(cluster.work / f"{NAME}-tmp"), "MY_POD_NAMESPACE": NAMESPACE}
    arguments = [*flags.items(), *(("enable-scheme", scheme) for scheme in schemes)]
    cluster.start_program(NAME, [f"--{flag}={value}" for flag, value in arguments], environ)
    # It is ready before its webhooks are; it has none of kinds that it does not run.
    urls = [hook["clientConfig"]["url"] for item in json.loads(hooks)["items"] for hook in item.get("webhooks", ())]
    served = [url for url in urls if not schemes or url.rpartition("-")[2] in map(str.lower, schemes)]
    for url in (f"http://127.0.0.1:{ports[f'{NAME}-health']}/readyz", *served):
        cluster.processes.wait_ready(NAME, url)
