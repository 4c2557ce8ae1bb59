"""The longest time that the event loop is blocked, with 100,000 stored objects and every protection on.

The server runs in this process; clients in another one list page by page and 50,000 at once, watch from the
beginning, create, and delete a thousand objects. A timer of one millisecond looks at the CPU time of the loop's thread:
what was used since it last ran is a pause for everybody else. CPU time, so that neither a busy machine nor the disk's
fsync counts; a full garbage collection does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench._report import Report
from bench.startup import OBJECTS, fill
from trainmaster.api.meta import GVR
from trainmaster.app.collector import stop_automatic_collection
from trainmaster.app.control_plane import World
from trainmaster.app.embedded import serving
from trainmaster.app.home.folder import Home
from trainmaster.app.settings import Settings
from trainmaster.client.contract import ListOptions, WatchOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds

CONFIG_MAPS = GVR("", "v1", "configmaps")


class Ticker:
    """The longest pause since `reset`, in milliseconds of CPU."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.thread_time()

    def reset(self) -> None:
        self.longest = 0.0
        self._last = time.thread_time()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.longest = max(self.longest, (now - self._last) * 1000)
            self._last = now


# What the client process does


async def list_pages(client: HttpClient) -> None:
    token = ""
    while True:
        page = await client.list(CONFIG_MAPS, "default", ListOptions(limit=500, continue_token=token))
        token = page.continue_token
        if not token:
            return


async def list_many(client: HttpClient) -> None:
    await client.list(CONFIG_MAPS, "default", ListOptions(limit=50_000))


async def select(client: HttpClient) -> None:
    await client.list(CONFIG_MAPS, "default", ListOptions(label_selector="batch=7"))


async def watch_all(client: HttpClient) -> None:
    seen = 0
    async with client.watch(CONFIG_MAPS, "default", WatchOptions()) as stream:
        async for _ in stream:
            seen += 1
            if seen >= OBJECTS:
                return


async def create(client: HttpClient) -> None:
    async def some(worker: int) -> None:
        for number in range(200):
            obj = {"kind": "ConfigMap", "metadata": {"name": f"new-{worker}-{number}"}, "data": {"key": "value"}}
            await client.create(CONFIG_MAPS, obj, "default")

    async with asyncio.TaskGroup() as group:
        for worker in range(16):
            group.create_task(some(worker))


async def delete_some(client: HttpClient) -> None:
    await client.delete_collection(CONFIG_MAPS, "default", ListOptions(label_selector="batch=8"))


LOADS: dict[str, Callable[[HttpClient], Awaitable[None]]] = {
    "list, 500 a page": list_pages,
    "list, 50,000 at once": list_many,
    "list by label": select,
    "watch from the beginning": watch_all,
    "3,200 creates from 16 clients": create,
    "delete a collection of 1,000": delete_some,
}


async def run_load(kubeconfig: Path, name: str) -> None:
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        await LOADS[name](client)
    finally:
        await client.close()


# The server


async def measure(home: Path) -> dict[str, float]:
    world = World(Home(home), Settings(), os.environ, SystemClock(), SystemIds())
    pauses: dict[str, float] = {}
    async with serving(world) as (info, _):
        stop_automatic_collection()
        ticker = Ticker()
        running = asyncio.create_task(ticker.run())
        await asyncio.sleep(1.0)
        pauses["the first second after the start"] = ticker.longest
        for name in LOADS:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.pauses", "--load", name, "--kubeconfig", info.kubeconfig
            )
            await asyncio.sleep(0.01)
            ticker.reset()  # do not count the fork
            if await process.wait() != 0:
                raise RuntimeError(f"the client failed: {name}")
            pauses[name] = ticker.longest
        ticker.reset()
        await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0.01)
        pauses["a full garbage collection"] = ticker.longest
        running.cancel()
    return pauses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        asyncio.run(run_load(options.kubeconfig, options.load))
        return 0
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        home = Path(folder)
        asyncio.run(fill(home / "store", OBJECTS))
        gc.disable()
        pauses = uvloop.run(measure(home))
    for name, longest in pauses.items():
        print(f"  {name:<36} {longest:6.1f} ms")
    report = Report()
    *others, worst = sorted(pauses, key=lambda name: pauses[name])
    beside = f"during: {worst}; otherwise {pauses[others[0]]:.0f} to {pauses[others[-1]]:.0f} ms"
    what = "longest pause of the event loop with 100,000 objects"
    report.check(what, pauses[worst], at_most=50, unit=" ms", anchor=beside)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
