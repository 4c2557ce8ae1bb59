"""Whole-gang restart: from SIGKILL of one rank until all ranks have been executed again, compared with torchrun.

Ours is the first restart of a TrainJob (later ones wait longer and longer): the failed Pod is reported, the whole gang
is deleted, and new Pods are created, placed and started. Counted until a watcher sees the last new Pod Running, so
every step is on disk. torchrun restarts the same number of workers of the same program with its elastic agent, with its
default settings (which check the workers every 0.1 s); counted until the last worker has been executed, as the worker
itself reports it. Rounds take turns. Needs an environment with torch (that of `make setup`, or `--prefix`).

Promises (issue 17): p50 at most 100 ms, and at least 10 times faster than torchrun.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench._load import NAMESPACE
from bench._report import Report
from bench.real_jobs import QUIET_SECONDS, Watcher, make_job
from tests.support.server import start_server
from tools.frameworks import TOOL, find_environment
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.client.contract import Client
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.scopes import Scope

AT_MOST_MS = 100.0
AT_LEAST_TIMES = 10.0
RESTARTS = 6
"""Of each kind in a round."""


class TorchrunGang:
    """Workers under torchrun's elastic agent. Each appends its pid to a FIFO when it has been executed."""

    def __init__(self, folder: Path, prefix: str, ranks: int) -> None:
        self._ranks = ranks
        self._fifo = folder / "executed"
        os.mkfifo(self._fifo)
        self._reader = os.open(self._fifo, os.O_RDWR)
        worker = folder / "worker.sh"
        worker.write_text(f'echo $$ > "{self._fifo}"\nexec sleep 1000\n')
        argv = [f"{prefix}/bin/torchrun", "--standalone", f"--nproc-per-node={ranks}", "--max-restarts=1000"]
        with (folder / "torchrun.log").open("wb") as log:
            self._agent = subprocess.Popen(
                [*argv, "--no-python", "sh", str(worker)],
                env={**os.environ, "TMPDIR": str(folder)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._pids = self._read_executed()

    def _read_executed(self) -> list[int]:
        text = b""
        while text.count(b"\n") < self._ranks:
            text += os.read(self._reader, 4096)
        return [int(line) for line in text.split()]

    def restart(self) -> float:
        """Milliseconds from the kill to the last worker."""
        killed = time.perf_counter()
        os.kill(self._pids[0], signal.SIGKILL)
        self._pids = self._read_executed()
        return (time.perf_counter() - killed) * 1e3

    def close(self) -> None:
        self._agent.terminate()
        self._agent.wait()
        # The agent does not end workers that it has only just started.
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(self._reader)


@contextmanager
def start_torchrun(prefix: str, ranks: int) -> Iterator[TorchrunGang]:
    with tempfile.TemporaryDirectory(prefix="tm-torchrun-") as folder:
        gang = TorchrunGang(Path(folder), prefix, ranks)
        try:
            yield gang
        finally:
            gang.close()


async def restart_job(client: Client, watcher: Watcher, home: Path, name: str, ranks: int) -> float:
    """Milliseconds of the first restart of a new TrainJob."""
    await client.create(TRAIN_JOBS, make_job(name, "/bin/sleep", "1000", nodes=ranks), NAMESPACE)
    running = await watcher.wait(name, ranks, "Running")
    uid = running[-1][0]["metadata"]["uid"]
    record = next((home / "pods" / uid / "run").glob("*.started.json"))
    killed = time.perf_counter()
    os.kill(json.loads(record.read_bytes())["pid"], signal.SIGKILL)
    running = await watcher.wait(name, ranks * 2, "Running")
    taken = (max(heard for _, heard in running) - killed) * 1e3
    await client.delete(TRAIN_JOBS, name, NAMESPACE)
    await watcher.wait_gone(name)
    await asyncio.sleep(QUIET_SECONDS)
    return taken


async def measure(
    kubeconfig: Path, home: Path, prefix: str, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    theirs: list[float] = []
    client = HttpClient(load_kubeconfig([kubeconfig]))
    try:
        async with Scope("bench") as scope:
            watcher = Watcher(client)
            scope.spawn_forever(watcher.follow_pods(), name="bench.pods")
            for number in range(options.rounds):
                for attempt in range(RESTARTS):
                    ours.append(await restart_job(client, watcher, home, f"gang-{number}-{attempt}", options.ranks))
                with start_torchrun(prefix, options.ranks) as gang:
                    theirs += [await asyncio.to_thread(gang.restart) for _ in range(RESTARTS)]
                print(
                    f"round {number + 1} of {options.rounds}: {statistics.median(ours[-RESTARTS:]):.0f} ms, "
                    f"torchrun {statistics.median(theirs[-RESTARTS:]):.0f} ms, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    finally:
        await client.close()
    return ours, theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", default=str(find_environment(TOOL) or ""), help="an environment with torch")
    parser.add_argument("--level", default="plain", choices=("plain", "full"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not options.prefix:
        print("there is no environment with torch: run `make setup`, or name one with --prefix")
        return 2
    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text(f'[node]\nisolation = "{options.level}"\n')
        with start_server(home) as server:
            ours, theirs = asyncio.run(measure(server.kubeconfig, home, options.prefix, options))
    mine, torchrun = statistics.median(ours), statistics.median(theirs)
    report = Report()
    what = f"restart of a gang of {options.ranks} ({options.level}), SIGKILL of a rank to all running again, p50"
    anchor = f"torchrun {torchrun:,.0f} ms"
    report.check(what, mine, at_most=AT_MOST_MS, unit=" ms", anchor=anchor)
    report.check(
        "restart of a gang, sooner than torchrun", torchrun / mine, at_least=AT_LEAST_TIMES, unit="x", anchor=anchor
    )
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
