"""The operator as a process of its own that a test can stop, continue and kill: `python -m tests.seam.operator_child`.

What the command line has no flags for (who it is, the times of its lease, when it kills itself) comes as JSON on
standard input; the process is `trainmaster operator` in everything else. It writes a line as soon as it leads.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.kube.cluster import KubeCluster
from trainmaster.client.contract import ActingIdentity
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import ClusterConfig
from trainmaster.engine.lease import LeaseLost, LeaseTimes
from trainmaster.jobs.models.v1jobs import MODELS
from trainmaster.kit import logs
from trainmaster.kit.clock import SystemClock
from trainmaster.operator.mode import OperatorSettings, work_until_stopped
from trainmaster.operator.webhooks.rotation import RotationTimes
from trainmaster.operator.webhooks.serving import WebhookSettings

_READY = "operator.ready"
_SECONDS = 60.0
_READS = ("GET", "WATCH")


@dataclass
class Orders:
    server: str
    token: str
    ca: str
    user: str
    namespace: str
    agent: str
    """Its name in the audit log."""
    webhook_port: int = 0
    overlap: float = 1.0
    """Of old and new certificate, and the seconds until the old one is forgotten."""
    v1_jobs: bool = False
    lease: dict[str, float] = field(default_factory=dict)
    kill_after: int = 0
    """It kills itself (SIGKILL) right after the answer to its n-th write to a job or its children; 0: never."""


class OperatorChild:
    def __init__(self, orders: Orders, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.seam.operator_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=Path(__file__).parents[2],
            )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(orders)).encode())
        self.process.stdin.close()

    def wait_until_leading(self) -> None:
        assert self.process.stdout is not None
        found, _, _ = select.select([self.process.stdout], [], [], _SECONDS)
        line = self.process.stdout.readline() if found else b""
        assert line.strip() == b"leading", self._log.read_text()[-4000:]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(_SECONDS)

    def read_log(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def running_child(orders: Orders, log: Path) -> Iterator[OperatorChild]:
    child = OperatorChild(orders, log)
    try:
        yield child
    finally:
        child.end()


def make_orders(cluster: KubeCluster, user: str, namespace: str, agent: str, **more: Any) -> Orders:
    return Orders(cluster.server, cluster.token, cluster.ca.read_text(), user, namespace, agent, **more)


# ---- in the child --------------------------------------------------------------


def _make_settings(orders: Orders) -> OperatorSettings:
    rotation = RotationTimes(overlap=orders.overlap, retire=orders.overlap)
    webhooks = WebhookSettings(orders.namespace, ("127.0.0.1",), "127.0.0.1", orders.webhook_port, rotation=rotation)
    lease: dict[str, Any] = orders.lease
    return OperatorSettings(
        namespaces=(orders.namespace,),
        lease_namespace=orders.namespace,
        lease_times=LeaseTimes(**lease),
        v1_jobs=MODELS if orders.v1_jobs else (),
        webhooks=webhooks if orders.webhook_port else None,
    )


async def _work(orders: Orders) -> None:
    writes = 0

    def observe(method: str, path: str, status: int) -> None:
        nonlocal writes
        if f"/namespaces/{orders.namespace}/" not in path or method in _READS or "/leases" in path or "/events" in path:
            return
        writes += 1
        if writes == orders.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    config = ClusterConfig(orders.server, token=orders.token, ca_pem=orders.ca)
    connection = HttpClient(config, user_agent=orders.agent, observe=observe)
    identity = ActingIdentity(orders.user, groups=("system:serviceaccounts", "system:authenticated"))
    try:
        await work_until_stopped(connection.as_user(identity), _make_settings(orders), SystemClock(), on_ready=_tell)
    finally:
        await connection.close()


def _tell() -> None:
    print("leading", flush=True)


def main() -> None:
    orders = Orders(**json.load(sys.stdin))
    logs.setup(level="info", form="text")
    try:
        asyncio.run(_work(orders))
    except LeaseLost as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
