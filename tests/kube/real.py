"""`RealCluster`: a control plane with one real node, whose Pods are containers; all of it in `Namespaces`.

What differs from a cluster of machines: there is one node, NetworkPolicies are not enforced, nothing outside is
reachable, CoreDNS runs as a process on the node's address, and the programs of the control plane have static tokens.
Pods reach the API server as `kubernetes.default`, Services through kube-proxy, and each other by name.

Tests use the session fixture `real_cluster` and talk to it from outside; a program that Pods must reach is started with
`start_beside`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.kube.cluster import KubeCluster, Parts
from tests.kube.images import BUSYBOX, PAUSE, build_busybox_layer, build_trainmaster_image
from tests.kube.keys import Keys
from tests.kube.namespaces import ADDRESS, Namespaces
from tests.kube.node import NODE, PODS, RealNode
from tests.support.installation import build_left_definitions
from tools.image import Image
from tools.pod_root import IMAGE_ROOT, NODE_ROOT
from tools.toolbox import Toolbox, Unavailable

PROGRAMS = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "jobset"),
    *("kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "coredns"),
)
API_SERVICE = "10.96.0.1"
_RBAC = "rbac.authorization.k8s.io"
_DNS_RULES = [
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]
_DNS_ROLE = [
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": _DNS_RULES,
    },
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
    },
]


def find_missing(toolbox: Toolbox) -> str:
    """Why a real cluster cannot be had here; empty when it can."""
    for name in PROGRAMS:
        if toolbox.find_program(name) is None:
            return toolbox.why_missing(name)
    for name in (NODE_ROOT, IMAGE_ROOT):
        if toolbox.find_root(name) is None:
            return toolbox.why_missing(name)
    return ""


def make_real_cluster(toolbox: Toolbox | None = None) -> RealCluster:
    """With the images of tests/kube/images.py, and with our kinds as a removed release leaves them: the controller
    manager knows them from its start. The operator is not there. Start it with `with`."""
    toolbox = toolbox or Toolbox()
    if missing := find_missing(toolbox):
        raise Unavailable(missing)
    kinds = json.dumps({"apiVersion": "v1", "kind": "List", "items": build_left_definitions()})
    return RealCluster(toolbox=toolbox, manifests=kinds, images=[build_trainmaster_image(toolbox)])


class RealCluster(KubeCluster):
    def __init__(
        self,
        work: Path | None = None,
        toolbox: Toolbox | None = None,
        manifests: str = "",
        images: Sequence[Image] = (),
        parts: Parts = Parts(jobset=True, scheduler=True, unlimited=True),  # noqa: B008  (frozen)
    ) -> None:
        super().__init__(parts, work, toolbox, manifests)
        self.node = RealNode(self)
        self.namespaces = Namespaces(self.work, self.node.root / "bin" / "busybox")
        self._images = images
        self._prepared: Future[None]

    # ---- what tests use -------------------------------------------------------

    def find_program(self, name: str) -> Path:
        program = self.toolbox.find_program(name)
        if program is None:
            raise Unavailable(self.toolbox.why_missing(name))
        return program

    def start_beside(self, name: str, program: Path, arguments: list[str]) -> None:
        """A program in the network of the node, whose address is `ADDRESS`; ended with `processes.kill(name)`."""
        self.processes.start(name, program, arguments)

    # ---- how it differs -------------------------------------------------------

    def take_port(self) -> int:
        return self.namespaces.open_port()

    def make_keys(self) -> Keys:
        keys = Keys(self.work, [ADDRESS, API_SERVICE])
        # As an administrator: it reads logs and starts commands on every node.
        keys.issue("kube-apiserver-kubelet-client", ("system:masters",), self.work, "kubelet-client")
        return keys

    def apiserver_flags(self) -> dict[str, str]:
        return {
            "bind-address": "0.0.0.0",
            "advertise-address": ADDRESS,
            "endpoint-reconciler-type": "lease",
            "enable-admission-plugins": "NodeRestriction",
            "kubelet-client-certificate": "kubelet-client.crt",
            "kubelet-client-key": "kubelet-client.key",
            "kubelet-preferred-address-types": "InternalIP",
        }

    def start_inside(self, name: str, arguments: list[str], environ: dict[str, str]) -> None:
        """A program of the node, which needs more of `Namespaces` than the network."""
        before, prepare = self.namespaces.enter(), self.namespaces.join
        self.processes.start(name, self.find_program(name), arguments, environ, before=before, prepare=prepare)

    def _start(self) -> None:
        self.namespaces.start()
        self.processes.before = self.namespaces.enter_network()
        with ThreadPoolExecutor(1) as other:
            # Images take seconds to unpack, and need no API server.
            self._prepared = other.submit(self._prepare_node)
            super()._start()
        self.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=60s")

    def _prepare_node(self) -> None:
        self.node.start_containerd()
        layer = build_busybox_layer(self.node.root / "bin" / "busybox")
        pause = Image(PAUSE, [layer], ["/bin/sleep", "2147483647"])
        for image in (pause, Image(BUSYBOX, [layer]), *self._images):
            self.node.load(image)

    def _start_extras(self) -> None:
        self.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": _DNS_ROLE}))
        self._start_dns()
        self._prepared.result()
        self.node.start_kubelet()
        # Before its Node exists kube-proxy would wait half a minute and go on without it.
        self.kubectl("wait", "--for=create", f"node/{NODE}", "--timeout=60s")
        self._start_proxy()
        super()._start_extras()

    def _start_dns(self) -> None:
        """On the node's address, where kubelet tells Pods to look."""
        port = self.take_port()
        config = self.work / "Corefile"
        config.write_text(f"""
.:53 {{
    bind {ADDRESS}
    errors
    ready 127.0.0.1:{port}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {self.write_kubeconfig("coredns")}
    }}
}}
""")
        self.start_program("coredns", ["-conf", str(config)])
        self.processes.wait_ready("coredns", f"http://127.0.0.1:{port}/ready")

    def _start_proxy(self) -> None:
        """Makes the addresses of Services work."""
        port = self.take_port()
        config = self.work / "kube-proxy.json"
        content = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": NODE,
            "clusterCIDR": PODS,
            "clientConnection": {"kubeconfig": str(self.write_kubeconfig("kube-proxy"))},
            "healthzBindAddress": f"127.0.0.1:{port}",
            "metricsBindAddress": f"127.0.0.1:{self.take_port()}",
            # The connection table is the whole machine's: its limits are left as they are.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        config.write_text(json.dumps(content))
        self.start_program("kube-proxy", ["--config", str(config)], self.node.environ)
        self.processes.wait_ready("kube-proxy", f"http://127.0.0.1:{port}/livez")

    def stop_processes(self) -> None:
        super().stop_processes()
        self.namespaces.stop()
