"""Evidence of a job of eight ranks, compared with py-spy by hand.

Ours is what `trainmaster evidence --now` asks the server for: all ranks at the same time, stacks, states over a fifth
of a second, memory, last lines, written to the disk. By hand is `py-spy dump --nonblocking` for the same processes, one
after the other, as somebody would do it in a shell. The ranks have eight threads with fifty frames each, and either
all wait or all compute. Rounds take turns.

Promise (issue 20): eight ranks within 2 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench._load import NAMESPACE
from bench._report import Report
from bench.real_jobs import Watcher, make_job
from tests.support.server import start_server
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.app.home.control import ask
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.scopes import Scope
from trainmaster.node.evidence.examination import find_spy

AT_MOST_SECONDS = 2.0
PROGRAM = """
import sys, threading, time
def go_deeper(depth):
    if depth: return go_deeper(depth - 1)
    while True: {work}
for number in range(7): threading.Thread(target=go_deeper, args=(50,)).start()
print("up", flush=True)
go_deeper(50)
"""
WORK = {"wait": "time.sleep(600)", "compute": "sum(range(1000))"}


def list_pids(home: Path) -> list[int]:
    """Of the programs that run, as the machine sees them."""
    records = home.glob("pods/*/run/*.started.json")
    pids = [int(json.loads(record.read_bytes())["pid"]) for record in records]
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def dump_by_hand(pids: list[int]) -> float:
    began = time.perf_counter()
    for pid in pids:
        subprocess.run([find_spy(), "dump", "--nonblocking", "--pid", str(pid)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def collect(home: Path, uid: str, ranks: int) -> float:
    began = time.perf_counter()
    found = ask(home, {"operation": "evidence", "uid": uid}, timeout=30)["evidence"]
    taken = time.perf_counter() - began
    whole = [rank for rank in found["ranks"] if rank["processes"] and rank["processes"][0].get("stacks")]
    assert len(whole) == ranks, [rank["error"] or rank["processes"] for rank in found["ranks"]]
    return taken


async def measure(kubeconfig: Path, home: Path, kind: str, options: argparse.Namespace) -> tuple[float, float, float]:
    """The slowest of ours, the medians of ours and by hand."""
    client = HttpClient(load_kubeconfig([kubeconfig]))
    ours, theirs = [], []
    try:
        async with Scope("bench") as scope:
            watcher = Watcher(client)
            scope.spawn_forever(watcher.follow_pods(), name="bench.pods")
            program = PROGRAM.replace("{work}", WORK[kind])
            job = make_job(kind, sys.executable, "-c", program, nodes=options.ranks)
            made = await client.create(TRAIN_JOBS, job, NAMESPACE)
            await watcher.wait(kind, options.ranks, "Running")
            await asyncio.sleep(3)
            pids = list_pids(home)
            assert len(pids) == options.ranks, pids
            for _ in range(options.rounds):
                ours.append(await asyncio.to_thread(collect, home, made["metadata"]["uid"], options.ranks))
                theirs.append(await asyncio.to_thread(dump_by_hand, pids))
            await client.delete(TRAIN_JOBS, kind, NAMESPACE)
            await watcher.wait_gone(kind)
    finally:
        await client.close()
    return max(ours), statistics.median(ours), statistics.median(theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="full", choices=("plain", "full"))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(f'[node]\nisolation = "{options.level}"\n')
        with start_server(home) as server:
            for kind in WORK:
                slowest, median, theirs = asyncio.run(measure(server.kubeconfig, home, kind, options))
                anchor = f"p50 {median:.2f} s; py-spy by hand {theirs:.2f} s, {median / theirs:.1f} times as long"
                what = f"evidence of {options.ranks} ranks that {kind} ({options.level}), slowest of {options.rounds}"
                report.check(what, slowest, at_most=AT_MOST_SECONDS, unit=" s", anchor=anchor)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
