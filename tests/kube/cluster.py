"""`KubeCluster`: one real control plane in one folder, started by `with`, gone afterwards.

What differs from a cluster of machines: leader election is off; every program has a static token with the name that
upstream's RBAC rules expect; there is no kubelet, DNS or proxy (kwok plays the nodes); webhooks are called on loopback
addresses. Manifests of the managers come from their own modules, kept beside the programs by tools/toolbox.py.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kube.keys import FRONT_PROXY, Authority, Keys
from tests.kube.processes import Processes, free_port
from tests.support.kubectl import SHORT_LIVED
from tools.toolbox import OLDER, PROGRAMS, Toolbox, Unavailable

# Program -> user name and groups of its token.
USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "jobset": ("system:serviceaccount:jobset-system:jobset-controller-manager", "system:serviceaccounts"),
    "trainer": ("system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager", "system:serviceaccounts"),
    "training-operator": ("system:serviceaccount:kubeflow:training-operator", "system:serviceaccounts"),
    "kueue": ("system:serviceaccount:kueue-system:kueue-controller-manager", "system:serviceaccounts"),
    # Of a real node (tests/kube/real.py).
    "kubelet": ("system:node:real-0", "system:nodes"),
    "kube-proxy": ("system:kube-proxy", ""),
    "coredns": ("system:serviceaccount:kube-system:coredns", "system:serviceaccounts"),
}


_AUDIT_LOG = "audit.log"
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}
"""Writes only, without their content."""
_READS_TOO = {**_AUDIT_POLICY, "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}]}
"""Everything that service accounts do, and nothing else."""


@dataclass(frozen=True)
class Parts:
    """What to start beside etcd and kube-apiserver."""

    controller_manager: bool = True
    """Garbage collection, namespace deletion and service accounts need it."""
    scheduler: bool = False
    jobset: bool = False
    trainer: bool = False
    """Starts JobSet too."""
    training_operator: bool = False
    """Installs its kinds; `running_training_operator` starts it."""
    kueue: bool = False
    """Queues for Jobs, JobSets and TrainJobs, whose kinds must be among the cluster's manifests."""
    podgroups: bool = False
    """Installs the PodGroup kinds before Trainer looks for them, which it does once."""
    nodes: int = 0
    """Fake nodes; Pods on them become Running and Succeeded without anything being run."""
    rare_heartbeats: bool = False
    """Of these nodes: thousands of them then cost little."""
    running_ms: int = 0
    complete_ms: int = 0
    audited: bool = False
    """The audit log has every request of service accounts, also reads. kube-apiserver checks who may set owner
    references that block deletion."""
    unlimited: bool = False
    """Lifts the rate limits with which the controller manager and the scheduler ship."""


def choose_program(name: str) -> str:
    """With TRAINMASTER_OLDER_KUBERNETES=true the control plane is of an older minor version (`make heavy`)."""
    is_older = os.environ.get("TRAINMASTER_OLDER_KUBERNETES") == "true"
    return f"{OLDER}{name}" if is_older and f"{OLDER}{name}" in PROGRAMS else name


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


RARE_SECONDS = 3600
"""Of a node's lease with `Parts.rare_heartbeats`."""


