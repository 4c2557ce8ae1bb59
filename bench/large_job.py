"""One TrainJob of 2,000 nodes with scripted Pods, and how much it slows down other users.

The large job is submitted through the in-process client; counted is the time until its last Pod is Running. Other users
submit small TrainJobs all the time, one after the other: their submit p99 while the large one starts is compared
with the one just before, in the same process.

The CPU time of the process is printed too: it says more about us than seconds do on a machine that others use.

Promises: all 2,000 Pods Running within 1 s; other users' submit p99 while they start and while they are deleted at most
3x; no pass of a controller holds the event loop for more than 2 ms of CPU time. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench import _plant
from bench._load import NAMESPACE, make_trainjob, percentile
from bench._plant import Plant
from bench._report import Report
from bench._steps import StepTimer
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions
from trainmaster.kit.scopes import Scope

SECONDS, TIMES, HOLD_MS = 1.0, 3.0, 2.0
PAUSE = 0.002
"""Pause between two submits of other users, who are people and scripts."""


@dataclass
class Others:
    """Small jobs of other users."""

    plant: Plant
    times: list[float] = field(default_factory=list)
    _number: int = 0

    async def work(self) -> None:
        client = self.plant.client
        while True:
            self._number += 1
            began = time.perf_counter()
            made = await client.create(TRAIN_JOBS, make_trainjob(f"other-{self._number}", 1), NAMESPACE)
            await client.durable(int(made["metadata"]["resourceVersion"]))
            self.times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(PAUSE)

    def take(self) -> list[float]:
        times, self.times = self.times, []
        return times


async def start_large(plant: Plant, name: str, nodes: int) -> float:
    """Seconds until its Pods run."""
    node, client = plant.node, plant.client
    began = time.perf_counter()
    await client.create(TRAIN_JOBS, make_trainjob(name, nodes), NAMESPACE)
    while node.running_of(name) < nodes:  # noqa: ASYNC110 - looks, and takes no part
        await asyncio.sleep(0.001)
    return time.perf_counter() - began


async def delete_large(plant: Plant, name: str) -> None:
    await plant.client.delete(TRAIN_JOBS, name, NAMESPACE, DeleteOptions(propagation="Background"))
    while plant.store.count("pods", f"{NAMESPACE}/{name}-"):  # noqa: ASYNC110 - looks, and takes no part
        await asyncio.sleep(0.005)


async def wait_for_rest(plant: Plant) -> None:
    quiet = 0
    while quiet < 10:
        await asyncio.sleep(0.05)
        quiet = quiet + 1 if plant.manager.is_idle else 0


async def settle(plant: Plant, name: str) -> None:
    """Until nothing of the job is left and nobody works any more: its clean-up must not be counted as the others'."""
    await delete_large(plant, name)
    await wait_for_rest(plant)


@dataclass
class Rounds:
    """What was seen, one value for each round."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    """Submit p99 of others in ms."""
    starting: list[float] = field(default_factory=list)
    deleting: list[float] = field(default_factory=list)
    holds: list[tuple[float, str]] = field(default_factory=list)
    """The longest step of a pass in ms, and of which controller."""


async def measure(folder: Path, nodes: int, rounds: int) -> Rounds:
    seen, timer = Rounds(), StepTimer()
    asyncio.get_running_loop().set_task_factory(timer.make_task)
    async with _plant.running_plant(folder, ends=False) as plant:
        for number in range(rounds + 1):
            timer.take_longest("")
            spent = time.process_time()
            alone = await start_large(plant, f"alone-{number}", nodes)
            spent = time.process_time() - spent
            controller, hold = timer.take_longest("controllers.")
            await settle(plant, f"alone-{number}")
            async with Scope("others") as scope:
                others = Others(plant, _number=number * 100_000)
                scope.spawn_forever(others.work(), name="others")
                await asyncio.sleep(1.0)
                before = percentile(others.take(), 0.99)
                await start_large(plant, f"busy-{number}", nodes)
                starting = percentile(others.take(), 0.99)
                await delete_large(plant, f"busy-{number}")
                deleting = percentile(others.take(), 0.99)
            await wait_for_rest(plant)
            print(
                f"  {nodes} Pods Running after {alone:.2f} s alone ({spent:.2f} s of CPU; longest step {hold:.1f} ms, "
                f"{controller}); others' submit p99 {before:.1f} ms before, {starting:.1f} ms while it starts, "
                f"{deleting:.1f} ms while it is deleted",
                flush=True,
            )
            if number:  # the first is a warm-up
                seen.seconds.append(alone)
                seen.cpu.append(spent)
                seen.before.append(before)
                seen.starting.append(starting)
                seen.deleting.append(deleting)
                seen.holds.append((hold, controller))
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"  load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        seen = _plant.run(measure(Path(folder) / "home", options.nodes, options.rounds))
    report, pods, median = Report(), f"{options.nodes:,} Pods", statistics.median
    spent = f"{median(seen.cpu):.2f} s of CPU"
    report.check(
        f"submit of one TrainJob to {pods} Running", median(seen.seconds), at_most=SECONDS, unit=" s", anchor=spent
    )
    anchor = f"p99 {median(seen.before):.1f} ms before"
    for what, times in (("start", seen.starting), ("are deleted", seen.deleting)):
        ratio = median(now / before for now, before in zip(times, seen.before, strict=True))
        report.check(f"others' submit p99 while {pods} {what}", ratio, at_most=TIMES, unit="x", anchor=anchor)
    hold, controller = sorted(seen.holds)[len(seen.holds) // 2]
    what = f"longest time that a pass holds the loop while {pods} start (CPU)"
    report.check(what, hold, at_most=HOLD_MS, unit=" ms", anchor=f"of the task `{controller}`")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
