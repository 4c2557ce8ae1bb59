"""What it costs to notice stalls, with 100 running jobs that report every five seconds.

The server runs in this process, the jobs are real programs. Counted is the CPU time of what decides about stalls: a
passage in each pass over a TrainJob, the look at the jobs every ten seconds, and the heartbeat. Beside it: the server
without jobs, and all that it does for the 100, of which most is taking their reports.

Promise (issue 20): detection at most 1 % of a core.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from bench._load import NAMESPACE
from bench._report import Report
from bench.real_jobs import make_job
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.app.collector import stop_automatic_collection
from trainmaster.app.control_plane import World
from trainmaster.app.embedded import serving
from trainmaster.app.home.folder import Home
from trainmaster.app.settings import NodeOptions, Settings
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.controllers.trainjob import stalls
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.node.host import signs

JOBS = 100
SECONDS = 60.0
PROGRAM = """
import itertools, time, trainmaster
for step in itertools.count(1):
    trainmaster.report(step=step, loss=1 / step)
    time.sleep(1)
"""


class Spent:
    """CPU time of the calls of functions."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def count(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - began
                self.calls += 1

        return counted


async def measure_process(seconds: float) -> float:
    """Cores that this process uses."""
    began, at = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    return (time.process_time() - began) / (time.monotonic() - at)


async def count_reporting(client: HttpClient) -> int:
    items = (await client.list(TRAIN_JOBS, NAMESPACE)).items
    return sum("pace" in (item.get("status") or {}) for item in items)


async def measure(home: Path) -> Report:
    passes, looks = Spent(), Spent()
    stalls.follow = passes.count(stalls.follow)
    for name in ("_mark_files", "note_all"):
        setattr(signs.SignReader, name, looks.count(getattr(signs.SignReader, name)))
    settings = Settings(node=NodeOptions(isolation="plain", cpus=4.0 * JOBS))
    world = World(Home(home), settings, os.environ, SystemClock(), SystemIds())
    async with serving(world) as (info, _):
        stop_automatic_collection()
        client = HttpClient(load_kubeconfig([Path(info.kubeconfig)]))
        await asyncio.sleep(15.0)
        idle = await measure_process(SECONDS / 2)
        for number in range(JOBS):
            job = make_job(f"job-{number}", sys.executable, "-c", PROGRAM, nodes=1)
            await client.create(TRAIN_JOBS, job, NAMESPACE)
        while await count_reporting(client) < JOBS:  # noqa: ASYNC110 - other processes report
            await asyncio.sleep(1.0)
        await asyncio.sleep(15.0)
        passes.seconds, passes.calls, looks.seconds, looks.calls = 0.0, 0, 0.0, 0
        busy = await measure_process(SECONDS)
        spent = (passes.seconds + looks.seconds) / SECONDS
        for number in range(JOBS):
            await client.delete(TRAIN_JOBS, f"job-{number}", NAMESPACE)
        while (await client.list(TRAIN_JOBS, NAMESPACE)).items:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.5)
        await client.close()
    print(f"  {passes.calls} passes, {passes.seconds * 1e6 / max(1, passes.calls):.1f} us each")
    print(f"  {looks.calls} looks, {looks.seconds * 1e3 / max(1, looks.calls):.2f} ms each")
    report = Report()
    beside = f"the server: {100 * idle:.2f} % without jobs, {100 * busy:.1f} % with them and their reports"
    what = f"CPU time for noticing stalls of {JOBS} running jobs"
    report.check(what, 100 * spent, at_most=1.0, unit=" % of a core", anchor=beside)
    return report


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        return uvloop.run(measure(Path(folder))).exit_code


if __name__ == "__main__":
    sys.exit(main())
