"""Two-node TrainJobs with real processes through the whole control plane, over HTTP, at one isolation level.

- start: submit to both ranks executed, as a watcher sees it (so it is on disk), one job after the other;
- death: SIGKILL of a rank to the Failed Pod, as a watcher sees it;
- lifecycles: concurrent clients, each from submit to Complete and on to the next job.

Every Pod runs under a shim that outlives the control plane. `bare` is posix_spawn of the same program until it has
ended, in the same run, for scale. Server, shims, ranks and this program share the machine.

Promises (issue 5): plain: start p50 <= 6 ms, 150 lifecycles/s; full: 10 ms, 60/s; both: death p99 <= 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench._load import NAMESPACE, percentile
from tests.support.server import start_server
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.client.contract import Client, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.scopes import Scope

START_MS = {"plain": 6.0, "full": 10.0}
PER_SECOND = {"plain": 150.0, "full": 60.0}
DEATH_MS = 20.0


def make_job(name: str, *command: str, nodes: int = 2) -> Object:
    trainer = {"numNodes": nodes, "image": "example.com/train:1", "command": list(command)}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runtimeRef": {"name": "plain"}, "trainer": trainer},
    }


class Watcher:
    """What the API has said, with the time at which it was heard."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._news = asyncio.Event()
        self.pods: dict[str, tuple[Object, float]] = {}
        self.finished: dict[str, asyncio.Event] = {}

    async def follow_pods(self) -> None:
        async with self._client.watch(PODS, NAMESPACE, WatchOptions()) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    self.pods[event.object["metadata"]["name"]] = (event.object, time.perf_counter())
                elif event.type == "DELETED":
                    self.pods.pop(event.object["metadata"]["name"], None)
                self._news.set()

    async def follow_jobs(self) -> None:
        async with self._client.watch(TRAIN_JOBS, NAMESPACE, WatchOptions()) as events:
            async for event in events:
                if event.type != "BOOKMARK" and is_true(list_conditions(event.object), "Complete"):
                    self.finished.setdefault(event.object["metadata"]["name"], asyncio.Event()).set()

    async def wait(self, job: str, count: int, wanted: Callable[[Object], Any]) -> list[tuple[Object, float]]:
        async with asyncio.timeout(60):
            while True:
                found = [one for name, one in self.pods.items() if name.startswith(f"{job}-") and wanted(one[0])]
                if len(found) >= count:
                    return found
                self._news.clear()
                await self._news.wait()

    async def wait_gone(self, job: str) -> None:
        async with asyncio.timeout(60):
            while any(name.startswith(f"{job}-") for name in self.pods):
                self._news.clear()
                await self._news.wait()

    async def wait_finished(self, job: str) -> None:
        async with asyncio.timeout(120):
            await self.finished.setdefault(job, asyncio.Event()).wait()


def has_phase(phase: str) -> Callable[[Object], bool]:
    return lambda pod: pod.get("status", {}).get("phase") == phase


async def measure_starts(client: Client, watcher: Watcher, home: Path, count: int) -> tuple[list[float], list[float]]:
    starts, deaths = [], []
    for number in range(count):
        name = f"start-{number}"
        began = time.perf_counter()
        await client.create(TRAIN_JOBS, make_job(name, "/bin/sleep", "1000"), NAMESPACE)
        running = await watcher.wait(name, 2, has_phase("Running"))
        starts.append((max(heard for _, heard in running) - began) * 1e3)
        pod = running[0][0]["metadata"]
        record = next((home / "pods" / pod["uid"] / "run").glob("*.started.json"))
        killed = time.perf_counter()
        os.kill(json.loads(record.read_bytes())["pid"], 9)
        failed = await watcher.wait(name, 1, has_phase("Failed"))
        deaths.append((failed[0][1] - killed) * 1e3)
        await client.delete(TRAIN_JOBS, name, NAMESPACE)
    return starts, deaths


async def measure_lifecycles(client: Client, watcher: Watcher, jobs: int, clients: int) -> float:
    names = iter([f"life-{number}" for number in range(jobs)])

    async def submit_all() -> None:
        for name in names:
            await client.create(TRAIN_JOBS, make_job(name, "/bin/true"), NAMESPACE)
            await watcher.wait_finished(name)

    began = time.perf_counter()
    await asyncio.gather(*(submit_all() for _ in range(clients)))
    return jobs / (time.perf_counter() - began)


def spawn_bare(count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


async def measure(kubeconfig: Path, home: Path, level: str, options: argparse.Namespace) -> bool:
    client = HttpClient(load_kubeconfig([kubeconfig]))
    bare = spawn_bare(50)
    try:
        async with Scope("bench") as scope:
            watcher = Watcher(client)
            scope.spawn_forever(watcher.follow_pods(), name="bench.pods")
            scope.spawn_forever(watcher.follow_jobs(), name="bench.jobs")
            starts, deaths = await measure_starts(client, watcher, home, options.starts)
            per_second = await measure_lifecycles(client, watcher, options.jobs, options.clients)
    finally:
        await client.close()
    start, death, unit = percentile(starts, 0.5), percentile(deaths, 0.99), percentile(bare, 0.5)
    print(f"  {level}: bare {unit:.2f} ms; start p50 {start:.1f} p99 {percentile(starts, 0.99):.1f} ms ", end="")
    print(f"({start / unit:.1f}x bare); death p50 {percentile(deaths, 0.5):.1f} p99 {death:.1f} ms; ", end="")
    print(f"{per_second:.0f} lifecycles/s; load {os.getloadavg()[0]:.1f}", flush=True)
    return start <= START_MS[level] and per_second >= PER_SECOND[level] and death <= DEATH_MS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="plain,full" if os.geteuid() == 0 else "plain")
    parser.add_argument("--starts", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    kept = True
    for level in options.levels.split(","):
        with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
            home = Path(folder) / "home"
            home.mkdir(mode=0o700)
            (home / "config.toml").write_text(f'[node]\nisolation = "{level}"\n')
            with start_server(home) as server:
                kept = asyncio.run(measure(server.kubeconfig, home, level, options)) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
