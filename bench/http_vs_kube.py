"""GET and durable POST over TLS with authentication and RBAC on: ours against kube-apiserver with etcd, in one run.

The same load generator (bench/go/load, 16 kept-alive connections) talks to both, one after the other, with the token
of a ServiceAccount that a RoleBinding lets edit one namespace: no credential that skips authorization. POST creates
ConfigMaps; both servers answer after the write is on disk. Rounds alternate, so that a busy machine disturbs both.

Promise: at least 10x kube-apiserver's requests per second for both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kube.cluster import KubeCluster
from tests.support.server import start_server
from tools.toolbox import Toolbox

RATIO = 10.0
CONNECTIONS = 16
ROOT = Path(__file__).resolve().parent
_SETUP = """
apiVersion: v1
kind: Namespace
metadata: {name: bench}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: loader, namespace: bench}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: loader, namespace: bench}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: loader, namespace: bench}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: bench}
data: {key: value}
"""


@dataclass(frozen=True)
class Target:
    name: str
    url: str
    ca: Path
    token: Path


def prepare(name: str, url: str, ca: Path, kubeconfig: Path, kubectl: Path, folder: Path) -> Target:
    def run(*arguments: str, stdin: str | None = None) -> str:
        command = [str(kubectl), "--kubeconfig", str(kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, text=True, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    run("apply", "-f", "-", stdin=_SETUP)
    token = folder / f"{name}.token"
    token.write_text(run("create", "token", "loader", "-n", "bench"))
    return Target(name, url, ca, token)


def load(tool: Path, target: Target, method: str, seconds: float, prefix: str) -> dict[str, Any]:
    path = "/api/v1/namespaces/bench/configmaps" + ("/one" if method == "GET" else "")
    command = [
        str(tool), "-url", target.url + path, "-method", method, "-token-file", str(target.token),
        "-ca", str(target.ca), "-connections", str(CONNECTIONS), "-seconds", str(seconds), "-prefix", prefix,
    ]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    if result["errors"]:
        raise RuntimeError(f"{target.name}: {result['errors']} errors, the first: {result['first_error']}")
    return result


def measure(tool: Path, targets: list[Target], rounds: int, seconds: float) -> bool:
    kept = True
    for method in ("GET", "POST"):
        for target in targets:
            load(tool, target, method, 1.0, f"warm-{target.name}")
        rates: dict[str, list[float]] = {target.name: [] for target in targets}
        for number in range(rounds):
            for target in targets:
                result = load(tool, target, method, seconds, f"load-{number}")
                rates[target.name].append(result["per_second"])
                print(
                    f"  {method:4} {target.name:15} {result['per_second']:9.0f}/s  p50 {result['p50_ms']:.2f} ms  "
                    f"p99 {result['p99_ms']:.2f} ms",
                    flush=True,
                )
        ours, theirs = (statistics.median(rates[target.name]) for target in targets)
        good = ours >= RATIO * theirs
        kept = kept and good
        print(f"{'ok    ' if good else 'MISSED'} {method}: {ours:.0f}/s against {theirs:.0f}/s, {ours / theirs:.1f}x "
              f"(promised >= {RATIO:g}x)")  # fmt: skip
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    toolbox = Toolbox()
    kubectl = toolbox.find_kubectl()
    if kubectl is None:
        print(toolbox.why_missing("kubectl"), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as name:
        folder = Path(name)
        tool = folder / "load"
        subprocess.run([str(toolbox.ensure_go()), "build", "-o", str(tool), "."], cwd=ROOT / "go" / "load", check=True)
        with start_server(folder / "home") as server, KubeCluster(toolbox=toolbox) as kube:
            targets = [
                prepare("trainmaster", server.url, server.ca, server.kubeconfig, kubectl, folder),
                prepare("kube-apiserver", kube.server, kube.ca, kube.kubeconfig, kubectl, folder),
            ]
            return 0 if measure(tool, targets, options.rounds, options.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
