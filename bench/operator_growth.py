"""Whether a TrainJob costs our operator the same on a large cluster as on a small one.

One real control plane with fake nodes, which grows while our operator runs on it: 100, 1,000 and 5,000 nodes beside
1,000 TrainJobs that stay, then 10,000 TrainJobs. At each size 200 TrainJobs of two nodes run through their whole lives
beside them, several times; the cheapest round counts. What stays are suspended TrainJobs with their JobSets.

Each of the 200 trains for five seconds, so that everywhere the counts of its Pods are written once meanwhile. The
operator waits two seconds before it writes counts, and of a shorter life the counts would be left out where the API
server is quick, and written where it is slow.

Promises: CPU and requests per TrainJob at most 20 % above those of the smallest size. docs/scale.md shows the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
import urllib.request
from dataclasses import dataclass

from bench import _plant
from bench._managers import Operator, Requests, read_memory
from bench._operator_site import WHOLE_LIVES, Site, fill, measure_lives, running_site
from bench._report import Report
from tests.kube.cluster import KubeCluster
from tests.kube.managers import add_nodes

SIZES = ((100, 1_000), (1_000, 1_000), (5_000, 1_000), (5_000, 10_000))
"""Nodes, and TrainJobs that stay."""
FLAT = 1.2
TRAINING_MS = 5_000


@dataclass(frozen=True)
class Cost:
    """Of one TrainJob at one size."""

    nodes: int
    standing: int
    cpu_ms: float
    requests: float
    """Of the operator."""
    memory: float
    """MB of the whole operator."""
    server_memory: float = 0.0
    """MB of kube-apiserver."""
    stored: float = 0.0
    """MB that etcd has in use."""
    all_requests: float = 0.0
    """Of everybody: the JobSet manager, Kubernetes' controllers, the scheduler, nodes."""


async def measure_size(site: Site, nodes: int, standing: int, rounds: int) -> Cost:
    everybody = Requests(site.cluster)
    cheapest = Cost(nodes, standing, float("inf"), float("inf"), 0.0)
    for number in range(rounds):
        cpu, requests = await measure_lives(site, f"life-{nodes}-{standing}-{number}")
        cheapest = dataclasses.replace(
            cheapest, cpu_ms=min(cpu, cheapest.cpu_ms), requests=min(requests, cheapest.requests)
        )
    asked = everybody.count().total() / (rounds * WHOLE_LIVES)
    server = read_memory(site.cluster.processes.pids["kube-apiserver"])
    stored = await asyncio.to_thread(read_etcd, site.cluster)
    own = site.read_memory()
    return dataclasses.replace(cheapest, memory=own, server_memory=server, stored=stored, all_requests=asked)


def read_etcd(cluster: KubeCluster) -> float:
    """MB in use."""
    with urllib.request.urlopen(f"{cluster.etcd}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    value = next(line for line in lines if line.startswith("etcd_mvcc_db_total_size_in_use_in_bytes "))
    return float(value.split()[1]) / 1e6


async def measure(site: Site, rounds: int) -> list[Cost]:
    await asyncio.to_thread(site.start)
    await measure_lives(site, "warm")
    found: list[Cost] = []
    begun = site.cluster.parts.nodes
    for nodes, standing in SIZES:
        if nodes > begun:
            await asyncio.to_thread(add_nodes, site.cluster, range(begun, nodes))
            begun = nodes
        await fill(site, standing)
        found.append(await measure_size(site, nodes, standing, rounds))
    return found


async def run(rounds: int) -> list[Cost]:
    manager = Operator()
    manager.parts = dataclasses.replace(manager.parts, nodes=SIZES[0][0], rare_heartbeats=True, complete_ms=TRAINING_MS)
    async with running_site(manager) as site:
        return await measure(site, rounds)


def show(costs: list[Cost]) -> None:
    print("  nodes   TrainJobs   CPU of one   requests   of all   operator   kube-apiserver     etcd")
    for cost in costs:
        asked = f"{cost.requests:10.2f} {cost.all_requests:8.1f}"
        sizes = f"{cost.memory:8.0f} MB {cost.server_memory:13.0f} MB {cost.stored:5.0f} MB"
        print(f"  {cost.nodes:5,} {cost.standing:11,} {cost.cpu_ms:9.2f} ms {asked} {sizes}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    first, *later = costs = _plant.run(run(options.rounds))
    show(costs)
    report = Report()
    for cost in later:
        what = f"cost of a TrainJob with {cost.nodes:,} nodes and {cost.standing:,} TrainJobs"
        beside = f"with {first.nodes:,} nodes and {first.standing:,} TrainJobs"
        anchor = f"{cost.cpu_ms:.2f} ms of CPU, {beside} {first.cpu_ms:.2f} ms"
        report.check(f"{what}: CPU", cost.cpu_ms / first.cpu_ms, at_most=FLAT, unit="x", anchor=anchor)
        anchor = f"{cost.requests:.2f}, {beside} {first.requests:.2f}"
        report.check(f"{what}: requests", cost.requests / first.requests, at_most=FLAT, unit="x", anchor=anchor)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
