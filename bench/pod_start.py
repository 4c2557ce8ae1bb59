"""From asking for a Pod to its program running under a shim, at each isolation level.

Counted is the wall time from `Supervisor.create` (specs written, zygote asked) to the shim's word that exec succeeded
and that this is on disk; besides it the processor time of shim and container up to then, which a busy machine does not
change. `bare` is posix_spawn of the same program, for scale. One Pod after the other, each with a directory mounted,
a hostname and, at `full`, a network namespace, a private root and a control group; they end together afterwards,
because the kernel makes who builds a network wait for who takes one down.

Promises of issue 5 for two ranks through the whole control plane: plain p50 <= 6 ms, full p50 <= 10 ms; this measures
the part below the node agent.
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

from tests.node.sandboxes import Sandboxes
from trainmaster.shim.protocol import FULL, HOST_NETWORK, PLAIN, ResourceLimits

SLEEP = "/bin/sleep"
FULL_MS = 10.0


def read_cpu_ms(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def spawn_bare(count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        pid = os.posix_spawn(SLEEP, [SLEEP, "0"], {})
        taken.append((time.perf_counter() - began) * 1e3)
        os.waitpid(pid, 0)
    return taken


async def start_pods(level: str, count: int, limits: ResourceLimits) -> tuple[list[float], list[float]]:
    """(wall, processor) milliseconds of each start."""
    wall, cpu = [], []
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
                it.happened.clear()
            for uid in it.supervisor.list_uids():
                await it.supervisor.close(uid)
    return wall, cpu


def show(name: str, wall: list[float], cpu: list[float]) -> None:
    ordered = sorted(wall)
    line = f"{name:<14} p50 {statistics.median(wall):6.2f}   p99 {ordered[int(len(ordered) * 0.99)]:6.2f}"
    print(line + (f"   processor p50 {statistics.median(cpu):6.2f}" if cpu else "") + "   ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.count} starts each")
    show("bare", spawn_bare(options.count), [])
    show("plain", *asyncio.run(start_pods(PLAIN, options.count, ResourceLimits())))
    if os.geteuid() == 0:
        wall, cpu = asyncio.run(start_pods(FULL, options.count, ResourceLimits()))
        show("full", wall, cpu)
        show(
            "full, limited",
            *asyncio.run(start_pods(FULL, options.count, ResourceLimits(memory=1 << 30, cpu_millis=1000))),
        )
        kept = statistics.median(wall) <= FULL_MS
        print(f"full p50 <= {FULL_MS:.0f} ms: {'kept' if kept else 'MISSED'}")
        return 0 if kept else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
