"""`Site`: a real control plane with one manager of TrainJobs, and what the benches of operators do there."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bench._load import NAMESPACE, Load, make_trainjob
from bench._managers import Requests, TrainJobManager, read_cpu, read_memory
from tests.kube.cluster import KubeCluster
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import ListOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

WHOLE_LIVES, CLIENTS = 200, 20
_MAKERS = 8
_SETTLE_SECONDS = 5.0
"""After which a manager that has something to do has begun it."""
_QUIET_SHARE = 0.02
"""Of one core: below it a manager is at rest."""


class Site:
    def __init__(self, cluster: KubeCluster, manager: TrainJobManager, client: HttpClient) -> None:
        self.cluster = cluster
        self.manager = manager
        self.client = client
        self.pid = 0
        """Of the manager."""

    def say(self, text: str) -> None:
        print(f"  {self.manager.name:12} {text}", flush=True)

    def start(self, server: str = "") -> None:
        """Returns as soon as the manager works."""
        self.pid = self.manager.start(self.cluster, server)

    def stop(self) -> None:
        self.manager.kill(self.cluster)

    def end(self) -> None:
        """With SIGTERM, as a new version of a Deployment does."""
        os.kill(self.pid, signal.SIGTERM)
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.02)
        self.stop()

    def read_cpu(self) -> float:
        """Seconds of the manager so far."""
        return read_cpu(self.pid)

    def read_memory(self) -> float:
        """MB of the manager."""
        return read_memory(self.pid)

    def watch_requests(self) -> Requests:
        return Requests(self.cluster, self.manager.user)

    async def rest(self) -> None:
        """Returns once the manager does nothing any more."""
        while True:
            before = self.read_cpu()
            await asyncio.sleep(_SETTLE_SECONDS)
            if self.read_cpu() - before < _QUIET_SHARE * _SETTLE_SECONDS:
                return


@asynccontextmanager
async def running_site(manager: TrainJobManager) -> AsyncIterator[Site]:
    """The manager is installed, and not started yet."""
    with KubeCluster(manager.parts) as cluster:
        manager.install(cluster)
        client = HttpClient(load_kubeconfig([cluster.kubeconfig]))
        try:
            yield Site(cluster, manager, client)
        finally:
            await client.close()


def make_suspended(name: str) -> Object:
    trainjob = make_trainjob(name)
    trainjob["spec"]["suspend"] = True
    return trainjob


async def submit_suspended(client: HttpClient, name: str) -> None:
    await client.create(TRAIN_JOBS, make_suspended(name), NAMESPACE)


async def spread(works: Iterable[Callable[[], Awaitable[object]]], clients: int = CLIENTS) -> None:
    """So many at a time."""
    queue = iter(works)

    async def work() -> None:
        for one in queue:
            await one()

    await asyncio.gather(*(work() for _ in range(clients)))


async def measure_lives(site: Site, prefix: str) -> tuple[float, float]:
    """(CPU ms, requests) of a TrainJob that is created, runs, succeeds and is deleted."""
    await site.rest()
    requests, began = site.watch_requests(), site.read_cpu()
    await Load(site.client).drive(prefix, WHOLE_LIVES, CLIENTS)
    names = [f"{prefix}-{number}" for number in range(WHOLE_LIVES)]
    await spread(partial(site.client.delete, TRAIN_JOBS, name, NAMESPACE) for name in names)
    await site.rest()
    cpu_ms = (site.read_cpu() - began) / WHOLE_LIVES * 1000
    asked = requests.count().total() / WHOLE_LIVES
    site.say(f"{cpu_ms:.2f} ms of CPU and {asked:.2f} requests per TrainJob ({prefix})")
    return cpu_ms, asked


async def fill(site: Site, wanted: int) -> None:
    """Suspended TrainJobs, each with its JobSet, until there are so many."""
    standing, began = await count_jobsets(site.client), time.perf_counter()
    names = [f"standing-{number}" for number in range(standing, wanted)]
    make = partial(submit_suspended, site.client)
    await spread((partial(make, name) for name in names), _MAKERS)
    while True:
        if await count_jobsets(site.client) >= wanted:
            break
        await asyncio.sleep(1.0)
    await site.rest()
    site.say(f"{wanted:,} TrainJobs: {site.read_memory():.1f} MB, made in {time.perf_counter() - began:.0f} s")


async def count_jobsets(client: HttpClient) -> int:
    page = await client.list(JOB_SETS, NAMESPACE, ListOptions(limit=1))
    return len(page.items) + (page.remaining or 0)


async def await_jobset(client: HttpClient, name: str) -> None:
    while True:
        try:
            await client.get(JOB_SETS, name, NAMESPACE)
            return
        except NotFound:
            await asyncio.sleep(0.02)
