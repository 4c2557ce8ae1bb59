"""From asking for a Pod to its program running under a shim, at each isolation level.

Counted is the wall time from `Supervisor.create` (specs written, zygote asked) to the shim's word that exec succeeded
and that this is on disk; besides it the processor time of shim and container up to then, which a busy machine does not
change. `bare` is posix_spawn of the same program, for scale. One Pod after the other, each with a directory mounted,
a hostname and, at `full`, a network namespace, a private root and a control group; they end together afterwards,
because the kernel makes who builds a network wait for who takes one down.

Memory is what a shim has for itself while its program runs: `Private_Dirty` of /proc/PID/smaps_rollup, the pages that
it has changed since the fork and shares with no other process.

Promises (issue 17): p50 <= 6 ms (plain) and 10 ms (full); at most 1.5 MB of a shim's own.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench._report import Report
from tests.node.sandboxes import Sandboxes
from trainmaster.shim.protocol import FULL, HOST_NETWORK, PLAIN, ResourceLimits

SLEEP = "/bin/sleep"
START_MS = {PLAIN: 6.0, FULL: 10.0}
OWN_MB = 1.5


def read_cpu_ms(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def read_own_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")) / 1024


def spawn_bare(count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        pid = os.posix_spawn(SLEEP, [SLEEP, "0"], {})
        taken.append((time.perf_counter() - began) * 1e3)
        os.waitpid(pid, 0)
    return taken


@dataclasses.dataclass(frozen=True)
class Starts:
    wall: list[float]
    """Milliseconds of each start."""
    cpu: list[float]
    own_mb: list[float]
    """Of the shims."""
    program_mb: list[float]
    """Of the programs, for scale."""


async def start_pods(level: str, count: int, limits: ResourceLimits) -> Starts:
    wall, cpu, programs = [], [], []
    with tempfile.TemporaryDirectory(prefix="tm-") as folder:
        it = Sandboxes(Path(folder) / "pods", level, f"b{os.getpid()}")
        async with it.supervisor:
            for number in range(count):
                uid = f"{it.mark}-{number}"
                pod = dataclasses.replace(
                    it.make_pod("job", 0),
                    uid=uid,
                    address=f"10.244.{number // 250}.{number % 250 + 2}",
                    cgroup=uid,
                    limits=limits,
                )
                if level == PLAIN:
                    pod = dataclasses.replace(pod, network=HOST_NETWORK, cgroup="")
                spec = it.make_container(
                    pod, "", argv=(SLEEP, "1000"), **({"directory": "/"} if level == PLAIN else {})
                )
                began = time.perf_counter()
                await it.start(pod, spec)
                happened = await it.wait_began(uid)
                wall.append((time.perf_counter() - began) * 1e3)
                assert not happened.started.error, happened.started.error
                cpu.append(read_cpu_ms(it.read_shim(uid).pid) + read_cpu_ms(happened.started.pid))
                programs.append(read_own_mb(happened.started.pid))
                it.happened.clear()
            uids = [f"{it.mark}-{number}" for number in range(count)]
            own = [read_own_mb(it.read_shim(uid).pid) for uid in uids]
            for uid in uids:
                await it.supervisor.close(uid)
    return Starts(wall, cpu, own, programs)


def show(name: str, wall: list[float], cpu: list[float]) -> None:
    ordered = sorted(wall)
    line = f"{name:<14} p50 {statistics.median(wall):6.2f}   p99 {ordered[int(len(ordered) * 0.99)]:6.2f}"
    print(line + (f"   processor p50 {statistics.median(cpu):6.2f}" if cpu else "") + "   ms", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.count} starts each")
    bare = spawn_bare(options.count)
    show("bare", bare, [])
    anchor = f"posix_spawn {statistics.median(bare):.2f} ms"
    report = Report()
    for level in (PLAIN, FULL) if os.geteuid() == 0 else (PLAIN,):
        starts = asyncio.run(start_pods(level, options.count, ResourceLimits()))
        show(level, starts.wall, starts.cpu)
        wall, own = statistics.median(starts.wall), statistics.median(starts.own_mb)
        report.check(f"start of a Pod ({level}), p50", wall, at_most=START_MS[level], unit=" ms", anchor=anchor)
        program = f"its program, `sleep`, {statistics.median(starts.program_mb):.2f} MB"
        report.check(f"private memory of a shim ({level}), p50", own, at_most=OWN_MB, unit=" MB", anchor=program)
    if os.geteuid() == 0:
        limited = asyncio.run(start_pods(FULL, options.count, ResourceLimits(memory=1 << 30, cpu_millis=1000)))
        show("full, limited", limited.wall, limited.cpu)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
