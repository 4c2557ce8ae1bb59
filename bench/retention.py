"""How late finished TrainJobs are deleted, next to Kubernetes' own TTL for Jobs, in one run.

Ours is the embedded control plane in this process, durable on disk. Finished TrainJobs with TTLs that fall due spread
over a while give the lateness: from the stored second in which a job is due until its deletion is on disk. Then as many
fall due in one second while somebody submits. The other side is the TTL controller of a real kube-controller-manager
with its limits lifted, on finished Jobs.

Promises: lateness p99 at most 50 ms; submit p99 while many fall due at once at most 3x of a quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench import _plant
from bench._load import make_trainjob, percentile
from bench._report import Report
from tests.kube.cluster import KubeCluster, Parts
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOBS, TRAIN_JOBS
from trainmaster.client.contract import Client, PatchType, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.clock import format_time, parse_time

LATE_MS, SUBMIT_RATIO = 50.0, 3.0
AHEAD = 10
"""Seconds before the first is due, for making them all."""
KUBE_JOBS = 100


class Expiring(NamedTuple):
    """A kind of job with a TTL."""

    gvr: GVR
    make: Callable[[str, int], Object]
    """Name and TTL -> a suspended job."""
    succeeded: str
    """The condition that ends it."""


def make_suspended(name: str, ttl: int) -> Object:
    trainjob = make_trainjob(name)
    trainjob["spec"] |= {"suspend": True, "ttlSecondsAfterFinished": ttl}
    return trainjob


TRAIN_JOB = Expiring(TRAIN_JOBS, make_suspended, "Complete")


async def make_finished(client: Client, kind: Expiring, prefix: str, ttls: list[int], ended: datetime) -> None:
    """Jobs that ended at that moment and never ran: suspended until their verdict."""
    verdict = {
        "type": kind.succeeded,
        "status": "True",
        "reason": "Bench",
        "message": "made so",
        "lastTransitionTime": format_time(ended),
    }
    for number, ttl in enumerate(ttls):
        name = f"{prefix}-{number}"
        await client.create(kind.gvr, kind.make(name, ttl), "default")
        patch = {"status": {"conditions": [verdict]}}
        await client.patch(kind.gvr, name, PatchType.MERGE, patch, "default", subresource="status")


async def collect(client: Client, gvr: GVR, prefix: str, count: int) -> list[float]:
    """How late each was, in milliseconds, once all are gone."""
    late: list[float] = []
    async with client.watch(gvr, "default", WatchOptions()) as events:
        async for event in events:
            if event.type == "DELETED" and event.object["metadata"]["name"].startswith(prefix):
                await client.durable(int(event.object["metadata"]["resourceVersion"]))
                late.append((time.time() - find_due(event.object)) * 1000)
                if len(late) == count:
                    return late
    raise AssertionError("the watch ended")


def find_due(obj: Object) -> float:
    """The stored second in which it is due."""
    status, spec = obj["status"], obj["spec"]
    ends = [status.get("completionTime"), *(entry["lastTransitionTime"] for entry in status.get("conditions") or ())]
    end = next(moment for moment in ends if moment)
    return parse_time(end).timestamp() + float(spec.get("runPolicy", spec)["ttlSecondsAfterFinished"])


async def submit_for(client: Client, prefix: str, until: asyncio.Task[list[float]] | None, count: int) -> list[float]:
    """Milliseconds of each durable create; ends with the task, or after so many."""
    taken: list[float] = []
    while (not until.done()) if until is not None else len(taken) < count:
        trainjob = make_trainjob(f"{prefix}-{len(taken)}")
        trainjob["spec"]["suspend"] = True
        began = time.perf_counter()
        made = await client.create(TRAIN_JOBS, trainjob, "default")
        await client.durable(int(made["metadata"]["resourceVersion"]))
        taken.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.005)
    return taken


async def measure_lateness(client: Client, kind: Expiring, jobs: int, seconds: int) -> float:
    """p99 in ms of jobs that fall due spread over so many seconds."""
    draw = random.Random(1)
    gone = asyncio.create_task(collect(client, kind.gvr, "spread", jobs))
    cpu = time.process_time()
    ttls = [AHEAD + draw.randrange(seconds) for _ in range(jobs)]
    await make_finished(client, kind, "spread", ttls, datetime.now(UTC))
    made = time.process_time()
    late = await gone
    spent = (time.process_time() - made) / jobs * 1000
    p99 = percentile(late, 0.99)
    print(f"  {jobs} due over {seconds} s: late p50 {percentile(late, 0.5):.1f}, p99 {p99:.1f} ms,")
    making = (made - cpu) / jobs * 1000
    print(
        f"    most {max(late):.1f} ms; CPU {making:.2f} ms to make one, {spent:.2f} ms until it was gone",
        flush=True,
    )
    return p99


async def measure_ours(folder: Path, jobs: int, seconds: int) -> tuple[float, float]:
    """(lateness p99 in ms, submit p99 during a burst over a quiet one)."""
    async with _plant.running_plant(folder) as plant:
        client = plant.client
        p99 = await measure_lateness(client, TRAIN_JOB, jobs, seconds)
        quiet = await submit_for(client, "quiet", None, 200)
        gone = asyncio.create_task(collect(client, TRAIN_JOBS, "burst", jobs))
        await make_finished(client, TRAIN_JOB, "burst", [AHEAD] * jobs, datetime.now(UTC))
        busy = await submit_for(client, "busy", gone, 0)
        burst = await gone
        ratio = percentile(busy, 0.99) / percentile(quiet, 0.99)
        print(f"  {jobs} due in one second: last gone {max(burst) / 1000:.2f} s late; submit p99 meanwhile")
        print(f"    {percentile(busy, 0.99):.1f} against {percentile(quiet, 0.99):.1f} ms: {ratio:.1f}x", flush=True)
        return p99, ratio


async def measure_kube(kubeconfig: Path) -> float:
    """Lateness p99 in ms of the TTL of finished Jobs."""
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        gone = asyncio.create_task(collect(client, JOBS, "job", KUBE_JOBS))
        for number in range(KUBE_JOBS):
            pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
            spec = {"completions": 0, "parallelism": 0, "ttlSecondsAfterFinished": 5, "template": {"spec": pod}}
            body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"job-{number}"}, "spec": spec}
            await client.create(JOBS, body, "default")
        late = await gone
        p50, p99 = percentile(late, 0.5), percentile(late, 0.99)
        print(f"  {KUBE_JOBS} Jobs of Kubernetes: late p50 {p50:.0f}, p99 {p99:.0f} ms")
        return p99
    finally:
        await client.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--seconds", type=int, default=60, help="over which the spread ones fall due")
    parser.add_argument("--ours-only", action="store_true")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        late, ratio = _plant.run(measure_ours(Path(folder), options.jobs, options.seconds))
    if not options.ours_only:
        with KubeCluster(Parts(unlimited=True)) as cluster:
            theirs = asyncio.run(measure_kube(cluster.kubeconfig))
        print(f"  {theirs / late:.0f}x less late than Kubernetes' Jobs")
    report = Report()
    report.check(f"TTLs of {options.jobs:,} jobs late (p99)", late, at_most=LATE_MS, unit=" ms")
    what = f"others' submit p99 while {options.jobs:,} TTLs expire in a second"
    report.check(what, ratio, at_most=SUBMIT_RATIO, unit="x")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
