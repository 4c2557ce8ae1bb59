"""From asking for two torch ranks to their first all-reduce: warm and cold Pods, by hand, and with torchrun.

Needs an environment with torch (that of `make setup`, or `--prefix`). Counted is the wall time from before the first
process is asked for (`Supervisor.create`, or posix_spawn) until the slower rank has the result of its first all-reduce,
and beside it the processor time of the ranks up to then, which a busy machine does not change. Rounds of all kinds take
turns, so that all see the same load. The level is that of the node (`--level`); with namespaces both Pods share the
machine's network.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from bench._report import Report
from tests.node.shims import Shims, supervising
from tools.frameworks import TOOL, find_environment
from trainmaster.node.images import layers
from trainmaster.node.shims.warm import IMPORTS, WarmZygote
from trainmaster.shim.protocol import ENVIRON, FULL, PLAIN, ContainerSpec, Mount, SandboxSpec

RANKS = 2
PROGRAM = """
import sys
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
sys.stdout.write(f"reduced {int(ones)} {time.time()} {time.process_time()}\\n")
dist.barrier()
dist.destroy_process_group()
"""

Round = tuple[float, float]
"""Milliseconds on the wall, and of processor time of all ranks."""


class Field:
    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder = folder
        self.prefix = prefix
        (folder / "train.py").write_text(PROGRAM)
        base = layers.read_base(prefix)
        self.layer = layers.make_shared(folder / "made", base)
        self.programs = layers.make_programs(folder / "made", prefix)
        self.wish = WarmZygote("bench", self.layer, IMPORTS, prefix)
        self.count = 0

    def make_env(self, rank: int | None, port: int) -> dict[str, str]:
        path = f"{self.layer}/bin:{self.programs}:{self.prefix}/bin:{os.defpath}"
        env = {"PATH": path, "HOME": str(self.folder), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **ENVIRON}
        if rank is None:
            return env
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return {**env, **where, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}


def read_round(text: str, began: float) -> Round:
    lines = [line.split() for line in text.splitlines() if line.startswith("reduced")]
    assert len(lines) == RANKS and all(line[1] == str(RANKS) for line in lines), text
    return (max(float(line[2]) for line in lines) - began) * 1e3, sum(float(line[3]) for line in lines) * 1e3


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_by_hand(field: Field, commands: list[tuple[list[str], dict[str, str]]]) -> Round:
    began = time.time()
    # In sessions of their own, as the Pods are: the kernel may share processors out by session.
    started = [
        subprocess.Popen(argv, env=env, cwd=field.folder, stdout=subprocess.PIPE, text=True, start_new_session=True)
        for argv, env in commands
    ]
    return read_round("".join(process.communicate()[0] for process in started), began)


def run_plain_torchrun(field: Field) -> Round:
    argv = [f"{field.prefix}/bin/torchrun", "--standalone", f"--nproc_per_node={RANKS}", "train.py"]
    return run_by_hand(field, [(argv, {**field.make_env(None, 0), "TMPDIR": str(field.folder)})])


def run_plain_ranks(field: Field) -> Round:
    port = find_port()
    argv = [f"{field.layer}/bin/python", "train.py"]
    return run_by_hand(field, [(argv, field.make_env(rank, port)) for rank in range(RANKS)])


async def run_pods(field: Field, shims: Shims, argv: list[str], ranks: list[int | None], *, warm: bool) -> Round:
    port, began, uids = find_port(), time.time(), []
    for rank in ranks:
        field.count += 1
        uid = f"bench-{os.getpid()}-{field.count}"
        spec = ContainerSpec("main", 0, tuple(argv), field.make_env(rank, port), str(field.folder))
        name = f"rank-{rank}"
        pod = SandboxSpec(uid, uid, "default", name, level=shims.level, hosts=(("127.0.0.1", name, "localhost"),))
        if shims.level != PLAIN:
            places = (field.layer, str(field.folder), field.prefix)
            spec = replace(spec, mounts=tuple(Mount(path, path) for path in places))
            pod = replace(pod, cgroup=uid)
        wish = field.wish if warm else None
        await shims.supervisor.create(uid, pod, [replace(spec, warm=field.wish.key)], wish)
        uids.append(uid)
    for uid in uids:
        happened = await shims.wait_began(uid)
        assert happened.started.note.startswith("started warm") == warm, happened.started.note
        await shims.wait_ended(uid)
    done = read_round("".join(shims.read_log(uid) for uid in uids), began)
    for uid in uids:
        await shims.supervisor.close(uid)
    return done


async def measure(field: Field, level: str, count: int) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {}
    python = [f"{field.layer}/bin/python", "train.py"]
    torchrun = [f"{field.programs}/torchrun", "--standalone", f"--nproc_per_node={RANKS}", "train.py"]
    async with supervising(field.folder / "pods", level=level) as shims:
        began = time.time()
        await shims.supervisor.ensure_warm(field.wish)
        print(f"imports of the warm zygote: {time.time() - began:.1f} s, once")
        ranks: list[int | None] = list(range(RANKS))
        for number in range(count):
            slow: dict[str, Callable[[], Awaitable[Round]]] = {
                "plain torchrun": lambda: asyncio.to_thread(run_plain_torchrun, field),
                "ranks by hand": lambda: asyncio.to_thread(run_plain_ranks, field),
                "Pods, cold": lambda: run_pods(field, shims, python, ranks, warm=False),
                "Pod, torchrun, warm": lambda: run_pods(field, shims, torchrun, [None], warm=True),
            }
            for name, work in slow.items():
                found.setdefault(name, []).append(await work())
            for _ in range(5):
                found.setdefault("Pods, warm", []).append(await run_pods(field, shims, python, ranks, warm=True))
            print(f"round {number + 1} of {count}, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", default=str(find_environment(TOOL) or ""), help="an environment with torch")
    parser.add_argument("--level", default=FULL if os.geteuid() == 0 else PLAIN, choices=(FULL, PLAIN))
    parser.add_argument("--count", type=int, default=5, help="rounds")
    options = parser.parse_args()
    if not options.prefix:
        print("there is no environment with torch: run `make setup`, or name one with --prefix")
        return 2
    with tempfile.TemporaryDirectory(prefix="tm-") as folder:
        found = asyncio.run(measure(Field(Path(folder), options.prefix), options.level, options.count))
    load = os.getloadavg()[0]
    print(f"level {options.level}, {RANKS} ranks, load {load:.1f} on {os.cpu_count()} cores")
    middle = {}
    for name, rounds in found.items():
        walls = sorted(wall for wall, _ in rounds)
        middle[name] = statistics.median(walls)
        processor = statistics.median(cpu for _, cpu in rounds)
        print(f"{name:<20} p50 {middle[name]:8.1f} ms   worst {walls[-1]:8.1f}   processor p50 {processor:7.1f} ms")
    report = Report()
    warm, torchrun, by_hand = middle["Pods, warm"], middle["plain torchrun"], middle["ranks by hand"]
    beside = f"torchrun {torchrun:,.0f} ms"
    report.check("two warm Pods to their first all-reduce, p50", warm, at_most=60, unit=" ms", anchor=beside)
    report.check(
        "two warm Pods to their first all-reduce, sooner than torchrun", torchrun / warm,
        at_least=30, unit="x", anchor=f"{warm:.0f} ms, {beside}",
    )  # fmt: skip
    workers = middle["Pod, torchrun, warm"]
    report.check(
        "torchrun with warm workers to the first all-reduce, sooner than torchrun", torchrun / workers,
        at_least=3, unit="x", anchor=f"{workers:.0f} ms, {beside}",
    )  # fmt: skip
    cold = middle["Pods, cold"]
    report.check(
        "two cold Pods to their first all-reduce, compared with the same processes by hand", cold / by_hand,
        at_most=1.1, unit="x", anchor=f"{cold:,.0f} ms, by hand {by_hand:,.0f} ms",
    )  # fmt: skip
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
