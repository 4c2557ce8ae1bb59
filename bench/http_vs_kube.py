"""GET and durable POST over TLS with authentication and RBAC on: ours against kube-apiserver with etcd, in one run.

The same load generator (bench/go/load, 16 kept-alive connections) talks to both with the token of a ServiceAccount
that a RoleBinding lets edit one namespace: no credential that skips authorization. POST creates ConfigMaps; both
servers answer after the write is on disk. Rounds alternate, so that a busy machine disturbs both.

"On the same cores": each server, with its store, has one core, and the load generator another one. Free-for-all figures
are printed as well; there kube-apiserver uses every core and ours still one.

Promise: at least 10x kube-apiserver's requests per second for both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench._report import Report
from tests.kube.cluster import KubeCluster
from tests.support.server import start_server
from tools.toolbox import Toolbox
from trainmaster.api.meta import GVR
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

RATIO = 10.0
PINNED = "pinned"
CONNECTIONS = 16
ROOT = Path(__file__).resolve().parent
RBAC = "rbac.authorization.k8s.io"
SERVICE_ACCOUNTS = GVR("", "v1", "serviceaccounts")
CONFIG_MAPS = GVR("", "v1", "configmaps")


@dataclass(frozen=True)
class Target:
    name: str
    url: str
    ca: Path
    token: Path
    pids: tuple[int, ...]
    """The server and its store."""

    def cpu_seconds(self) -> float:
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


async def prepare(name: str, url: str, ca: Path, kubeconfig: Path, folder: Path, pids: Iterable[int]) -> Target:
    """A namespace, a ServiceAccount that may edit it, its token, and the ConfigMap to read."""
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        await client.create(GVR("", "v1", "namespaces"), {"kind": "Namespace", "metadata": {"name": "bench"}})
        account = {"kind": "ServiceAccount", "metadata": {"name": "loader"}}
        await client.create(SERVICE_ACCOUNTS, account, "bench")
        binding = {
            "kind": "RoleBinding",
            "metadata": {"name": "loader"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "loader", "namespace": "bench"}],
        }
        await client.create(GVR(RBAC, "v1", "rolebindings"), binding, "bench")
        one = {"kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"key": "value"}}
        await client.create(CONFIG_MAPS, one, "bench")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await client.create(SERVICE_ACCOUNTS, request, "bench", name="loader", subresource="token")
    finally:
        await client.close()
    token = folder / f"{name}.token"
    token.write_text(answer["status"]["token"])
    return Target(name, url, ca, token, tuple(pids))


def pin(pids: Iterable[int], cores: set[int]) -> None:
    """Every thread of the processes onto these cores."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def load(tool: Path, target: Target, method: str, seconds: float, prefix: str, cores: set[int]) -> dict[str, Any]:
    path = "/api/v1/namespaces/bench/configmaps" + ("/one" if method == "GET" else "")
    command = [
        str(tool), "-url", target.url + path, "-method", method, "-token-file", str(target.token),
        "-ca", str(target.ca), "-connections", str(CONNECTIONS), "-seconds", str(seconds), "-prefix", prefix,
    ]  # fmt: skip
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # inherited by the load generator
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    finally:
        os.sched_setaffinity(0, before)
    result: dict[str, Any] = json.loads(done.stdout)
    if result["errors"]:
        raise RuntimeError(f"{target.name}: {result['errors']} errors, the first: {result['first_error']}")
    return result


def measure(
    tool: Path, targets: list[Target], options: argparse.Namespace, cores: set[int], label: str
) -> dict[str, tuple[list[float], list[float]]]:
    """Method to the medians of both servers: requests per second, and microseconds of CPU time per request."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for method in ("GET", "POST"):
        rates: dict[str, list[float]] = {target.name: [] for target in targets}
        costs: dict[str, list[float]] = {target.name: [] for target in targets}
        for number in range(options.rounds + 1):
            for target in targets:
                seconds = options.seconds if number else 1.0
                cpu = target.cpu_seconds()
                result = load(tool, target, method, seconds, f"{label}-{number}", cores)
                if number == 0:
                    continue  # warm-up
                rates[target.name].append(result["per_second"])
                cost = (target.cpu_seconds() - cpu) / result["requests"] * 1e6
                costs[target.name].append(cost)
                print(
                    f"  {label:7} {method:4} {target.name:15} {result['per_second']:7.0f}/s  "
                    f"p50 {result['p50_ms']:.2f} ms  p99 {result['p99_ms']:.2f} ms  CPU {cost:.0f} us/request",
                    flush=True,
                )
        found[method] = (
            [statistics.median(rates[target.name]) for target in targets],
            [statistics.median(costs[target.name]) for target in targets],
        )
    return found


def check(report: Report, found: dict[str, tuple[list[float], list[float]]]) -> None:
    names = {"GET": "GET, compared with kube-apiserver", "POST": "durable POST, compared with kube-apiserver"}
    for method, what in names.items():
        (ours, theirs), (cost, theirs_cost) = found[method]
        # CPU times can be compared where something else wants the cores.
        cpu = f"CPU {cost:.0f} and {theirs_cost:.0f} us, {theirs_cost / cost:.1f}x"
        report.check(what, ours / theirs, at_least=RATIO, unit="x", anchor=f"{ours:,.0f}/s and {theirs:,.0f}/s; {cpu}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    toolbox = Toolbox()
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as name:
        folder = Path(name)
        tool = folder / "load"
        subprocess.run([str(toolbox.ensure_go()), "build", "-o", str(tool), "."], cwd=ROOT / "go" / "load", check=True)
        # One account sends as fast as it can; kube-apiserver's counterpart lets it, too.
        environ = {"TRAINMASTER_LIMITS_REQUESTS_PER_SECOND": "0"}
        with start_server(folder / "home", environ=environ) as server, KubeCluster(toolbox=toolbox) as kube:
            kube_pids = [kube.processes.pids[name] for name in ("kube-apiserver", "etcd")]
            targets = [
                asyncio.run(prepare("trainmaster", server.url, server.ca, server.kubeconfig, folder, [server.pid])),
                asyncio.run(prepare("kube-apiserver", kube.server, kube.ca, kube.kubeconfig, folder, kube_pids)),
            ]
            cores = sorted(os.sched_getaffinity(0))
            if len(cores) < 2:
                print("one core only: load generator and server would share it", file=sys.stderr)
                return 2
            measure(tool, targets, options, set(cores), "shared")
            pin([server.pid, *kube.processes.pids.values()], {cores[0]})
            report = Report()
            check(report, measure(tool, targets, options, {cores[1]}, PINNED))
            return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
