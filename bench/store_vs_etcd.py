"""Durable writes per second at 1, 10 and 100 clients: our store against the real etcd, on one disk.

Both sides do what an API server does for an update: compare the revision, write 3,784 bytes, wait until it is on disk;
each client has keys of its own and one write under way. etcd is driven by its own Go client (bench/go/etcdload) over
gRPC; our store is a library inside the API server process, so its clients are tasks. That difference is the design,
not an accident of the measurement. Rounds alternate; the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench._report import Report
from tests.kube.processes import Processes, free_port
from tools.cache import content_hash
from tools.toolbox import Toolbox
from trainmaster.kit.clock import SystemClock
from trainmaster.store.contract import ABSENT, Absent, Store
from trainmaster.store.disk import measure_sync
from trainmaster.store.sqlite import SqliteOptions, SqliteStore

ROOT = Path(__file__).resolve().parent
CLIENTS = (1, 10, 100)
VALUE_BYTES = 3784
KEYS = 50


@dataclass(frozen=True)
class Round:
    rate: float
    p50_us: float
    p99_us: float


def measure_ours(directory: Path, clients: int, seconds: float) -> Round:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run_clients(directory, clients, seconds))


async def _run_clients(directory: Path, clients: int, seconds: float) -> Round:
    latencies: list[float] = []
    async with SqliteStore.open(directory, SystemClock(), SqliteOptions()) as store:
        began = time.perf_counter()
        deadline = began + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(_write(store, number, deadline, latencies))
        elapsed = time.perf_counter() - began
    return _summarise(latencies, elapsed)


async def _write(store: Store, number: int, deadline: float, latencies: list[float]) -> None:
    value = os.urandom(VALUE_BYTES)
    expected: list[int | Absent] = [
        record.revision if (record := store.get("configmaps", f"default/writer-{number}-{slot}")) else ABSENT
        for slot in range(KEYS)
    ]
    turn = 0
    while (began := time.perf_counter()) < deadline:
        slot = turn % KEYS
        record = store.put("configmaps", f"default/writer-{number}-{slot}", value, expect=expected[slot])
        await store.durable(record.revision)
        latencies.append(time.perf_counter() - began)
        expected[slot] = record.revision
        turn += 1


def _summarise(latencies: list[float], elapsed: float) -> Round:
    latencies.sort()
    count = len(latencies)
    return Round(count / elapsed, latencies[count // 2] * 1e6, latencies[count * 99 // 100] * 1e6)


@contextmanager
def running_etcd(program: Path, work: Path) -> Iterator[str]:
    address, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    processes = Processes(work)
    arguments = ["--data-dir", str(work / "data"), "--log-level", "error", "--initial-cluster", f"default={peer}"]
    arguments += ["--listen-client-urls", address, "--advertise-client-urls", address]
    arguments += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    arguments += ["--quota-backend-bytes", str(8 << 30)]
    try:
        processes.start("etcd", program, arguments)
        processes.wait_ready("etcd", f"{address}/health")
        yield address
    finally:
        processes.stop()


def measure_etcd(program: Path, load: Path, work: Path, clients: int, seconds: float) -> Round:
    work.mkdir()
    with running_etcd(program, work) as address:
        command = [str(load), "--endpoint", address, "--clients", str(clients), "--seconds", str(seconds)]
        command += ["--size", str(VALUE_BYTES), "--keys", str(KEYS)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Round(result["rate"], result["p50_us"], result["p99_us"])


def ensure_load(toolbox: Toolbox) -> Path:
    source = ROOT / "go" / "etcdload"
    key = content_hash(path.read_bytes() for path in sorted(source.iterdir()))

    def make(folder: Path) -> None:
        command = [str(toolbox.ensure_go()), "build", "-o", str(folder / "etcdload"), "."]
        subprocess.run(command, cwd=source, check=True, env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"})

    return toolbox.cache.ensure("etcdload", key, make) / "etcdload"


def find_etcd(toolbox: Toolbox, given: Path | None) -> Path:
    if given is not None:
        return (given / "etcd" if given.is_dir() else given).resolve()
    found = toolbox.find_program("etcd")
    if found is None:
        raise SystemExit(toolbox.why_missing("etcd"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    environ = os.environ.get("TRAINMASTER_KUBE_BIN")
    parser.add_argument("--etcd", type=Path, default=Path(environ) if environ else None, help="program, or its folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round and side")
    parser.add_argument("--directory", type=Path, default=None, help="where to write (default: the temporary folder)")
    arguments = parser.parse_args()
    toolbox = Toolbox()
    program, load = find_etcd(toolbox, arguments.etcd), ensure_load(toolbox)
    report = Report()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        sync = measure_sync(Path(folder), SystemClock()) * 1e6
        print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, fsync p50 {sync:.0f} us")
        print(f"{'clients':>7} {'ours/s':>8} {'p50':>7} {'p99':>8} {'etcd/s':>8} {'p50':>7} {'p99':>8}")
        for clients in CLIENTS:
            ours, theirs = [], []
            for number in range(arguments.rounds):
                place = Path(folder) / f"{clients}-{number}"
                os.sync()  # what the round before left to be written is not this one's to wait for
                ours.append(measure_ours(place / "ours", clients, arguments.seconds))
                os.sync()
                theirs.append(measure_etcd(program, load, place / "etcd", clients, arguments.seconds))
            our, their = (sorted(side, key=lambda item: item.rate)[len(side) // 2] for side in (ours, theirs))
            _print_row(clients, our, their)
            report.check(
                f"durable writes of the store, {clients} client{'s' if clients > 1 else ''}, compared with etcd",
                our.rate / their.rate,
                at_least=3,
                unit="x",
                anchor=f"{our.rate:,.0f}/s, etcd {their.rate:,.0f}/s, fsync {sync:.0f} us",
            )
    return report.exit_code


def _print_row(clients: int, our: Round, their: Round) -> None:
    cells = [f"{our.rate:8.0f} {our.p50_us:7.0f} {our.p99_us:8.0f}", f"{their.rate:8.0f} {their.p50_us:7.0f}"]
    print(f"{clients:7} {cells[0]} {cells[1]} {their.p99_us:8.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
