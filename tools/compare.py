"""Compares the CPU time per operation of two checkouts, in alternating rounds.

    python tools/compare.py ../before                  this checkout against that one
    python tools/compare.py ../before --only GET run   some of the operations
    python tools/compare.py ../before --rounds 31

Each checkout needs its own `.venv` (`make venv`). Both run at the same time on the same machine and take turns, so a
busy machine disturbs both alike. The percentage is the median of the ratios of all rounds, with its quartiles; the CPU
time is that of the process that does the work. Exits non-zero when an operation costs more than `--percent` (2) more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import http_vs_kube  # noqa: E402
from tests.support.server import clean_environ, command, start_server  # noqa: E402
from tools.toolbox import Toolbox  # noqa: E402

WORKER = """
import asyncio, sys, tempfile, time
from pathlib import Path
sys.path.insert(0, ".")
from bench import _plant
from bench._load import Load
from bench.large_job import settle, start_large

async def work(folder):
    ending, staying = _plant.running_plant(folder / "ending"), _plant.running_plant(folder / "staying", ends=False)
    async with ending as short, staying as long:
        load = Load(short.client)
        number = 0
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            number += 1
            began = time.process_time()
            if line[0] == "lifecycle":
                await load.drive(f"round-{number}", int(line[1]), 32)
            else:
                await start_large(long, f"round-{number}", int(line[1]))
            print((time.process_time() - began) / (int(line[1]) if line[0] == "lifecycle" else 1) * 1000, flush=True)
            if line[0] != "lifecycle":
                await settle(long, f"round-{number}")

with tempfile.TemporaryDirectory(prefix="trainmaster-compare-") as name:
    _plant.run(work(Path(name)))
"""

Operation = Callable[[], float]
"""Performs the operation once and returns its CPU time in milliseconds."""


class Checkout:
    def __init__(self, root: Path, folder: Path, stack: ExitStack, load: Path) -> None:
        self._python = str(root / ".venv" / "bin" / "python")
        self._load = load
        self._home = folder / "home"
        subprocess.run([self._python, "-m", "compileall", "-q", str(root / "trainmaster")], check=True)
        self._worker = stack.enter_context(_start(self._python, root))
        environ = {"TRAINMASTER_LIMITS_REQUESTS_PER_SECOND": "0"}
        server = stack.enter_context(start_server(self._home, environ=environ, python=self._python))
        self._target = asyncio.run(
            http_vs_kube.prepare("server", server.url, server.ca, server.kubeconfig, folder, [server.pid])
        )
        self._posts = 0

    def list_operations(self) -> dict[str, Operation]:
        return {
            "lifecycle": lambda: self._ask("lifecycle 200"),
            "2,000 Pods": lambda: self._ask("large 2000"),
            "GET": lambda: self._request("GET"),
            "POST": lambda: self._request("POST"),
            "run": lambda: self._call("run", "--no-code", "--", "true"),
            "list": lambda: self._call("list"),
            "server imports": lambda: self._spend([self._python, "-P", "-c", "import trainmaster.app.embedded"]),
        }

    def _ask(self, line: str) -> float:
        assert self._worker.stdin is not None and self._worker.stdout is not None
        self._worker.stdin.write(line + "\n")
        self._worker.stdin.flush()
        return float(self._worker.stdout.readline())

    def _request(self, method: str) -> float:
        self._posts += 1
        before = self._target.cpu_seconds()
        cores = os.sched_getaffinity(0)
        done = http_vs_kube.load(self._load, self._target, method, 2.0, f"round-{self._posts}", cores)
        return (self._target.cpu_seconds() - before) / int(done["requests"]) * 1000

    def _call(self, *arguments: str) -> float:
        return self._spend(command(*arguments, python=self._python))

    def _spend(self, arguments: Sequence[str]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environ = clean_environ({"TRAINMASTER_HOME": str(self._home)})
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run(arguments, cwd=self._home.parent, env=environ, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


@contextmanager
def _start(python: str, root: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [python, "-P", "-c", WORKER], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        yield worker
        assert worker.stdin is not None
        worker.stdin.close()


def compare(before: Checkout, after: Checkout, only: Sequence[str], rounds: int, percent: float) -> bool:
    kept = True
    print(
        f"{'operation':16} {'before':>9} {'after':>9}  ms of CPU, median of {rounds}; the difference and its quartiles"
    )
    pairs = zip(before.list_operations().items(), after.list_operations().values(), strict=True)
    for (name, first), second in pairs:
        if only and name not in only:
            continue
        first(), second()  # warm-up
        costs: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                costs[side].append((first, second)[side]())
        old, new = (statistics.median(cost) for cost in costs)
        ratios = [after / before for before, after in zip(*costs, strict=True)]
        low, middle, high = ((ratio - 1) * 100 for ratio in statistics.quantiles(ratios, n=4))
        kept = kept and middle <= percent
        print(f"{name:16} {old:9.3f} {new:9.3f}  {middle:+.1f} % ({low:+.1f} to {high:+.1f})", flush=True)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--only", nargs="+", default=[], help="names of operations, as they are printed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--percent", type=float, default=2.0, help="how much more an operation may cost")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trainmaster-compare-") as name, ExitStack() as stack:
        load = Path(name) / "load"
        go = str(Toolbox().ensure_go())
        subprocess.run([go, "build", "-o", str(load), "."], cwd=ROOT / "bench" / "go" / "load", check=True)
        sides = []
        for label, root in (("before", options.before.resolve()), ("after", ROOT)):
            folder = Path(name) / label
            folder.mkdir()
            sides.append(Checkout(root, folder, stack, load))
        kept = compare(sides[0], sides[1], options.only, options.rounds, options.percent)
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
