"""The real node of a `RealCluster`: containerd with runc and a bridge, and kubelet. Both run wholly inside
`Namespaces`.

Configurations are written here; who starts first, and what the API server needs, is decided in tests/kube/real.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kube.images import PAUSE
from tests.kube.namespaces import ADDRESS
from tools.image import Image, write_image
from tools.pod_root import NODE_ROOT
from tools.toolbox import Unavailable

if TYPE_CHECKING:
    from tests.kube.real import RealCluster

NODE = "real-0"
PODS = "10.201.0.0/16"
"""The addresses of Pods."""


class RealNode:
    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._work = cluster.work / "node"
        self._work.mkdir()
        self._socket = self._work / "containerd.sock"

    @property
    def root(self) -> Path:
        found = self._cluster.toolbox.find_root(NODE_ROOT)
        if found is None:
            raise Unavailable(self._cluster.toolbox.why_missing(NODE_ROOT))
        return found

    @property
    def environ(self) -> dict[str, str]:
        """containerd looks for its shim on the path, and runc for its library."""
        shim = self._cluster.find_program("containerd-shim-runc-v2").parent
        folders = [shim, self.root / "wrapped", self.root / "usr/sbin", *map(Path, os.environ["PATH"].split(":"))]
        return {"PATH": ":".join(str(folder) for folder in folders)}

    def start_containerd(self) -> None:
        networks = self._work / "networks"
        networks.mkdir()
        (networks / "10-bridge.conflist").write_text(json.dumps(self._build_network()))
        config = self._work / "containerd.toml"
        config.write_text(self._build_containerd_config(networks))
        self._cluster.start_inside("containerd", ["-c", str(config)], self.environ)
        self._cluster.processes.wait_until("containerd", lambda: self._ctr("version").returncode == 0)

    def _build_network(self) -> dict[str, Any]:
        addresses = {
            "type": "host-local",
            "ranges": [[{"subnet": PODS}]],
            "dataDir": str(self._work / "addresses"),
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}

    def _build_containerd_config(self, networks: Path) -> str:
        runtime = 'plugins."io.containerd.cri.v1.runtime"'
        return f"""
version = 3
root = "{self._work}/containerd"
state = "/run/containerd"
[grpc]
address = "{self._socket}"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[{runtime}]
restrict_oom_score_adj = true
[{runtime}.cni]
bin_dirs = ["{self.root}/usr/lib/cni"]
conf_dir = "{networks}"
[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
BinaryName = "{self.root}/usr/sbin/runc"
SystemdCgroup = false
"""

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = self._cluster.find_program("ctr")
        command = [*self._cluster.namespaces.enter(), str(program), "-a", str(self._socket), "-n", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, preexec_fn=self._cluster.namespaces.join)

    def load(self, image: Image) -> None:
        """Makes an image known to kubelet."""
        archive = write_image(image, self._work / "image.tar")
        done = self._ctr("images", "import", str(archive))
        archive.unlink()
        assert done.returncode == 0, f"{image.name}: {done.stderr}"

    def start_kubelet(self) -> None:
        port = self._cluster.take_port()
        resolver = self._work / "resolv.conf"
        resolver.write_text(f"nameserver {ADDRESS}\n")
        config = self._work / "kubelet.json"
        config.write_text(json.dumps(self._build_kubelet_config(resolver, port)))
        arguments = ["--config", str(config), "--root-dir", str(self._work / "kubelet")]
        arguments += ["--cert-dir", str(self._work / "keys"), "--hostname-override", NODE, "--node-ip", ADDRESS]
        arguments += ["--kubeconfig", str(self._cluster.write_kubeconfig("kubelet"))]
        self._cluster.start_inside("kubelet", arguments, self.environ)
        self._cluster.processes.wait_ready("kubelet", f"http://127.0.0.1:{port}/healthz")

    def _build_kubelet_config(self, resolver: Path, health_port: int) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "address": ADDRESS,
            "port": 10250,
            "readOnlyPort": 0,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": health_port,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._cluster.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "protectKernelDefaults": True,
            "makeIPTablesUtilChains": False,
            "resolvConf": str(resolver),
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "podLogsDir": str(self._work / "logs"),
            "volumePluginDir": str(self._work / "plugins"),
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
            "imageGCHighThresholdPercent": 99,
            "imageGCLowThresholdPercent": 98,
            "seccompDefault": True,
            "nodeStatusUpdateFrequency": "5s",
            # A failing Pod is tried again after this instead of after five minutes, so that tests see a loop.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
            "featureGates": {"KubeletCrashLoopBackOffMax": True},
        }
