"""Cold start to ready, and memory then: ours against etcd and the Kubernetes control plane, in one run.

Counted is the time from starting the process to the first 200 of /readyz over TLS, with TLS, RBAC, audit and garbage
collection on; memory is VmRSS at that moment. The page cache is warm and the home exists; then the same in a new home,
where keys, certificates and runtimes are made. The other side is etcd, kube-apiserver and kube-controller-manager,
each until its own health answers.

Promises: at most 300 ms, also in a new home, and 60 MB; with 100,000 stored objects at most 1 s; at least 10x faster
and 8x smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import ssl
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from bench._report import Report
from tests.kube.cluster import KubeCluster
from tests.support.server import launch_server
from trainmaster.kit.clock import SystemClock
from trainmaster.store.sqlite import SqliteStore

OBJECTS = 100_000
START_MS, MEMORY_MB, FULL_MS = 300.0, 60.0, 1000.0
FASTER, SMALLER = 10.0, 8.0
_WITH_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
"""An installed package has its .pyc files; compiling 280 modules at every start takes another 230 ms of CPU."""


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} has no memory")


def ask_ready(url: str, ca: Path) -> None:
    context = ssl.create_default_context(cafile=str(ca))
    connection = http.client.HTTPSConnection(url.removeprefix("https://"), context=context, timeout=30)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise RuntimeError(f"/readyz answered {response.status}")
    finally:
        connection.close()


def start_once(home: Path) -> tuple[float, float]:
    """(milliseconds to ready, megabytes)."""
    began = time.perf_counter()
    server = launch_server(home, environ=_WITH_BYTECODE)
    try:
        ask_ready(server.url, server.ca)
        return (time.perf_counter() - began) * 1000, resident_mb(server.pid)
    finally:
        server.stop()


def measure_both(home: Path, runs: int, kube_runs: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """(milliseconds, megabytes) of ours and of Kubernetes, which take turns."""
    ours, theirs = [], []
    for number in range(kube_runs):
        ours.append(measure(home, max(1, runs // kube_runs)))
        theirs.append(measure_kube())
        print(f"round {number + 1}: {ours[-1][0]:.0f} ms and {theirs[-1][0]:,.0f} ms", flush=True)
    return _find_middle(ours), _find_middle(theirs)


def _find_middle(found: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(time for time, _ in found), max(size for _, size in found)


def measure(home: Path, runs: int) -> tuple[float, float]:
    start_once(home)
    results = [start_once(home) for _ in range(runs)]
    times, sizes = zip(*results, strict=True)
    return statistics.median(times), max(sizes)


def make_config_maps(count: int, first_revision: int) -> Iterator[tuple[str, bytes]]:
    for number in range(count):
        metadata = {
            "name": f"object-{number:06d}",
            "namespace": "default",
            "uid": str(uuid.UUID(int=number + 1, version=4)),
            "resourceVersion": str(first_revision + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"batch": str(number % 100)},
        }
        data = {"text": "x" * 500}
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        yield f"default/{metadata['name']}", json.dumps(obj, separators=(",", ":")).encode()


async def fill(directory: Path, count: int) -> None:
    async with SqliteStore.open(directory, SystemClock()) as store:
        for number, (name, value) in enumerate(make_config_maps(count, store.revision + 1), 1):
            store.put("configmaps", name, value)
            if number % 5000 == 0:
                await store.durable(store.revision)
        await store.durable(store.revision)


def measure_kube() -> tuple[float, float]:
    with KubeCluster() as cluster:
        slowest = max(cluster.processes.ready_after.values()) * 1000
        return slowest, sum(resident_mb(pid) for pid in cluster.processes.pids.values())


def measure_new(folder: Path, runs: int) -> float:
    """Milliseconds to ready in a home that does not exist: keys, certificates, runtimes and the isolation probe."""
    return statistics.median(start_once(folder / f"new-{number}")[0] for number in range(runs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--ours-only", action="store_true", help="leave out the comparison")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        kube_ms, kube_mb = 0.0, 0.0
        if options.ours_only:
            start_ms, size_mb = measure(empty, options.runs)
        else:
            (start_ms, size_mb), (kube_ms, kube_mb) = measure_both(empty, options.runs, 3)
        print(f"empty home: {start_ms:.0f} ms, {size_mb:.1f} MB", flush=True)
        new_ms = measure_new(Path(folder), options.runs)
        print(f"new home: {new_ms:.0f} ms", flush=True)
        start_once(full)
        asyncio.run(fill(full / "store", OBJECTS))
        full_ms, full_mb = measure(full, options.runs)
        print(f"{OBJECTS:,} objects: {full_ms:.0f} ms, {full_mb:.1f} MB", flush=True)
    report = Report()
    slow, large = "", ""
    if not options.ours_only:
        slow, large = f"{kube_ms:,.0f} ms with Kubernetes", f"{kube_mb:.0f} MB with Kubernetes"
        report.check("start compared with Kubernetes", kube_ms / start_ms, at_least=FASTER, unit="x", anchor=slow)
        report.check("memory compared with Kubernetes", kube_mb / size_mb, at_least=SMALLER, unit="x", anchor=large)
    report.check("start in a home without jobs", start_ms, at_most=START_MS, unit=" ms", anchor=slow)
    report.check("start in a new home", new_ms, at_most=START_MS, unit=" ms", anchor=slow)
    report.check("memory when ready", size_mb, at_most=MEMORY_MB, unit=" MB", anchor=large)
    report.check(f"start with {OBJECTS:,} objects", full_ms, at_most=FULL_MS, unit=" ms", anchor=slow)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
