"""1,000 running Pods after SIGKILL of the server: from the start of a new one until it knows all of them as running.

The Pods are `sleep` under their shims at the plain level, which live on without a server. Counted is the wall time from
the start of the new process, interpreter and imports included, to its log line that the last Pod was adopted; beside it
the processor time of the server up to then, and how long its start takes without any Pod. All Pods must be Running
afterwards, with the processes that they had.

Promise (issue 17): 1,000 Pods within 1 s of the start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from bench._report import Report
from tests.support.server import ServerProcess, launch_server
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS
from trainmaster.client.contract import Client, ListOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig

AT_MOST_SECONDS = 1.0
NAMESPACE = "default"
ADOPTED = "pod adopted"
_PARALLEL = 16


def make_pod(name: str) -> Object:
    container = {"name": "main", "image": "example.com/sleep:1", "command": ["/bin/sleep", "100000"]}
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


async def count_running(client: Client) -> int:
    page = await client.list(PODS, NAMESPACE, ListOptions())
    return sum(item.get("status", {}).get("phase") == "Running" for item in page.items)


async def count_directories(home: Path) -> int:
    """Of Pods, in the home."""
    return sum(not name.startswith(".") for name in os.listdir(home / "pods"))


async def wait_for(read: Callable[[], Awaitable[int]], wanted: int) -> None:
    async with asyncio.timeout(180):
        while True:
            if await read() == wanted:
                return
            await asyncio.sleep(0.5)


async def start_pods(server: ServerProcess, count: int) -> None:
    client = HttpClient(load_kubeconfig([server.kubeconfig]))
    names = iter([f"sleep-{number}" for number in range(count)])

    async def create_all() -> None:
        for name in names:
            await client.create(PODS, make_pod(name), NAMESPACE)

    try:
        await asyncio.gather(*(create_all() for _ in range(_PARALLEL)))
        await wait_for(lambda: count_running(client), count)
    finally:
        await client.close()


async def end_pods(server: ServerProcess, count: int) -> None:
    """Checks that all are Running, and deletes them."""
    client = HttpClient(load_kubeconfig([server.kubeconfig]))
    try:
        assert await count_running(client) == count
        await client.delete_collection(PODS, NAMESPACE)
        await wait_for(lambda: count_directories(server.home), 0)
    finally:
        await client.close()


def read_programs(home: Path) -> dict[str, bytes]:
    """By Pod uid: the record of its process."""
    return {path.parent.parent.name: path.read_bytes() for path in (home / "pods").glob("*/run/main.0.started.json")}


def read_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_adoptions(home: Path, since: int) -> list[float]:
    """The times of the log lines about adopted Pods."""
    lines = (home / "logs" / "test.log").read_bytes()[since:].decode(errors="replace").splitlines()
    stamps = [line.split()[0] for line in lines if ADOPTED in line]
    return [datetime.fromisoformat(stamp).timestamp() for stamp in stamps]


def restart(home: Path, count: int) -> tuple[ServerProcess, float, float, float]:
    """(server, seconds until it is ready, until the last Pod is adopted, its processor time then)."""
    since = (home / "logs" / "test.log").stat().st_size
    began = time.time()
    server = launch_server(home)
    ready = time.time() - began
    deadline = began + 60
    while len(found := read_adoptions(home, since)) < count:
        if time.time() > deadline:
            raise TimeoutError(f"{len(found)} of {count} Pods adopted within a minute")
        time.sleep(0.02)
    return server, ready, max(found) - began if found else ready, read_cpu_seconds(server.pid)


def measure(home: Path, count: int, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds: without Pods, with `count`, and the processor time of the latter."""
    server = launch_server(home)
    server.kill()
    empty = []
    for _ in range(rounds):
        server, ready, _, _ = restart(home, 0)
        empty.append(ready)
        server.kill()
    server = launch_server(home)
    try:
        return empty, *measure_adoption(server, count, rounds)
    except BaseException:
        kill_all(home)
        raise


def measure_adoption(server: ServerProcess, count: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds until all Pods are adopted, and the processor time of the server then."""
    home, full, cpu = server.home, [], []
    began = time.time()
    asyncio.run(start_pods(server, count))
    print(f"{count} Pods started in {time.time() - began:.1f} s", flush=True)
    programs = read_programs(home)
    for number in range(rounds):
        server.kill()
        server, ready, adopted, spent = restart(home, count)
        full.append(adopted)
        cpu.append(spent)
        print(f"round {number + 1}: ready {ready:.2f} s, all adopted {adopted:.2f} s, CPU {spent:.2f} s", flush=True)
    assert read_programs(home) == programs, "a program was started again"
    asyncio.run(end_pods(server, count))
    server.stop()
    return full, cpu


def kill_all(home: Path) -> None:
    """What a failure has left: the server, and shims, with which their programs end."""
    records = [home / "server.json", *(home / "pods").glob("*/shim.json")]
    for path in records:
        with suppress(OSError):
            os.kill(json.loads(path.read_bytes())["pid"], signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text('[node]\nisolation = "plain"\n')
        empty, full, cpu = measure(home, options.count, options.rounds)
    report = Report()
    report.check(
        f"{options.count:,} running Pods known again after the start of the server, p50",
        statistics.median(full),
        at_most=AT_MOST_SECONDS,
        unit=" s",
        anchor=f"start without Pods {statistics.median(empty):.2f} s; {statistics.median(cpu):.2f} s of CPU",
    )
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
