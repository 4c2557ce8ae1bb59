"""Import time and CPU time per call of our HTTP client, against aiohttp and httpx, over TLS.

The command line pays for the import on every start, the operator for every call; one implementation has to serve both.
Each client reads one object again and again from `trainmaster up` on one kept-alive connection and parses it with
orjson. CPU is that of the client's process alone; the import is measured in a fresh interpreter, with ssl and asyncio
loaded beforehand, because every client needs those. The clients take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import httpx
import orjson

from bench._report import Report
from tests.support.server import ServerProcess, start_server
from trainmaster.api.meta import GVR
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

PATH = "/api/v1/namespaces/default"
IMPORTS = {
    "ours": "trainmaster.client.http",
    "aiohttp": "aiohttp",
    "httpx": "httpx",
}
Get = Callable[[], Awaitable[object]]


def measure_import(module: str) -> float:
    """Milliseconds of CPU time."""
    code = (
        f"import asyncio, ssl, time, orjson; t = time.process_time(); import {module}; print(time.process_time() - t)"
    )
    return float(subprocess.check_output([sys.executable, "-c", code])) * 1000


async def cpu_us(get: Get, calls: int) -> float:
    for _ in range(calls // 10):
        await get()
    began = time.process_time()
    for _ in range(calls):
        await get()
    return (time.process_time() - began) / calls * 1e6


async def measure(server: ServerProcess, calls: int, rounds: int) -> dict[str, float]:
    token = (server.home / "pki" / "owner.token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    context = ssl.create_default_context(cafile=str(server.ca))
    url = server.url + PATH
    ours = HttpClient(load_kubeconfig([server.kubeconfig]))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=headers) as session,
        httpx.AsyncClient(verify=context, headers=headers, trust_env=False) as client,
    ):

        async def get_aiohttp() -> object:
            async with session.get(url) as answer:
                return orjson.loads(await answer.read())

        async def get_httpx() -> object:
            return orjson.loads((await client.get(url)).content)

        async def get_ours() -> object:
            return await ours.get(GVR("", "v1", "namespaces"), "default")

        clients: dict[str, Get] = {"ours": get_ours, "aiohttp": get_aiohttp, "httpx": get_httpx}
        found: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(rounds):
            for name, get in clients.items():
                found[name].append(await cpu_us(get, calls))
    await ours.close()
    return {name: min(values) for name, values in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    imports = [{name: measure_import(module) for name, module in IMPORTS.items()} for _ in range(5)]
    starts = {name: statistics.median(found[name] for found in imports) for name in IMPORTS}
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder, start_server(Path(folder)) as server:
        costs = asyncio.run(measure(server, options.calls, options.rounds))
    for name in IMPORTS:
        print(f"  {name:8} import {starts[name]:6.1f} ms   CPU {costs[name]:6.0f} us/call")
    report = Report()
    for what, found, unit in (("import", starts, "ms"), ("a call", costs, "us")):
        others = {name: value for name, value in found.items() if name != "ours"}
        cheapest = min(others.values())
        anchor = f"{found['ours']:.0f} {unit}; " + ", ".join(f"{name} {others[name]:.0f} {unit}" for name in others)
        report.check(
            f"our HTTP client, CPU of {what} over that of the cheapest other", found["ours"] / cheapest,
            at_most=1, unit="x", anchor=anchor,
        )  # fmt: skip
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
