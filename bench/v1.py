"""PyTorchJobs of `kubeflow.org/v1`: ours against the real training-operator 1.8, in one run.

- rate: jobs of a Master and a Worker from POST to Succeeded, with scripted Pods, every write on disk; concurrent
  clients each submit a job, wait for its end, and submit the next. The other side is etcd, kube-apiserver, controller
  manager, scheduler, kwok and the operator with its webhooks and settings as released, loaded over HTTP by the same
  program, in turns with ours. The operator's client makes at most 20 requests per second, which no flag changes.
- cost: CPU time of a job of one Master, embedded, with client and scripted node.
- TTL: how late finished jobs are deleted that fall due one after the other, as in bench/retention.py.
- start: submit to three processes executed, of a Master and two Workers and of a TrainJob of three nodes in turns, on a
  real server over HTTP, as a watcher sees it.

Promises: at least 20 times the operator's rate; at most 3 ms per job; p99 at most 50 ms late with 1,000 jobs; a start
at most 10 % longer than that of the TrainJob.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import _plant
from bench._load import NAMESPACE, WORKLOADS, Load, drive_from_outside, make_pytorchjob, percentile
from bench._report import Report
from bench.lifecycles import NODES, cpu_seconds, show
from bench.real_jobs import Watcher, make_job
from bench.retention import Expiring, measure_lateness
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.training_operator import NAME, running_training_operator
from tests.support.server import start_server
from tools.toolbox import Toolbox
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import PYTORCH
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.scopes import Scope

RATIO, CPU_MS, LATE_MS, START_RATIO = 20.0, 3.0, 50.0, 1.1
WARM_UP = 100
TTL_SECONDS = 20
RANKS = 3
QUIET_SECONDS = 0.3
"""Between two jobs: what is left to do after a deletion must not count for the next one."""


async def measure_cost(folder: Path, jobs: int, clients: int, rounds: int) -> float:
    """CPU ms of a job of one Master: the best of the rounds."""
    costs = []
    async with _plant.running_plant(folder) as plant:
        load = Load(plant.client, workload=WORKLOADS["master"])
        await load.drive("warm", WARM_UP, clients)
        for number in range(rounds):
            cpu = time.process_time()
            figures = await load.drive(f"master-{number}", jobs, clients)
            costs.append((time.process_time() - cpu) / jobs * 1000)
            show("one Master, in-process", figures, costs[-1] * jobs / 1000)
    return min(costs)


async def measure_rates(folder: Path, kube: KubeCluster, options: argparse.Namespace) -> tuple[float, float]:
    """Jobs per second of both sides over HTTP: the medians of alternating rounds."""
    ours, theirs = [], []
    pids, clients = list(kube.processes.pids.values()), options.clients
    async with _plant.running_plant(folder, serve=True) as plant:
        await drive_from_outside(plant.kubeconfig, "warm", WARM_UP, clients, "pytorchjob")
        await drive_from_outside(kube.kubeconfig, "warm", 4, 4, "pytorchjob")
        for number in range(options.rounds):
            name, cpu = f"round-{number}", time.process_time()
            figures = await drive_from_outside(plant.kubeconfig, name, options.jobs, clients, "pytorchjob")
            show("ours, over HTTP", figures, time.process_time() - cpu)
            ours.append(figures.per_second)
            before = cpu_seconds(pids)
            figures = await drive_from_outside(kube.kubeconfig, name, options.operator_jobs, clients, "pytorchjob")
            show("training-operator", figures, cpu_seconds(pids) - before)
            theirs.append(figures.per_second)
    return statistics.median(ours), statistics.median(theirs)


def compare_rates(folder: Path, options: argparse.Namespace) -> tuple[float, float]:
    toolbox = Toolbox()
    toolbox.ensure_program(NAME)
    parts = Parts(training_operator=True, nodes=NODES, unlimited=True)
    with KubeCluster(parts, toolbox=toolbox) as kube, running_training_operator(kube):
        return _plant.run(measure_rates(folder, kube, options))


def make_expiring(name: str, ttl: int) -> Object:
    job = make_pytorchjob(name, 0)
    job["spec"]["runPolicy"] = {"suspend": True, "ttlSecondsAfterFinished": ttl}
    return job


async def measure_ttl(folder: Path, jobs: int) -> float:
    """Lateness p99 in ms."""
    async with _plant.running_plant(folder) as plant:
        kind = Expiring(PYTORCH.gvr, make_expiring, "Succeeded")
        return await measure_lateness(plant.client, kind, jobs, TTL_SECONDS)


async def start_once(client: Client, watcher: Watcher, gvr: GVR, job: Object) -> float:
    """Milliseconds from the submit to the last rank; its Pods are gone afterwards."""
    name = job["metadata"]["name"]
    began = time.perf_counter()
    await client.create(gvr, job, NAMESPACE)
    running = await watcher.wait(name, RANKS, "Running")
    taken = (max(heard for _, heard in running) - began) * 1e3
    await client.delete(gvr, name, NAMESPACE)
    await watcher.wait_gone(name)
    await asyncio.sleep(QUIET_SECONDS)
    return taken


async def measure_starts(kubeconfig: Path, count: int) -> tuple[float, str]:
    """The ratio of the medians of both kinds, and these."""
    command = ("/bin/sleep", "1000")
    kinds: dict[str, tuple[GVR, Callable[[str], Object]]] = {
        "TrainJob": (TRAIN_JOBS, lambda name: make_job(name, *command, nodes=RANKS)),
        "PyTorchJob": (PYTORCH.gvr, lambda name: make_pytorchjob(name, RANKS - 1, command)),
    }
    client = HttpClient(load_kubeconfig([kubeconfig]))
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    try:
        async with Scope("bench") as scope:
            watcher = Watcher(client)
            scope.spawn_forever(watcher.follow_pods(), name="bench.pods")
            for number in range(count + 1):
                for kind, (gvr, make) in list(kinds.items())[:: 1 if number % 2 else -1]:
                    wall = await start_once(client, watcher, gvr, make(f"{kind.lower()}-{number}"))
                    if number:  # the first is the warm-up
                        taken[kind].append(wall)
    finally:
        await client.close()
    p50 = {kind: percentile(walls, 0.5) for kind, walls in taken.items()}
    anchor = f"p50 {p50['PyTorchJob']:.1f} and {p50['TrainJob']:.1f} ms"
    return p50["PyTorchJob"] / p50["TrainJob"], anchor


def start_real_jobs(level: str, count: int) -> tuple[float, str]:
    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(f'[node]\nisolation = "{level}"\n')
        with start_server(home) as server:
            return asyncio.run(measure_starts(server.kubeconfig, count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--ttl-jobs", type=int, default=1000)
    parser.add_argument("--operator-jobs", type=int, default=30)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=15)
    parser.add_argument("--levels", default="plain,full" if os.geteuid() == 0 else "plain", help="of isolation")
    parser.add_argument("--ours-only", action="store_true", help="leave out training-operator")
    options = parser.parse_args()
    report = Report()
    print(f"  load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as name:
        folder = Path(name)
        cost = _plant.run(measure_cost(folder / "cost", options.jobs, options.clients, options.rounds))
        report.check("CPU time of a PyTorchJob with one Master", cost, at_most=CPU_MS, unit=" ms")
        late = _plant.run(measure_ttl(folder / "ttl", options.ttl_jobs))
        what = f"deletion of {options.ttl_jobs:,} PyTorchJobs after their TTL, lateness p99"
        report.check(what, late, at_most=LATE_MS, unit=" ms")
        for level in options.levels.split(","):
            ratio, anchor = start_real_jobs(level, options.starts)
            what = f"start of a Master and two Workers ({level}), compared with a TrainJob of three nodes"
            report.check(what, ratio, at_most=START_RATIO, unit="x", anchor=anchor)
        if not options.ours_only:
            ours, theirs = compare_rates(folder / "rates", options)
            anchor = f"{ours:.0f}/s and {theirs:.1f}/s, both over TLS"
            what = "PyTorchJobs per second, compared with training-operator"
            report.check(what, ours / theirs, at_least=RATIO, unit="x", anchor=anchor)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
