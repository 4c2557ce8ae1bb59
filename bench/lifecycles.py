"""TrainJob lifecycles per second with scripted Pods: ours against the real Kubernetes stack, in one run.

A lifecycle is a TrainJob of two nodes from POST to Complete: JobSet, Service, Job, two Pods bound, Running and
Succeeded, with all events, every write on disk. Concurrent clients each submit a job, wait for its end, and submit the
next. Ours is loaded through the in-process client (clients and control plane share one process) and over HTTP with TLS
(clients in a process of their own). The other side is etcd, kube-apiserver, controller manager, scheduler, kwok, JobSet
and Trainer managers with client limits that nothing reaches, loaded over HTTP by the same program, in turns.

Promises: at most 4 ms of CPU time for a lifecycle, client and scripted node included, and at least 25 times the rate of
the Kubernetes stack.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from bench import _plant
from bench._load import Figures, Load, drive_from_outside
from bench._report import Report
from tests.kube.cluster import KubeCluster, Parts
from trainmaster.api.meta import Object

CPU_MS, RATIO = 4.0, 25.0
WARM_UP = 100
NODES = 4


def show(name: str, figures: Figures, cpu: float) -> None:
    print(
        f"  {name:22} {figures.per_second:7.1f}/s  {cpu / figures.jobs * 1000:7.2f} ms CPU each   "
        f"submit p50 {figures.submit_p50_ms:.1f} p99 {figures.submit_p99_ms:.1f} ms   all Pods Running p50 "
        f"{figures.running_p50_ms:.1f} p99 {figures.running_p99_ms:.1f} ms   end p50 "
        f"{figures.complete_p50_ms:.1f} ms   n {figures.jobs}",
        flush=True,
    )


Rounds = dict[str, list[tuple[float, float]]]
"""By side: lifecycles per second, and CPU ms of one."""
LOCAL, OUTSIDE, KUBE = "in-process", "over HTTP and TLS", "Kubernetes stack"


async def measure_sides(folder: Path, kube: KubeCluster | None, options: argparse.Namespace) -> Rounds:
    """The sides take turns."""
    found: Rounds = {}

    def note(name: str, figures: Figures, spent: float) -> None:
        show(name, figures, spent)
        found.setdefault(name, []).append((figures.per_second, spent / figures.jobs * 1000))

    async with _plant.running_plant(folder, serve=True) as plant:

        async def confirm(obj: Object) -> None:
            await plant.client.durable(int(obj["metadata"]["resourceVersion"]))

        load, clients = Load(plant.client, confirm), options.clients
        await load.drive("warm", WARM_UP, clients)
        if kube is not None:
            await drive_from_outside(kube.kubeconfig, "warm", clients, clients)
        for number in range(options.rounds):
            cpu = time.process_time()
            figures = await load.drive(f"local-{number}", options.jobs, clients)
            note(LOCAL, figures, time.process_time() - cpu)
            cpu = time.process_time()
            figures = await drive_from_outside(plant.kubeconfig, f"http-{number}", options.jobs, clients)
            note(OUTSIDE, figures, time.process_time() - cpu)
            if kube is not None:
                pids = list(kube.processes.pids.values())
                before = cpu_seconds(pids)
                figures = await drive_from_outside(kube.kubeconfig, f"kube-{number}", options.kube_jobs, clients)
                note(KUBE, figures, cpu_seconds(pids) - before)
    return found


async def measure_alone(folder: Path, clients: int) -> None:
    """Latency without a queue: as many clients as a person has."""
    async with _plant.running_plant(folder) as plant:
        load = Load(plant.client)
        await load.drive("warm", 20, 1)
        cpu = time.process_time()
        show(f"in-process, {clients} client", await load.drive("alone", 200, clients), time.process_time() - cpu)


def cpu_seconds(pids: Iterable[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--kube-jobs", type=int, default=64)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours-only", action="store_true", help="leave out the comparison")
    options = parser.parse_args()
    report = Report()
    print(f"  load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        _plant.run(measure_alone(Path(folder) / "alone", 1))
        with ExitStack() as stack:
            kube = None
            if not options.ours_only:
                kube = stack.enter_context(KubeCluster(Parts(trainer=True, nodes=NODES, unlimited=True)))
            found = _plant.run(measure_sides(Path(folder) / "many", kube, options))
    rates = {name: statistics.median(rate for rate, _ in rounds) for name, rounds in found.items()}
    costs = {name: min(cost for _, cost in rounds) for name, rounds in found.items()}
    anchor = f"{costs[KUBE]:.0f} ms with Kubernetes" if KUBE in costs else ""
    what = "CPU time of a TrainJob of two nodes with scripted Pods"
    report.check(what, costs[LOCAL], at_most=CPU_MS, unit=" ms", anchor=anchor)
    if KUBE in rates:
        local, theirs = rates[LOCAL], rates[KUBE]
        anchor = f"{local:.0f}/s, over TLS {rates[OUTSIDE]:.0f}/s, Kubernetes {theirs:.1f}/s"
        what = "TrainJobs of two nodes with scripted Pods per second, compared with Kubernetes"
        report.check(what, local / theirs, at_least=RATIO, unit="x", anchor=anchor)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
