"""How much the deletion of 10,000 objects slows down other users.

In one run on the embedded control plane, durable on disk: a collection of 10,000 ConfigMaps is deleted, then finished
TrainJobs of two nodes, one after the other, which with their JobSets, Jobs, Pods, Services and ConfigMaps are 10,000
objects too. Other users submit small TrainJobs all the time; their submit p99 meanwhile is compared with the one just
before.

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
from pathlib import Path

from bench import _plant
from bench._load import NAMESPACE, Load, percentile
from bench._plant import Plant
from bench._report import Report
from bench._steps import StepTimer
from bench.large_job import HOLD_MS, TIMES, Others, wait_for_rest
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions, ListOptions
from trainmaster.kit.scopes import Scope

DEPENDENTS = ("jobset.x-k8s.io/jobsets", "batch/jobs", "pods", "services", "configmaps")
"""Buckets of what the garbage collector deletes after a TrainJob."""
OBJECTS_PER_JOB = 7
"""A TrainJob of two nodes, and its dependents."""
CLIENTS = 32


async def add_config_maps(plant: Plant, count: int) -> None:
    for number in range(count):
        meta = {"name": f"many-{number}", "labels": {"bench": "many"}}
        await plant.client.create(CONFIG_MAPS, {"metadata": meta, "data": {"key": "x" * 500}}, NAMESPACE)


async def delete_config_maps(plant: Plant) -> None:
    chosen = ListOptions(label_selector="bench=many")
    await plant.client.delete_collection(CONFIG_MAPS, NAMESPACE, chosen, DeleteOptions())
    await wait_until_gone(plant, ("configmaps",), "many-")


async def add_trainjobs(plant: Plant, count: int) -> None:
    await Load(plant.client).drive("finished", count, CLIENTS)
    left = sum(count_objects(plant, bucket, "finished-") for bucket in DEPENDENTS)
    assert left == count * (OBJECTS_PER_JOB - 1), f"{count} finished TrainJobs have {left} dependents"


async def delete_trainjobs(plant: Plant, count: int) -> None:
    gone = DeleteOptions(propagation="Background")
    for number in range(count):
        await plant.client.delete(TRAIN_JOBS, f"finished-{number}", NAMESPACE, gone)
        await asyncio.sleep(0)
    await wait_until_gone(plant, DEPENDENTS, "finished-")


def count_objects(plant: Plant, bucket: str, prefix: str) -> int:
    return plant.store.count(bucket, f"{NAMESPACE}/{prefix}")


async def wait_until_gone(plant: Plant, buckets: tuple[str, ...], prefix: str) -> None:
    while any(count_objects(plant, bucket, prefix) for bucket in buckets):  # noqa: ASYNC110 - only looks
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
    report.check(
        f"others' submit p99 while {what} are deleted", meanwhile / before, at_most=TIMES, unit="x", anchor=anchor
    )
    report.check(
        f"longest step while {what} are deleted (CPU)",
        hold,
        at_most=HOLD_MS,
        unit=" ms",
        anchor=f"of the task `{name}`",
    )


async def measure(folder: Path, objects: int, report: Report) -> None:
    timer = StepTimer()
    asyncio.get_running_loop().set_task_factory(timer.make_task)
    async with _plant.running_plant(folder) as plant:
        await asyncio.sleep(2.0)  # the server still has work after its start
        await add_config_maps(plant, objects)
        await measure_part(plant, timer, report, f"{objects:,} ConfigMaps", lambda: delete_config_maps(plant))
        jobs = objects // OBJECTS_PER_JOB
        await add_trainjobs(plant, jobs)
        what = f"{jobs:,} finished TrainJobs with what they own"
        await measure_part(plant, timer, report, what, lambda: delete_trainjobs(plant, jobs))


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
