"""The cost of a job with 100,000 finished TrainJobs in the store, compared with an empty store, in one run.

Each side is a control plane with a scripted node in a process of its own; rounds alternate between them, so that a busy
machine disturbs both. The finished ones are copies of TrainJobs that ran here; the newest tenth still has its JobSet,
Job and Pods. Counted is the time of a submit (durable) and until both Pods are Running.

Promise: submit p99 at most 1.2x of the empty store's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict
from pathlib import Path

from bench import _plant
from bench._load import Figures, Load
from bench._report import Report
from trainmaster.api.meta import Object
from trainmaster.kit.clock import SystemClock
from trainmaster.store.sqlite import SqliteStore

RATIO = 1.2
JOBS_PER_ROUND, CLIENTS = 600, 4
MODEL = "model-0"
BUCKETS = ("trainer.kubeflow.org/trainjobs", "jobset.x-k8s.io/jobsets", "batch/jobs", "pods")


async def fill(directory: Path, count: int) -> None:
    """Runs one TrainJob and stores copies of what it left."""
    async with _plant.running_plant(directory) as plant:
        await Load(plant.client).drive("model", 1, 1)
    async with SqliteStore.open(directory / "store", SystemClock()) as store:
        found = [(bucket, record) for bucket in BUCKETS for record in store.scan(bucket)]
        uids = sorted({json.loads(record.value)["metadata"]["uid"] for _, record in found})
        for number in range(count):
            fresh = [str(uuid.UUID(int=number * len(uids) + index + 1, version=4)) for index in range(len(uids))]
            for bucket, record in found:
                if bucket != BUCKETS[0] and number < count * 9 // 10:
                    continue
                name, value = record.name, record.value
                for old, new in [(MODEL, f"past-{number}"), *zip(uids, fresh, strict=True)]:
                    value = value.replace(old.encode(), new.encode())
                obj = json.loads(value)
                obj["metadata"]["resourceVersion"] = str(store.revision + 1)
                value = json.dumps(obj, separators=(",", ":")).encode()
                store.put(bucket, name.replace(MODEL, f"past-{number}"), value)
            if number % 2000 == 0:
                await store.durable(store.revision)
        await store.durable(store.revision)


async def serve_rounds(directory: Path) -> None:
    """A side: one round for each line of standard input."""
    began, spent = time.perf_counter(), time.process_time()
    async with _plant.running_plant(directory) as plant:

        async def confirm(obj: Object) -> None:
            await plant.client.durable(int(obj["metadata"]["resourceVersion"]))

        load = Load(plant.client, confirm)
        busy_until, spent_then = time.perf_counter(), time.process_time()
        while time.perf_counter() < busy_until + 1.0:
            await asyncio.sleep(0.01)
            if not plant.manager.is_idle:
                busy_until, spent_then = time.perf_counter(), time.process_time()
        print(json.dumps({"idle_after": busy_until - began, "cpu": spent_then - spent}), flush=True)
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
        first = self._read()
        self.idle_after, self.cpu = first["idle_after"], first["cpu"]

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


def compare(sides: list[Side], rounds: int) -> float:
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
    return full / empty


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", type=Path, help="be one of the two sides (used by this program itself)")
    options = parser.parse_args()
    if options.side is not None:
        _plant.run(serve_rounds(options.side))
        return 0
    print(f"  load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        full = Path(folder) / "full"
        _plant.run(fill(full, options.finished))
        sides = [Side("empty", Path(folder) / "empty"), Side("full", full)]
        try:
            for side in sides:
                print(
                    f"  {side.name:8} at rest {side.idle_after:.1f} s after the start, {side.cpu:.1f} s of CPU",
                    flush=True,
                )
            ratio = compare(sides, options.rounds)
        finally:
            for side in sides:
                side.stop()
    report = Report()
    what = f"submit p99 with {options.finished:,} finished TrainJobs"
    report.check(what, ratio, at_most=RATIO, unit="x", anchor="of an empty store")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
