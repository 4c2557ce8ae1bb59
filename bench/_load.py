"""Clients that submit jobs and watch them end, through any `Client`: the load of the controllers' benches.

Each client submits one job, waits until it has succeeded, and submits the next. Times are the client's own, from just
before the request to the watch event. As a program it loads a server from outside, and prints JSON:

    python -m bench._load --kubeconfig FILE --jobs 200 --clients 32
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from bench import _plant
from bench._plant import JOB_SET_NAME
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import JOB_NAME, PYTORCH
from trainmaster.client.contract import Client, ListOptions, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.scopes import Scope

NAMESPACE = "default"

Confirm = Callable[[Object], Awaitable[None]]
"""Returns when the object is on disk. Over HTTP the answer itself says so."""


@dataclass(frozen=True)
class Figures:
    jobs: int
    seconds: float
    submit_p50_ms: float
    submit_p99_ms: float
    running_p50_ms: float
    """Submit to all Pods Running."""
    running_p99_ms: float
    complete_p50_ms: float
    complete_p99_ms: float

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def make_trainjob(name: str, nodes: int = 2) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": nodes, "image": "example.com/train:1", "command": ["python", "train.py"]},
        },
    }


def make_pytorchjob(name: str, workers: int, command: Sequence[str] = ("python", "train.py")) -> Object:
    """One Master, and so many Workers."""
    container = {"name": "pytorch", "image": "example.com/train:1", "command": list(command)}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    replicas = {"Master": replica} | ({"Worker": {**replica, "replicas": workers}} if workers else {})
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


@dataclass(frozen=True)
class Workload:
    """What every client submits."""

    gvr: GVR
    make: Callable[[str], Object]
    pods: int
    label: str
    """Of its Pods, with the name of the job."""
    succeeded: str
    """The condition that ends it."""


TRAIN_JOB = Workload(TRAIN_JOBS, make_trainjob, 2, JOB_SET_NAME, "Complete")
WORKLOADS = {
    "trainjob": TRAIN_JOB,
    "pytorchjob": Workload(PYTORCH.gvr, partial(make_pytorchjob, workers=1), 2, JOB_NAME, "Succeeded"),
    "master": Workload(PYTORCH.gvr, partial(make_pytorchjob, workers=0), 1, JOB_NAME, "Succeeded"),
}


@dataclass
class _Job:
    began: float
    submitted: float = 0.0
    running: float = 0.0
    completed: float = 0.0
    pods: set[str] = field(default_factory=set)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Load:
    def __init__(self, client: Client, confirm: Confirm | None = None, workload: Workload = TRAIN_JOB) -> None:
        self._client = client
        self._confirm = confirm
        self._workload = workload
        self._jobs: dict[str, _Job] = {}

    async def drive(self, prefix: str, jobs: int, clients: int) -> Figures:
        self._jobs.clear()
        names = iter([f"{prefix}-{number}" for number in range(jobs)])
        # From here on: telling the watcher of everything that is over would be counted as the submits' time.
        page = await self._client.list(self._workload.gvr, NAMESPACE, ListOptions(limit=1))
        since = WatchOptions(resource_version=page.resource_version, read_only=True)
        began = time.perf_counter()
        async with Scope("load") as watching:
            watching.spawn_forever(self._watch_pods(since), name="load.pods")
            watching.spawn_forever(self._watch_jobs(since), name="load.jobs")
            await asyncio.gather(*(self._submit_all(names) for _ in range(clients)))
        return self._sum_up(time.perf_counter() - began)

    async def _submit_all(self, names: Iterator[str]) -> None:
        for name in names:
            await self._submit(name)

    async def _submit(self, name: str) -> None:
        job = self._jobs[name] = _Job(time.perf_counter())
        made = await self._client.create(self._workload.gvr, self._workload.make(name), NAMESPACE)
        if self._confirm is not None:
            await self._confirm(made)
        job.submitted = time.perf_counter()
        await job.done.wait()

    async def _watch_pods(self, since: WatchOptions) -> None:
        async with self._client.watch(PODS, NAMESPACE, since) as events:
            async for event in events:
                pod = event.object
                job = self._jobs.get((pod["metadata"].get("labels") or {}).get(self._workload.label, ""))
                if job is None or event.type == "DELETED" or pod.get("status", {}).get("phase") != "Running":
                    continue
                job.pods.add(pod["metadata"]["name"])
                if len(job.pods) == self._workload.pods and not job.running:
                    job.running = time.perf_counter()

    async def _watch_jobs(self, since: WatchOptions) -> None:
        async with self._client.watch(self._workload.gvr, NAMESPACE, since) as events:
            async for event in events:
                job = self._jobs.get(event.object["metadata"]["name"])
                conditions = list_conditions(event.object)
                if is_true(conditions, "Failed"):
                    raise RuntimeError(f"{event.object['metadata']['name']} failed: {conditions}")
                if job is not None and not job.completed and is_true(conditions, self._workload.succeeded):
                    job.completed = time.perf_counter()
                    job.done.set()

    def _sum_up(self, seconds: float) -> Figures:
        jobs = self._jobs.values()
        if not all(job.running for job in jobs):
            raise RuntimeError("a job has succeeded whose Pods were not all seen Running")
        submits = [(job.submitted - job.began) * 1000 for job in jobs]
        starts = [(job.running - job.began) * 1000 for job in jobs]
        ends = [(job.completed - job.began) * 1000 for job in jobs]
        return Figures(
            len(jobs), seconds,
            statistics.median(submits), percentile(submits, 0.99),
            statistics.median(starts), percentile(starts, 0.99),
            statistics.median(ends), percentile(ends, 0.99),
        )  # fmt: skip


async def drive_over_http(kubeconfig: Path, prefix: str, jobs: int, clients: int, workload: Workload) -> Figures:
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        return await Load(client, workload=workload).drive(prefix, jobs, clients)
    finally:
        await client.close()


async def drive_from_outside(
    kubeconfig: Path, prefix: str, jobs: int, clients: int, workload: str = "trainjob"
) -> Figures:
    """`drive_over_http` in a process of its own. `workload`: a name in WORKLOADS."""
    arguments = ["--kubeconfig", str(kubeconfig), "--prefix", prefix, "--jobs", str(jobs), "--clients", str(clients)]
    arguments += ["--workload", workload]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench._load", *arguments, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"the load generator ended with {child.returncode}")
    return Figures(**json.loads(printed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--prefix", default="load")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--workload", choices=WORKLOADS, default="trainjob")
    options = parser.parse_args()
    workload = WORKLOADS[options.workload]
    work = drive_over_http(options.kubeconfig, options.prefix, options.jobs, options.clients, workload)
    print(json.dumps(asdict(_plant.run(work))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
