"""How late 10,000 finished TrainJobs are deleted, compared with the TTLs of Kubernetes' Jobs and of JobSets in one run.

Ours is the embedded control plane in this process, durable on disk. Lateness is the time from the moment at which a job
is due until its deletion is on disk. Ends are stored in whole seconds, so at 100 per second 100 are due at the same
moment. Then 3,000 expire in one second while somebody submits. The other side is a real kube-controller-manager with
its limits lifted and a real JobSet manager, with jobs without Pods, at a lower rate.

Promises: lateness p99 at most 50 ms; submit p99 while 3,000 expire at once at most 3x of a quiet one.
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
from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, JOBS, TRAIN_JOBS
from trainmaster.client.contract import Client, PatchType, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.clock import format_time, parse_time

LATE_MS, SUBMIT_RATIO = 50.0, 3.0
BURST = 3000
KUBE_AHEAD = 5
"""Seconds before the first one of Kubernetes is due."""
KUBE_SECONDS = 10
"""Over which they are due."""


class Expiring(NamedTuple):
    """A kind of job with a TTL."""

    gvr: GVR
    make: Callable[[str, int], Object]
    """From its name and TTL, without Pods."""
    succeeded: str
    """The condition that ends it."""


def make_suspended(name: str, ttl: int) -> Object:
    trainjob = make_trainjob(name)
    trainjob["spec"] |= {"suspend": True, "ttlSecondsAfterFinished": ttl}
    return trainjob


def make_job_spec() -> Object:
    """Of a Job that is complete at once."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"completions": 0, "parallelism": 0, "template": {"spec": pod}}


def make_job(name: str, ttl: int) -> Object:
    spec = {**make_job_spec(), "ttlSecondsAfterFinished": ttl}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def make_job_set(name: str, ttl: int) -> Object:
    replicated = {"name": "node", "replicas": 1, "template": {"spec": make_job_spec()}}
    spec = {"replicatedJobs": [replicated], "ttlSecondsAfterFinished": ttl}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}


TRAIN_JOB = Expiring(TRAIN_JOBS, make_suspended, "Complete")
KUBE_KINDS = (
    ("Kubernetes' Jobs", Expiring(JOBS, make_job, "Complete"), 300),
    ("JobSets", Expiring(JOB_SETS, make_job_set, "Completed"), 100),
)
"""Kinds of Kubernetes, and how many."""


def count_ahead(jobs: int) -> int:
    """Seconds until the first is due, for making them all."""
    return 5 + jobs // 1000


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


async def collect(client: Client, kind: Expiring, prefix: str, count: int) -> list[float]:
    """How late each was, in milliseconds, once all are gone."""
    late: list[float] = []
    async with client.watch(kind.gvr, "default", WatchOptions(read_only=True)) as events:
        async for event in events:
            if event.type == "DELETED" and event.object["metadata"]["name"].startswith(prefix):
                await client.durable(int(event.object["metadata"]["resourceVersion"]))
                late.append((time.time() - compute_due(kind, event.object)) * 1000)
                if len(late) == count:
                    return late
    raise AssertionError("the watch ended")


def compute_due(kind: Expiring, obj: Object) -> float:
    """The moment after which it should be gone."""
    end = find_condition(list_conditions(obj), kind.succeeded)
    assert end is not None, "only finished ones are deleted"
    spec = obj["spec"]
    ttl: int = spec.get("runPolicy", spec)["ttlSecondsAfterFinished"]
    return parse_time(end["lastTransitionTime"]).timestamp() + ttl


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


def draw_ttls(jobs: int, first: int, seconds: int) -> list[int]:
    draw = random.Random(1)
    return [first + draw.randrange(seconds) for _ in range(jobs)]


async def measure_lateness(client: Client, kind: Expiring, jobs: int, seconds: int) -> float:
    """p99 in ms of jobs that fall due spread over so many seconds."""
    gone = asyncio.create_task(collect(client, kind, "spread", jobs))
    cpu = time.process_time()
    ttls = draw_ttls(jobs, count_ahead(jobs), seconds)
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


async def measure_burst(client: Client, jobs: int) -> tuple[float, float]:
    """Submit p99 in ms (before, while so many expire in one second)."""
    quiet = percentile(await submit_for(client, "quiet", None, 200), 0.99)
    gone = asyncio.create_task(collect(client, TRAIN_JOB, "burst", jobs))
    ended, ahead = datetime.now(UTC).replace(microsecond=0), count_ahead(jobs)
    await make_finished(client, TRAIN_JOB, "burst", [ahead] * jobs, ended)
    await asyncio.sleep(ended.timestamp() + ahead - time.time())
    busy = percentile(await submit_for(client, "busy", gone, 0), 0.99)
    last = max(await gone) / 1000
    print(f"  {jobs} due in one second: last gone {last:.2f} s late; submit p99 {busy:.1f} ms meanwhile", flush=True)
    return quiet, busy


async def measure_ours(folder: Path, jobs: int, seconds: int) -> tuple[float, tuple[float, float]]:
    """(lateness p99 in ms, submit p99 before and during a burst)."""
    async with _plant.running_plant(folder) as plant:
        late = await measure_lateness(plant.client, TRAIN_JOB, jobs, seconds)
        return late, await measure_burst(plant.client, min(jobs, BURST))


async def measure_kube(kubeconfig: Path, name: str, kind: Expiring, jobs: int) -> str:
    """Lateness p99 of a kind of Kubernetes."""
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        gone = asyncio.create_task(collect(client, kind, "spread", jobs))
        for number, ttl in enumerate(draw_ttls(jobs, KUBE_AHEAD, KUBE_SECONDS)):
            await client.create(kind.gvr, kind.make(f"spread-{number}", ttl), "default")
        late = await gone
    finally:
        await client.close()
    p50, p99 = percentile(late, 0.5), percentile(late, 0.99)
    print(f"  {jobs} {name} due over {KUBE_SECONDS} s: late p50 {p50:.0f}, p99 {p99:.0f} ms", flush=True)
    return f"{p99:,.0f} ms for {name}"


def compare() -> str:
    """How late the kinds of Kubernetes are."""
    with KubeCluster(Parts(jobset=True, unlimited=True)) as cluster:
        return ", ".join(asyncio.run(measure_kube(cluster.kubeconfig, *one)) for one in KUBE_KINDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=100, help="over which they are due")
    parser.add_argument("--ours-only", action="store_true")
    options = parser.parse_args()
    print(f"  load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        late, (quiet, busy) = _plant.run(measure_ours(Path(folder), options.jobs, options.seconds))
    theirs = "" if options.ours_only else compare()
    report = Report()
    what = f"deletion of {options.jobs:,} TrainJobs after their TTL, lateness p99"
    report.check(what, late, at_most=LATE_MS, unit=" ms", anchor=theirs)
    what = f"others' submit p99 while {min(options.jobs, BURST):,} TTLs expire in a second"
    report.check(what, busy / quiet, at_most=SUBMIT_RATIO, unit="x", anchor=f"p99 {quiet:.1f} ms before")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
