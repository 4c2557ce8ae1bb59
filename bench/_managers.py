"""The two managers of TrainJobs that `bench/operator.py` compares, each a process on a control plane of its own.

Both act as their service accounts with the rights of their releases, check every create in a webhook on loopback, and
have no client limits that the bench reaches. What they ask of the API server is read from its audit log, so it is
counted in the same way for both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from bench.lifecycles import cpu_seconds
from tests.kube.cluster import USERS, KubeCluster, Parts
from tests.kube.managers import launch_trainer
from trainmaster.api.meta import Object
from trainmaster.operator.names import NAMESPACE
from trainmaster.operator.rights import SERVICE_ACCOUNT

_SKIPPED_VERBS = ("watch", "list")
"""Of the caches: as many whether there are ten jobs or none."""
_WRITES = ("create", "update", "patch", "delete", "deletecollection")
_SKIPPED_RESOURCES = ("leases", "tokenreviews", "subjectaccessreviews")
_NOT_NEEDED = ("Deployment", "PodDisruptionBudget", "NetworkPolicy")
"""Of what we print: the operator is a process here."""


class TrainJobManager(Protocol):
    """One side."""

    name: str
    user: str
    """Its user name at the API server."""
    parts: Parts

    def install(self, cluster: KubeCluster) -> None:
        """Before its first start."""

    def start(self, cluster: KubeCluster, server: str = "") -> int:
        """Returns its process id as soon as it works. `server`: the API server's address, if it is another one."""

    def kill(self, cluster: KubeCluster) -> None: ...


class Trainer:
    """Kubeflow Trainer's manager with raised limits."""

    name = "Trainer 2.3"
    user = USERS["trainer"][0]
    parts = Parts(trainer=True, nodes=2, unlimited=True, audited=True)

    def install(self, cluster: KubeCluster) -> None:
        """`KubeCluster` has started it."""
        self.kill(cluster)

    def start(self, cluster: KubeCluster, server: str = "") -> int:
        launch_trainer(cluster, server)
        return cluster.processes.pids["trainer"]

    def kill(self, cluster: KubeCluster) -> None:
        cluster.processes.kill("trainer")


class Operator:
    """`trainmaster operator`."""

    name = "trainmaster"
    user = SERVICE_ACCOUNT
    parts = Parts(jobset=True, nodes=2, unlimited=True, audited=True)
    process = "operator"

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        self._arguments = list(arguments)
        self._webhook_port = 0

    def install(self, cluster: KubeCluster) -> None:
        self._webhook_port = cluster.take_port()
        url = f"https://127.0.0.1:{self._webhook_port}"
        printed = run_cli("operator", "--print-manifests", "--without-deployment", "--webhooks", "--webhook-url", url)
        items = [item for item in yaml.safe_load(printed)["items"] if item["kind"] not in _NOT_NEEDED]
        # No webhook answers before the operator runs, and nothing but definitions, rights and webhooks is needed.
        cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def start(self, cluster: KubeCluster, server: str = "") -> int:
        url = f"https://127.0.0.1:{self._webhook_port}"
        arguments = ["--webhook-url", url, "--webhook-port", str(self._webhook_port), *self._arguments]
        return start_operator(cluster, self.process, arguments, server)

    def kill(self, cluster: KubeCluster) -> None:
        cluster.processes.kill(self.process)


def run_cli(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "trainmaster.cli", *arguments], check=True, capture_output=True, text=True
    ).stdout


def start_operator(cluster: KubeCluster, name: str, arguments: Sequence[str], server: str = "") -> int:
    """An operator as our service account; returns its process id once it leads and works."""
    launch_operator(cluster, name, arguments, server)
    log = cluster.processes.log(name)
    cluster.processes.wait_until(name, lambda: "operator.ready" in log.read_text(errors="replace"))
    return cluster.processes.pids[name]


def launch_operator(cluster: KubeCluster, name: str, arguments: Sequence[str], server: str = "") -> None:
    """Does not wait."""
    account = SERVICE_ACCOUNT.rpartition(":")[2]
    token = cluster.kubectl("create", "token", account, "-n", NAMESPACE, "--duration=24h").strip()
    path = cluster.work / f"{name}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(_write_config(cluster, token, server)))
    command = ["-m", "trainmaster.cli", "operator", "--kubeconfig", str(path), "--log-form", "json", *arguments]
    cluster.processes.start(name, Path(sys.executable), command)


def _write_config(cluster: KubeCluster, token: str, server: str) -> Object:
    place = {"server": server or cluster.server, "certificate-authority": str(cluster.ca)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kube",
        "clusters": [{"name": "kube", "cluster": place}],
        "users": [{"name": "operator", "user": {"token": token}}],
        "contexts": [{"name": "kube", "context": {"cluster": "kube", "user": "operator"}}],
    }


# ---- what a process costs --------------------------------------------------------


def read_cpu(pid: int) -> float:
    """Seconds so far."""
    return cpu_seconds([pid])


def read_memory(pid: int) -> float:
    """Resident MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024 / 1e6


class Requests:
    """What is asked of the API server from now on, without the requests of caches, of leases and of reviews."""

    def __init__(self, cluster: KubeCluster, user: str = "") -> None:
        """`user`: of whom; "" is everybody."""
        self._path = cluster.audit_log
        self._user = user
        self._offset = self._path.stat().st_size

    def count(self) -> Counter[str]:
        """Since the last time, by verb and resource."""
        return Counter(map(_name_request, self._take()))

    def count_writes(self, *, beside: str) -> Counter[str]:
        """Since the last time, without those for the TrainJob `beside`."""
        found = (event for event in self._take() if event["verb"] in _WRITES)
        return Counter(_name_request(event) for event in found if beside not in event["requestURI"] + _get_name(event))

    def _take(self) -> list[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        mine = (json.loads(line) for line in complete.splitlines() if self._user.encode() in line)
        return [event for event in mine if self._counts(event)]

    def _counts(self, event: dict[str, Any]) -> bool:
        resource = (event.get("objectRef") or {}).get("resource", "")
        is_job_work = event["verb"] not in _SKIPPED_VERBS and resource not in ("", *_SKIPPED_RESOURCES)
        return is_job_work and (not self._user or event["user"]["username"] == self._user)


def _get_name(event: dict[str, Any]) -> str:
    return str(event["objectRef"].get("name", ""))


def _name_request(event: dict[str, Any]) -> str:
    place = event["objectRef"]
    return "/".join(filter(None, (f"{event['verb']} {place['resource']}", place.get("subresource", ""))))
