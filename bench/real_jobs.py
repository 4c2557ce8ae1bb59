"""Two-node TrainJobs with real processes through the whole control plane, over HTTP, at each isolation level.

- start: submit to both ranks executed, as a watcher sees it (so it is on disk), one job after the other;
- death: SIGKILL of a rank to the Failed Pod, as a watcher sees it;
- lifecycles: concurrent clients, each from submit to Complete and on to the next job.

Every Pod runs under a shim that outlives the control plane. The anchor is posix_spawn of the same program until it has
ended, in the same run. Server, shims, ranks and this program share the machine. The processor time of a lifecycle, of
the server and of zygote, shims and programs together, does not depend on what else runs.

Promises (issue 17): plain: start p50 <= 15 ms, 150 lifecycles/s; full: 25 ms, 60/s; both (issue 5): death p99 <= 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench._load import NAMESPACE, percentile
from bench._report import Report
from tests.support.server import ServerProcess, start_server
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.client.contract import Client, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.scopes import Scope

START_MS = {"plain": 15.0, "full": 25.0}
PER_SECOND = {"plain": 150.0, "full": 60.0}
DEATH_MS = 20.0
QUIET_SECONDS = 0.05
"""After a job is gone, so that its end does not compete with the next start."""


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
        self.seen: dict[str, dict[str, tuple[Object, float]]] = {}
        """By Pod name and phase: the object when it was first in that phase, and when that was heard."""
        self.gone: set[str] = set()
        self.finished: dict[str, asyncio.Event] = {}

    async def follow_pods(self) -> None:
        async with self._client.watch(PODS, NAMESPACE, WatchOptions()) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    phases = self.seen.setdefault(event.object["metadata"]["name"], {})
                    phases.setdefault(event.object["status"]["phase"], (event.object, time.perf_counter()))
                elif event.type == "DELETED":
                    self.gone.add(event.object["metadata"]["name"])
                self._news.set()

    async def follow_jobs(self) -> None:
        async with self._client.watch(TRAIN_JOBS, NAMESPACE, WatchOptions()) as events:
            async for event in events:
                if event.type != "BOOKMARK" and is_true(list_conditions(event.object), "Complete"):
                    self.finished.setdefault(event.object["metadata"]["name"], asyncio.Event()).set()

    async def wait(self, job: str, count: int, phase: str) -> list[tuple[Object, float]]:
        async with asyncio.timeout(60):
            while True:
                pods = [phases for name, phases in self.seen.items() if name.startswith(f"{job}-")]
                found = [phases[phase] for phases in pods if phase in phases]
                if len(found) >= count:
                    return found
                self._news.clear()
                await self._news.wait()

    async def wait_gone(self, job: str) -> None:
        async with asyncio.timeout(60):
            while any(name.startswith(f"{job}-") for name in self.seen.keys() - self.gone):
                self._news.clear()
                await self._news.wait()

    async def wait_finished(self, job: str) -> None:
        async with asyncio.timeout(120):
            await self.finished.setdefault(job, asyncio.Event()).wait()


async def measure_starts(client: Client, watcher: Watcher, home: Path, count: int) -> tuple[list[float], list[float]]:
    starts, deaths = [], []
    for number in range(count):
        name = f"start-{number}"
        began = time.perf_counter()
        await client.create(TRAIN_JOBS, make_job(name, "/bin/sleep", "1000"), NAMESPACE)
        running = await watcher.wait(name, 2, "Running")
        starts.append((max(heard for _, heard in running) - began) * 1e3)
        pod = running[0][0]["metadata"]
        record = next((home / "pods" / pod["uid"] / "run").glob("*.started.json"))
        killed = time.perf_counter()
        os.kill(json.loads(record.read_bytes())["pid"], 9)
        failed = await watcher.wait(name, 1, "Failed")
        deaths.append((failed[0][1] - killed) * 1e3)
        await client.delete(TRAIN_JOBS, name, NAMESPACE)
        await watcher.wait_gone(name)
        await asyncio.sleep(QUIET_SECONDS)
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


@dataclass(frozen=True)
class CpuTimes:
    """Seconds of processor time, of the server, and of zygote, shims and programs that have ended."""

    server: float
    pods: float


def read_cpu(server: int, home: Path) -> CpuTimes:
    zygote = json.loads((home / "pods" / ".zygote" / "zygote.json").read_bytes())["pid"]
    times = []
    for pid in (server, zygote):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        times.append([int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]])
    return CpuTimes(sum(times[0][:2]), sum(times[1]))


async def measure(server: ServerProcess, level: str, options: argparse.Namespace, report: Report) -> None:
    client = HttpClient(load_kubeconfig([server.kubeconfig]))
    bare = percentile(spawn_bare(50), 0.5)
    try:
        async with Scope("bench") as scope:
            watcher = Watcher(client)
            scope.spawn_forever(watcher.follow_pods(), name="bench.pods")
            scope.spawn_forever(watcher.follow_jobs(), name="bench.jobs")
            starts, deaths = await measure_starts(client, watcher, server.home, options.starts)
            before = read_cpu(server.pid, server.home)
            per_second = await measure_lifecycles(client, watcher, options.jobs, options.clients)
            await asyncio.sleep(1.0)
            after = read_cpu(server.pid, server.home)
    finally:
        await client.close()
    cpu = [(after.server - before.server) / options.jobs * 1e3, (after.pods - before.pods) / options.jobs * 1e3]
    spawn = f"posix_spawn and wait {bare:.2f} ms"
    print(
        f"{level}: start p99 {percentile(starts, 0.99):.1f} ms; death p50 {percentile(deaths, 0.5):.1f} ms", flush=True
    )
    start = percentile(starts, 0.5)
    report.check(
        f"submit to both ranks running ({level}), p50", start, at_most=START_MS[level], unit=" ms", anchor=spawn
    )
    death = percentile(deaths, 0.99)
    report.check(
        f"SIGKILL of a rank to its Failed Pod ({level}), p99", death, at_most=DEATH_MS, unit=" ms", anchor=spawn
    )
    report.check(
        f"TrainJobs of two real ranks per second ({level})",
        per_second,
        at_least=PER_SECOND[level],
        unit="/s",
        anchor=f"CPU of a job: server {cpu[0]:.1f} ms, shims and programs {cpu[1]:.1f} ms; {spawn}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", default="plain,full" if os.geteuid() == 0 else "plain")
    parser.add_argument("--starts", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    report = Report()
    for level in options.levels.split(","):
        with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
            home = Path(folder) / "home"
            home.mkdir(mode=0o700)
            (home / "config.toml").write_text(f'[node]\nisolation = "{level}"\n')
            with start_server(home) as server:
                asyncio.run(measure(server, level, options, report))
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
