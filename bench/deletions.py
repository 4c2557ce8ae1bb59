"""How much the deletion of 10,000 objects slows down other users.

In one run on the embedded control plane, durable on disk: a collection of 10,000 ConfigMaps is deleted, then 2,500
finished TrainJobs with their dependents (JobSets, Jobs and events). Other users submit small TrainJobs all the time;
their submit p99 meanwhile is compared with the one just before.

Promises: at most 3x; no step of a task holds the event loop for more than 2 ms of CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import _plant
from bench._load import NAMESPACE, percentile
from bench._plant import Plant
from bench._report import Report
from bench._steps import StepTimer
from bench.large_job import HOLD_MS, TIMES, Others, wait_for_rest
from bench.retention import TRAIN_JOB, make_finished
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions, ListOptions
from trainmaster.kit.scopes import Scope

KEPT_SECONDS = 86_400


async def add_config_maps(plant: Plant, count: int) -> None:
    for number in range(count):
        meta = {"name": f"many-{number}", "labels": {"bench": "many"}}
        await plant.client.create(CONFIG_MAPS, {"metadata": meta, "data": {"key": "x" * 500}}, NAMESPACE)


async def delete_config_maps(plant: Plant) -> None:
    chosen = ListOptions(label_selector="bench=many")
    await plant.client.delete_collection(CONFIG_MAPS, NAMESPACE, chosen, DeleteOptions())
    await wait_until_gone(plant, "configmaps", "many-")


async def add_trainjobs(plant: Plant, count: int) -> None:
    await make_finished(plant.client, TRAIN_JOB, "finished", [KEPT_SECONDS] * count, datetime.now(UTC))


async def delete_trainjobs(plant: Plant, count: int) -> None:
    gone = DeleteOptions(propagation="Background")
    for number in range(count):
        await plant.client.delete(TRAIN_JOBS, f"finished-{number}", NAMESPACE, gone)
        await asyncio.sleep(0)
    await wait_until_gone(plant, "jobset.x-k8s.io/jobsets", "finished-")


async def wait_until_gone(plant: Plant, bucket: str, prefix: str) -> None:
    while plant.store.count(bucket, f"{NAMESPACE}/{prefix}"):  # noqa: ASYNC110 - looks, and takes no part
        await asyncio.sleep(0.005)


async def measure_part(
    plant: Plant, timer: StepTimer, report: Report, what: str, delete: Callable[[], Awaitable[None]]
) -> None:
    await wait_for_rest(plant)
    async with Scope("others") as scope:
        others = Others(plant, _number=int(time.monotonic() * 1000))
        scope.spawn_forever(others.work(), name="others")
        await asyncio.sleep(1.5)
        before = percentile(others.take(), 0.99)
        timer.take_longest("")
        began, spent = time.perf_counter(), time.process_time()
        await delete()
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
        name, hold = timer.take_longest("")
        taken = others.take()
    meanwhile = percentile(taken, 0.99)
    print(f"  {what}: {seconds:.2f} s, {spent:.2f} s of CPU, n {len(taken)}", flush=True)
    anchor = f"p99 {before:.1f} ms before"
    report.check(f"others' submit p99 while {what} go", meanwhile / before, at_most=TIMES, unit="x", anchor=anchor)
    report.check(f"longest step while {what} go (CPU)", hold, at_most=HOLD_MS, unit=" ms", anchor=name)


async def measure(folder: Path, objects: int, report: Report) -> None:
    timer = StepTimer()
    asyncio.get_running_loop().set_task_factory(timer.make_task)
    async with _plant.running_plant(folder) as plant:
        await asyncio.sleep(2.0)  # the server still has work after its start
        await add_config_maps(plant, objects)
        await measure_part(plant, timer, report, f"{objects:,} ConfigMaps", lambda: delete_config_maps(plant))
        jobs = objects // 4
        await add_trainjobs(plant, jobs)
        await measure_part(plant, timer, report, f"{jobs:,} finished TrainJobs", lambda: delete_trainjobs(plant, jobs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000)
    options = parser.parse_args()
    print(f"  load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        _plant.run(measure(Path(folder) / "home", options.objects, report))
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
