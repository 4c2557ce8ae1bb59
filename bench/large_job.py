"""One TrainJob of 2,000 nodes with scripted Pods, and how much it slows down other users.

The large job is submitted through the in-process client; counted is the time until its last Pod is Running. Other users
submit small TrainJobs all the time, one after the other: their submit p99 while the large one starts is compared
with the one just before, in the same process.

The CPU time of the process is printed too: it says more about us than seconds do on a machine that others use.

Promises: all 2,000 Pods Running within 1 s; other users' submit p99 meanwhile at most 3x.
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
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions
from trainmaster.kit.scopes import Scope

SECONDS, TIMES = 1.0, 3.0
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


async def settle(plant: Plant, name: str) -> None:
    """Until nothing of the job is left and nobody works any more: its clean-up must not be counted as the others'."""
    await plant.client.delete(TRAIN_JOBS, name, NAMESPACE, DeleteOptions(propagation="Background"))
    quiet = 0
    while quiet < 10:
        await asyncio.sleep(0.05)
        is_gone = plant.store.count("pods", f"{NAMESPACE}/{name}-") == 0
        quiet = quiet + 1 if is_gone and plant.manager.is_idle else 0


async def measure(folder: Path, nodes: int, rounds: int) -> tuple[float, float]:
    """(median seconds of the large job, how much slower the others' submit p99 was: median)."""
    seconds, slower = [], []
    async with _plant.running_plant(folder, ends=False) as plant:
        for number in range(rounds + 1):
            spent = time.process_time()
            alone = await start_large(plant, f"alone-{number}", nodes)
            spent = time.process_time() - spent
            await settle(plant, f"alone-{number}")
            async with Scope("others") as scope:
                others = Others(plant, _number=number * 100_000)
                scope.spawn_forever(others.work(), name="others")
                await asyncio.sleep(1.0)
                before = percentile(others.take(), 0.99)
                busy = await start_large(plant, f"busy-{number}", nodes)
                meanwhile = others.take()
            await settle(plant, f"busy-{number}")
            if number == 0:
                continue  # warm-up
            seconds.append(alone)
            slower.append(percentile(meanwhile, 0.99) / before)
            print(
                f"  {nodes} Pods Running after {alone:.2f} s alone ({spent:.2f} s of CPU), {busy:.2f} s beside "
                f"other users; their submit p99 {before:.2f} ms before, {percentile(meanwhile, 0.99):.2f} ms meanwhile "
                f"(n {len(meanwhile)})",
                flush=True,
            )
    return statistics.median(seconds), statistics.median(slower)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"  load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        seconds, slower = _plant.run(measure(Path(folder) / "home", options.nodes, options.rounds))
    kept = []
    for text, value, limit in (
        (f"seconds until {options.nodes:,} Pods run", seconds, SECONDS),
        ("others' submit p99 meanwhile, times before", slower, TIMES),
    ):
        kept.append(value <= limit)
        print(f"{'ok    ' if kept[-1] else 'MISSED'} {text:<44} {value:8.2f}  (promised <= {limit:g})")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