class KubeCluster:
    def __init__(
        self,
        parts: Parts = Parts(),
        work: Path | None = None,
        toolbox: Toolbox | None = None,
        manifests: str = "",
    ) -> None:
        """`manifests` are applied before any controller starts."""
        self.parts = parts
        self.manifests = manifests
        self.toolbox = toolbox or Toolbox()
        self.tokens = {name: secrets.token_hex(16) for name in USERS}
        self.ports: dict[str, int] = {}
        self._own_folder = work is None
        self.work = Path(tempfile.mkdtemp(prefix="kube-")) if work is None else work
        self.work.mkdir(parents=True, exist_ok=True)
        self.processes = Processes(self.work)

    # ---- what tests read ----------------------------------------------------

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def etcd(self) -> str:
        return f"http://127.0.0.1:{self.ports['etcd']}"

    @property
    def token(self) -> str:
        """The administrator's."""
        return self.tokens["admin"]

    @property
    def ca(self) -> Path:
        return self.work / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.work / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.work / _AUDIT_LOG

    def read_audit(self, namespace: str) -> list[dict[str, Any]]:
        """The writes in a namespace that the API server has answered so far: who, what, when, and the answer's code."""
        with self.audit_log.open() as lines:
            # The last line may not be complete yet.
            found = [json.loads(line) for line in lines if f'"{namespace}"' in line and line.endswith("\n")]
        return [event for event in found if event["objectRef"].get("namespace") == namespace]

    def read_requests(self, user: str) -> list[dict[str, Any]]:
        """The requests of a service account, if the cluster is `audited`."""
        with self.audit_log.open() as lines:
            found = [json.loads(line) for line in lines if user in line and line.endswith("\n")]
        return [event for event in found if event["user"]["username"] == user]

    @property
    def front_proxy(self) -> Authority:
        """Signs what API servers prove themselves with when they pass requests on."""
        return self._keys.front_proxy

    def issue(self, user: str, groups: tuple[str, ...], folder: Path) -> tuple[Path, Path]:
        """A client certificate: (certificate, key)."""
        return self._keys.issue(user, groups, folder)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        program = self.toolbox.find_program("kubectl") or self.toolbox.find_kubectl()
        if program is None:
            raise Unavailable(self.toolbox.why_missing("kubectl"))
        command = [str(program), "--kubeconfig", str(self.kubeconfig), *arguments]
        environ = {**os.environ, **SHORT_LIVED}
        done = subprocess.run(command, input=stdin, text=True, capture_output=True, env=environ)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, manifests: str) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
        if "CustomResourceDefinition" in manifests:
            # A manager that meets a kind that is not served yet waits ten seconds before it looks again.
            self._await_definitions()

    def _await_definitions(self) -> None:
        """Looks itself: `kubectl wait` ends with an error while a definition still has `conditions: null`."""
        end = time.monotonic() + 60
        while not all(map(_is_established, json.loads(self.kubectl("get", "crd", "-o", "json"))["items"])):
            assert time.monotonic() < end, "kinds are not served after 60 s"
            time.sleep(0.05)

    # ---- life ---------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.stop_processes()
        if self._own_folder:
            shutil.rmtree(self.work, ignore_errors=True)

    def stop_processes(self) -> None:
        self.processes.stop()

    def _start(self) -> None:
        self._keys = self.make_keys()
        self._start_etcd()
        self._start_apiserver()
        for name in USERS:
            self.write_kubeconfig(name)
        self._install()
        if self.parts.controller_manager:
            extra = ["--use-service-account-credentials", "--root-ca-file", "ca.crt"]
            extra += ["--service-account-private-key-file", "sa.key"]
            if self.parts.rare_heartbeats:
                extra += [f"--node-monitor-grace-period={2 * RARE_SECONDS}s"]
            self._start_core("kube-controller-manager", extra)
        if self.parts.scheduler or self.parts.nodes:
            self._start_core("kube-scheduler", [])
        if self.parts.controller_manager:
            # Its health says nothing about its loops; the default account exists once one of them has run.
            account = f"{self.server}/api/v1/namespaces/default/serviceaccounts/default"
            self.processes.wait_ready("kube-controller-manager", account, token=self.token)
        self._start_extras()

    def make_keys(self) -> Keys:
        return Keys(self.work)

    def _install(self) -> None:
        """What the controller manager finds at its start. It meets kinds that are added later within 30 seconds, and
        until then it collects none of their garbage and counts none for a quota."""
        # Imported here: managers.py needs KubeCluster, and the plain control plane needs none of it.
        from tests.kube.kueue import install_kueue
        from tests.kube.managers import install_jobset, install_trainer
        from tests.kube.training_operator import install_training_operator

        if self.parts.jobset or self.parts.trainer:
            install_jobset(self)
        if self.parts.trainer:
            install_trainer(self, podgroups=self.parts.podgroups)
        if self.parts.training_operator:
            install_training_operator(self)
        if self.parts.kueue:
            install_kueue(self)
        if self.manifests:
            self.apply(self.manifests)

    def _start_extras(self) -> None:
        from tests.kube.kueue import start_kueue
        from tests.kube.managers import start_jobset, start_nodes, start_trainer

        if self.parts.nodes:
            start_nodes(self)
        if self.parts.jobset or self.parts.trainer:
            start_jobset(self)
        if self.parts.trainer:
            start_trainer(self)
        if self.parts.kueue:
            start_kueue(self)

    def take_port(self) -> int:
        """For a program of the cluster; the tests reach it under the same number."""
        return free_port()

    def start_program(self, name: str, arguments: list[str], environ: dict[str, str] | None = None) -> None:
        wanted = choose_program(name)
        program = self.toolbox.find_program(wanted)
        if program is None:
            raise Unavailable(self.toolbox.why_missing(wanted))
        self.processes.start(name, program, arguments, environ)

    def _start_etcd(self) -> None:
        self.ports["etcd"], self.ports["etcd-peer"] = self.take_port(), self.take_port()
        self._launch_etcd()
        self.await_etcd()

    def _launch_etcd(self) -> None:
        peer = f"http://127.0.0.1:{self.ports['etcd-peer']}"
        arguments = ["--data-dir", "etcd-data", "--log-level", "warn", "--initial-cluster", f"default={peer}"]
        arguments += ["--listen-client-urls", self.etcd, "--advertise-client-urls", self.etcd]
        arguments += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        self.start_program("etcd", arguments)

    def await_etcd(self) -> None:
        self.processes.wait_ready("etcd", f"{self.etcd}/health")

    @contextmanager
    def without_etcd(self) -> Iterator[None]:
        """It is away meanwhile, and comes back at the same address with its data."""
        with self._without("etcd", self._launch_etcd):
            yield

    @contextmanager
    def without_apiserver(self) -> Iterator[None]:
        with self._without("kube-apiserver", self._launch_apiserver):
            yield

    @contextmanager
    def _without(self, name: str, launch: Callable[[], None]) -> Iterator[None]:
        """To be left on the thread that entered: a process that another thread started would end with that one."""
        self.processes.kill(name)
        try:
            yield
        finally:
            launch()
            self.processes.mark_replaced(name)

    def restart_apiserver(self) -> None:
        """Kills it and starts it again at the same address, as an upgrade or a crash does; does not wait for it."""
        with self.without_apiserver():
            pass

    def await_apiserver(self) -> None:
        self.processes.wait_ready("kube-apiserver", f"{self.server}/readyz", token=self.token)

    def _start_apiserver(self) -> None:
        self._launch_apiserver()
        self.await_apiserver()

    def _launch_apiserver(self) -> None:
        self.ports.setdefault("kube-apiserver", self.take_port())
        lines = [f'{self.tokens[name]},{user},{name},"{groups}"' for name, (user, groups) in USERS.items()]
        (self.work / "tokens.csv").write_text("\n".join(lines) + "\n")
        flags = {
            "etcd-servers": self.etcd,
            "bind-address": "127.0.0.1",
            "secure-port": str(self.ports["kube-apiserver"]),
            "tls-cert-file": "tls.crt",
            "tls-private-key-file": "tls.key",
            "client-ca-file": "ca.crt",
            "token-auth-file": "tokens.csv",
            "authorization-mode": "Node,RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": "sa.pub",
            "service-account-signing-key-file": "sa.key",
            "service-cluster-ip-range": "10.96.0.0/16",
            # A loopback address may not stand in Endpoints, so nothing publishes the server there.
            "endpoint-reconciler-type": "none",
            # How it proves itself to those to whom it passes requests on, and what it tells them.
            "proxy-client-cert-file": "front-proxy/proxy.crt",
            "proxy-client-key-file": "front-proxy/proxy.key",
            "requestheader-client-ca-file": "front-proxy/ca.crt",
            "requestheader-allowed-names": FRONT_PROXY,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "allow-privileged": "true",
            "audit-policy-file": "audit-policy.json",
            "audit-log-path": _AUDIT_LOG,
            **self.apiserver_flags(),
        }
        if self.parts.audited:
            flags["enable-admission-plugins"] = "OwnerReferencesPermissionEnforcement"
        (self.work / "audit-policy.json").write_text(json.dumps(_READS_TOO if self.parts.audited else _AUDIT_POLICY))
        self.start_program("kube-apiserver", [f"--{flag}={value}" for flag, value in flags.items()])

    def apiserver_flags(self) -> dict[str, str]:
        """What a subclass adds or replaces."""
        return {}

    def _start_core(self, name: str, extra: list[str]) -> None:
        self.ports[name] = self.take_port()
        config = str(self.work / f"{name}.kubeconfig")
        arguments = ["--kubeconfig", config, "--authentication-kubeconfig", config]
        arguments += ["--authorization-kubeconfig", config, "--bind-address", "127.0.0.1"]
        arguments += ["--secure-port", str(self.ports[name]), "--leader-elect=false", *extra]
        if self.parts.unlimited:
            arguments += ["--kube-api-qps=5000", "--kube-api-burst=5000"]
            if name == "kube-controller-manager":
                # Quotas of kinds that it met after its start are counted at the next round, by default in 5 minutes.
                arguments += ["--resource-quota-sync-period=2s"]
        self.start_program(name, arguments)
        self.processes.wait_ready(name, f"https://127.0.0.1:{self.ports[name]}/healthz")

    def write_kubeconfig(self, name: str, server: str = "") -> Path:
        """A kubeconfig (JSON is YAML) for one of USERS. `server`: the address, if it is another one."""
        cluster = {"server": server or self.server, "certificate-authority": str(self.ca)}
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "kube",
            "clusters": [{"name": "kube", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": self.tokens[name]}}],
            "contexts": [{"name": "kube", "context": {"cluster": "kube", "user": name, "namespace": "default"}}],
        }
        path = self.work / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1))
        return path
