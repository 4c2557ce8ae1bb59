"""100,000 finished TrainJobs in the store: what a start, a list and a submit cost with them.

The finished ones are copies of a TrainJob of two nodes that ran here, with a TTL of 30 days. The newest tenth still has
its JobSet, Job and two Pods; those of the others were deleted by a TTL of their own. All have a record in the history.
Events, which expire after an hour, and snapshots of runtimes are left out. They have been finished for longer than ten
minutes, so the server has packed them: `fill` does that at once.

- `trainmaster up` on them: the time until it is ready, CPU time until it is at rest, memory then, and the first page of
  a list (500 TrainJobs) over TLS. Beside it the same in an empty home.
- Submit (durable) and the time until both Pods are Running, compared with an empty store: each side is a control plane
  with a scripted node in a process of its own; rounds alternate between them.

Promises: ready in 1 s, at rest after 3 s of CPU time, at most 250 MB, first page in 50 ms, submit p99 at most 1.2x.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from bench import _plant
from bench._load import Figures, Load, make_trainjob
from bench._report import Report
from bench.lifecycles import cpu_seconds
from bench.startup import ask_ready, resident_mb
from tests.support.server import ServerProcess, launch_server
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.apiserver.at_rest import ObjectPacking
from trainmaster.apiserver.local_view import LocalView
from trainmaster.app.control_plane import ControlPlane, World
from trainmaster.app.home.folder import Home
from trainmaster.app.settings import Settings
from trainmaster.app.workloads import JOBS
from trainmaster.controllers.lifecycle.at_rest import RestRules
from trainmaster.history.archive import Archive
from trainmaster.history.record import JobRecord, RecordSources, build_record
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.store.sqlite import SqliteStore

READY_MS, REST_SECONDS, MEMORY_MB, PAGE_MS, RATIO = 1000.0, 3.0, 250.0, 50.0, 1.2
JOBS_PER_ROUND, CLIENTS = 600, 4
STARTS, PAGES = 3, 20
TTL = 30 * 86400
MODEL = "model-0"
TRAIN_JOB_BUCKET = "trainer.kubeflow.org/trainjobs"
BUCKETS = (TRAIN_JOB_BUCKET, "jobset.x-k8s.io/jobsets", "batch/jobs", "pods")


async def run_model(directory: Path) -> None:
    """Runs the TrainJob that is copied."""
    async with _plant.running_plant(directory) as plant:
        trainjob = make_trainjob(MODEL)
        trainjob["spec"]["ttlSecondsAfterFinished"] = TTL
        await plant.client.create(TRAIN_JOBS, trainjob, "default")
        while True:
            await asyncio.sleep(0.05)
            found = await plant.client.get(TRAIN_JOBS, MODEL, "default")
            if is_true(list_conditions(found), "Complete") and found["status"].get("retention"):
                return


async def fill(directory: Path, count: int) -> None:
    await run_model(directory)
    home, clock = Home(directory), SystemClock()
    async with SqliteStore.open(home.store, clock) as store:
        await copy_model(store, count)
        api = ControlPlane(World(home, Settings(), {}, clock, SystemIds()), store)
        rules = RestRules(LocalView(api.registry), JOBS, None)
        await ObjectPacking(api.registry, clock, rules, lambda: True).pack(0)
        at_rest = sum(record.is_packed for bucket in BUCKETS for record in store.scan(bucket))
        print(
            f"  {store.count(TRAIN_JOB_BUCKET):,} TrainJobs; at rest with what belongs to them: {at_rest:,}", flush=True
        )
        archive = Archive.open(home.history)
        for records in make_records(store):
            archive.put(records)
        archive.close()


async def copy_model(store: SqliteStore, count: int) -> None:
    found = [(bucket, record) for bucket in BUCKETS for record in store.scan(bucket)]
    uids = sorted({orjson.loads(record.value)["metadata"]["uid"] for _, record in found})
    for number in range(count):
        fresh = [str(uuid.UUID(int=number * len(uids) + index + 1, version=4)) for index in range(len(uids))]
        for bucket, record in found:
            if bucket != TRAIN_JOB_BUCKET and number < count * 9 // 10:
                continue
            value = record.value
            for old, new in [(MODEL, f"past-{number}"), *zip(uids, fresh, strict=True)]:
                value = value.replace(old.encode(), new.encode())
            obj = orjson.loads(value)
            obj["metadata"]["resourceVersion"] = str(store.revision + 1)
            store.put(bucket, record.name.replace(MODEL, f"past-{number}"), orjson.dumps(obj))
        if number % 500 == 0:
            await store.durable(store.revision)
    await store.durable(store.revision)


def make_records(store: SqliteStore) -> Iterator[list[JobRecord]]:
    """What the history has of them, in batches."""
    jobs = store.scan(TRAIN_JOB_BUCKET)
    for start in range(0, len(jobs), 1000):
        yield [build_record(RecordSources(orjson.loads(job.value))) for job in jobs[start : start + 1000]]


@dataclass(frozen=True)
class Started:
    ready_ms: float
    cpu: float
    """Seconds until it was at rest."""
    memory_mb: float
    page_ms: float


def start_server(home: Path) -> Started:
    """Starts `trainmaster up` and waits until it is at rest."""
    began = time.perf_counter()
    server = launch_server(home, environ={"PYTHONDONTWRITEBYTECODE": ""})
    try:
        ask_ready(server.url, server.ca)
        ready = (time.perf_counter() - began) * 1000
        cpu = cpu_seconds([server.pid])
        quiet = 0
        while quiet < 4:
            time.sleep(0.5)
            spent = cpu_seconds([server.pid])
            quiet = quiet + 1 if spent - cpu <= 0.03 else 0
            cpu = spent
        return Started(ready, cpu, resident_mb(server.pid), statistics.median(read_pages(server)))
    finally:
        server.stop()


def read_pages(server: ServerProcess) -> list[float]:
    """Milliseconds of each GET of the first page, on new connections as a command makes them."""
    context = ssl.create_default_context(cafile=str(server.ca))
    token = (server.home / "pki" / "owner.token").read_text().strip()
    url = f"{server.url}/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs?limit=500"
    taken = []
    for _ in range(PAGES):
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        began = time.perf_counter()
        with urllib.request.urlopen(request, context=context) as answer:
            items = json.loads(answer.read())["items"]
        taken.append((time.perf_counter() - began) * 1000)
        assert len(items) <= 500
    return taken


async def serve_rounds(directory: Path) -> None:
    """A side: one round for each line of standard input."""
    async with _plant.running_plant(directory) as plant:

        async def confirm(obj: Object) -> None:
            await plant.client.durable(int(obj["metadata"]["resourceVersion"]))

        load = Load(plant.client, confirm)
        number = 0
        while await asyncio.to_thread(sys.stdin.readline):
            number += 1
            figures = await load.drive(f"round{os.getpid()}-{number}", JOBS_PER_ROUND, CLIENTS)
            print(json.dumps(asdict(figures)), flush=True)


class Side:
    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.rounds: list[Figures] = []
        command = [sys.executable, "-m", "bench.history", "--side", str(directory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the side {self.name} ended with {self._process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def run_round(self) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return Figures(**self._read())  # type: ignore[arg-type]

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(sides: list[Side], rounds: int) -> tuple[float, float]:
    """Submit p99 in ms: the medians of the sides."""
    for side in sides:
        side.run_round()  # warm-up
    for _ in range(rounds):
        for side in sides:
            figures = side.run_round()
            side.rounds.append(figures)
            print(
                f"  {side.name:8} {figures.per_second:6.0f}/s  submit p50 {figures.submit_p50_ms:.2f} p99 "
                f"{figures.submit_p99_ms:.2f} ms   both Pods Running p50 {figures.running_p50_ms:.2f} p99 "
                f"{figures.running_p99_ms:.2f} ms",
                flush=True,
            )
    empty, full = (statistics.median(one.submit_p99_ms for one in side.rounds) for side in sides)
    return empty, full


def report_starts(report: Report, empty_home: Path, full_home: Path) -> None:
    runs: dict[Path, list[Started]] = {empty_home: [], full_home: []}
    for _ in range(STARTS):
        for home, found in runs.items():
            found.append(start_server(home))
            print(f"  {home.name}: {found[-1]}", flush=True)
    # The first start of a home makes its keys and upgrades what it finds.
    empty, full = (found[1:] for found in runs.values())

    def check(what: str, field: str, limit: float, unit: str) -> None:
        seen, anchor = (statistics.median(getattr(one, field) for one in found) for found in (full, empty))
        text = f"{what} with 100,000 finished TrainJobs"
        report.check(text, seen, at_most=limit, unit=unit, anchor=f"{anchor:,.3g}{unit} in an empty home")

    check("start", "ready_ms", READY_MS, " ms")
    check("CPU time until at rest", "cpu", REST_SECONDS, " s")
    check("memory", "memory_mb", MEMORY_MB, " MB")
    check("first page of a list", "page_ms", PAGE_MS, " ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", type=Path, help="be one of the two sides (used by this program itself)")
    options = parser.parse_args()
    if options.side is not None:
        _plant.run(serve_rounds(options.side))
        return 0
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        _plant.run(fill(full, options.finished))
        report_starts(report, empty, full)
        sides = [Side("empty", empty), Side("full", full)]
        try:
            alone, among = compare(sides, options.rounds)
        finally:
            for side in sides:
                side.stop()
    text = "submit p99 with 100,000 finished TrainJobs, compared with an empty store"
    report.check(text, among / alone, at_most=RATIO, unit="x", anchor=f"{alone:.1f} ms in an empty store")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
