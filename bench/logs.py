"""The output of a Pod that writes as fast as it can: how fast it is taken and read, and what others feel of it.

Taken: a program writes lines of 100 bytes to its standard output, in a Pod and through a pipe into `cat > FILE`, in
alternating rounds; the times are the program's own. Read: what rotation has left of that log from the API server over
TLS, compared with `cat FILE` through a pipe. Followed: the same program with a follower from its first line, which is
slower than the program and is told what it misses; what it got and what it was told add up to what was written.
Meanwhile somebody else creates ConfigMaps, before and beside it. Last, a program writes one line of gigabytes, which is
followed too: the memory of shim and server is read while it runs. CPU is that of the server's process.

Promises: taken, read and followed at least 0.5x of `cat`; creates p99 of others at most 3x; nothing is unaccounted for;
a line of any length adds at most 32 MB to the server and 2 MB to the shim.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from bench._load import percentile
from bench._report import Report
from bench.rest import read_cpu
from tests.support.server import ServerProcess, start_server
from trainmaster.api.meta import GVR
from trainmaster.api.resources import PODS
from trainmaster.client.contract import LogOptions
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.jobs.models.pods import Pod

MB = 10**6
CONFIG_MAPS = GVR("", "v1", "configmaps")
RATE = 50
TIMEOUT = 100.0
OF_CAT = 0.5
_WRITER = """
import os, sys, time
block, count = b"{text}" * {times}, {count}
began = time.perf_counter()
for _ in range(count):
    left = block
    while left:
        left = left[os.write(1, left):]
seconds = time.perf_counter() - began
open(os.environ.get("TRAINMASTER_TERMINATION_LOG") or "/dev/termination-log", "w").write(str(seconds))
"""
_DROPPED = re.compile(rb"^trainmaster: (?:the first )?(\d+) bytes of output were dropped by rotation\n", re.MULTILINE)


def build_writer(megabytes: int, *, lines: bool) -> str:
    text = "x" * 99 + "\\n" if lines else "x" * 100
    return _WRITER.format(text=text, times=640, count=megabytes * MB // 64_000)


@dataclass
class World:
    server: ServerProcess
    client: HttpClient

    async def start(self, name: str, code: str) -> None:
        container = {"name": "main", "image": "python", "command": ["python", "-c", code]}
        spec = {"restartPolicy": "Never", "containers": [container]}
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self.client.create(PODS, obj, "default")
        pod = await self.get(name)
        while not pod.is_running and not pod.is_over:
            await asyncio.sleep(0.01)
            pod = await self.get(name)

    async def get(self, name: str) -> Pod:
        return Pod(await self.client.get(PODS, name, "default"))

    async def finish(self, name: str) -> float:
        """Waits for its end; the seconds that its writes took."""
        pod = await self.get(name)
        end = time.monotonic() + TIMEOUT
        while not pod.is_over:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} has not ended")
            await asyncio.sleep(0.05)
            pod = await self.get(name)
        ended = pod.container_statuses[0]["state"]["terminated"]
        if ended["exitCode"]:
            raise RuntimeError(f"{name}: {ended}")
        return float(ended["message"])

    async def delete(self, name: str) -> None:
        await self.client.delete(PODS, name, "default")


def write_through_cat(code: str, folder: Path) -> float:
    """The seconds that the writes of the same program take into `cat > FILE`."""
    result = folder / "seconds"
    environ = {**os.environ, "TRAINMASTER_TERMINATION_LOG": str(result)}
    with (folder / "copy").open("wb") as file:
        copier = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
        subprocess.run([sys.executable, "-c", code], stdout=copier.stdin, env=environ, check=True)
        assert copier.stdin is not None
        copier.stdin.close()
        copier.wait()
    return float(result.read_text())


def read_through_cat(folder: Path) -> float:
    """Bytes per second of `cat FILE` through a pipe."""
    began = time.perf_counter()
    with subprocess.Popen(["cat", str(folder / "copy")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        size = 0
        while piece := os.read(process.stdout.fileno(), 1 << 18):
            size += len(piece)
    return size / (time.perf_counter() - began)


async def measure_taken(world: World, folder: Path, options: argparse.Namespace, report: Report) -> float:
    """Returns the MB per second of `cat FILE`."""
    code = build_writer(options.megabytes, lines=True)
    pods, plain, reads, cats = [], [], [], []
    for number in range(options.rounds):
        plain.append(options.megabytes / write_through_cat(code, folder))
        cats.append(read_through_cat(folder) / MB)
        name = f"taken-{number}"
        await world.start(name, code)
        pods.append(options.megabytes / await world.finish(name))
        before, began, size = read_cpu(world.server.pid), time.perf_counter(), 0
        async for piece in world.client.logs(name, "default", LogOptions()):
            size += len(piece)
        reads.append(size / MB / (time.perf_counter() - began))
        cpu = (read_cpu(world.server.pid) - before) / (size / MB) * 1000
        print(f"  round {number}: cat {plain[-1]:.0f} MB/s, Pod {pods[-1]:.0f} MB/s", flush=True)
        print(f"  {size / MB:.0f} MB of its log read at {reads[-1]:.0f} MB/s ({cpu:.2f} ms of CPU a MB), "
              f"cat {cats[-1]:.0f} MB/s", flush=True)  # fmt: skip
        await world.delete(name)
    taken, beside = statistics.median(pods), statistics.median(plain)
    report.check("output taken from a Pod, compared with `cat` into a file", taken / beside, at_least=OF_CAT, unit="x",
                 anchor=f"{taken:,.0f} MB/s; {beside:,.0f} MB/s through a pipe into `cat > FILE`")  # fmt: skip
    read, cat = statistics.median(reads), statistics.median(cats)
    report.check("a log read over TLS, compared with `cat` of a file", read / cat, at_least=OF_CAT, unit="x",
                 anchor=f"{read:,.0f} MB/s; {cat:,.0f} MB/s with `cat` through a pipe")  # fmt: skip
    return cat


async def create_at_rate(client: HttpClient, prefix: str, seconds: float) -> list[float]:
    times, began = [], time.perf_counter()
    for number in range(int(RATE * seconds)):
        due = began + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await client.create(CONFIG_MAPS, {"kind": "ConfigMap", "metadata": {"name": f"{prefix}-{number}"}}, "default")
        times.append((time.perf_counter() - due) * 1000)
    return times


@dataclass
class Followed:
    received: int = 0
    """Without the lines about what is missing."""
    dropped: int = 0
    seconds: float = 0.0
    """From the first byte to the last."""

    def feed(self, text: bytes) -> None:
        self.received += len(text)
        for match in _DROPPED.finditer(text):
            self.dropped += int(match[1])
            self.received -= len(match[0])


async def follow(kubeconfig: Path, name: str) -> Followed:
    client, seen, rest, began = HttpClient(load_kubeconfig([kubeconfig])), Followed(), b"", 0.0
    async for piece in client.logs(name, "default", LogOptions(follow=True)):
        began = began or time.perf_counter()
        whole, end, rest = (rest + piece).rpartition(b"\n")
        seen.feed(whole + end)
        if len(rest) > 1 << 20:  # a line of gigabytes
            seen.feed(rest)
            rest = b""
    seen.feed(rest)
    seen.seconds = time.perf_counter() - began
    await client.close()
    return seen


async def start_follower(world: World, name: str) -> asyncio.subprocess.Process:
    """In a process of its own, so that it delays nothing that is measured here."""
    arguments = ("-m", "bench.logs", "--follow", str(world.server.kubeconfig), name)
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=subprocess.PIPE)


async def finish_follower(process: asyncio.subprocess.Process) -> Followed:
    async with asyncio.timeout(TIMEOUT):
        output, _ = await process.communicate()
    return Followed(**json.loads(output))


async def measure_followed(world: World, options: argparse.Namespace, report: Report, cat: float) -> None:
    """`cat`: the MB per second of `cat FILE`."""
    alone = await create_at_rate(world.client, "alone", options.seconds)
    name = "fast"
    await world.start(name, build_writer(options.megabytes * 4, lines=True))
    follower = await start_follower(world, name)
    beside = await create_at_rate(world.client, "beside", options.seconds)
    await world.finish(name)
    seen = await finish_follower(follower)
    written = options.megabytes * 4 * MB // 64_000 * 64_000
    before, after = percentile(alone, 0.99), percentile(beside, 0.99)
    rate = seen.received / MB / seen.seconds
    report.check("a log followed over TLS while it is written, compared with `cat` of a file", rate / cat,
                 at_least=OF_CAT, unit="x", anchor=f"{rate:,.0f} MB/s; {seen.dropped / MB:,.0f} of {written / MB:,.0f} "
                 "MB were dropped by rotation before they were read")  # fmt: skip
    report.check("bytes that a follower neither got nor was told of", abs(written - seen.received - seen.dropped),
                 at_most=0, anchor=f"{written / MB:,.0f} MB written")  # fmt: skip
    report.check("creates of others while a Pod writes as fast as it can, p99", after / before, at_most=3, unit="x",
                 anchor=f"{after:,.1f} ms; {before:,.1f} ms alone")  # fmt: skip
    await world.delete(name)


def read_memory(pid: int) -> float:
    """MB that belong to this process alone."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE)) * 1024 / MB


async def sample_memory(pids: dict[str, int], over: asyncio.Task[Followed]) -> dict[str, float]:
    most = dict.fromkeys(pids, 0.0)
    while not over.done():
        for who, pid in pids.items():
            with suppress(OSError):
                most[who] = max(most[who], read_memory(pid))
        await asyncio.sleep(0.05)
    return most


async def measure_long_line(world: World, options: argparse.Namespace, report: Report) -> None:
    server, name = world.server.pid, "long"
    before = read_memory(server)
    await world.start(name, "import time; time.sleep(1)\n" + build_writer(options.long_line * 1000, lines=False))
    uid = (await world.get(name)).uid
    shim = int(json.loads((world.server.home / "pods" / uid / "shim.json").read_text())["pid"])
    quiet = read_memory(shim)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(finish_follower(await start_follower(world, name)))
        most = await sample_memory({"server": server, "shim": shim}, following)
    seen = following.result()
    seconds = time.perf_counter() - began
    print(f"  one line of {options.long_line} GB in {seconds:.1f} s, {seen.received / MB:.0f} MB of it followed; "
          f"server {most['server']:.0f} MB, shim {most['shim']:.1f} MB", flush=True)  # fmt: skip
    report.check(f"memory that a line of {options.long_line} GB adds to the server", most["server"] - before,
                 at_most=32, unit=" MB", anchor=f"{before:.0f} MB before")  # fmt: skip
    report.check(f"memory that a line of {options.long_line} GB adds to the shim", most["shim"] - quiet,
                 at_most=2, unit=" MB", anchor=f"{quiet:.1f} MB before")  # fmt: skip
    await world.delete(name)


async def measure(server: ServerProcess, folder: Path, options: argparse.Namespace) -> int:
    world, report = World(server, HttpClient(load_kubeconfig([server.kubeconfig]))), Report()
    cat = await measure_taken(world, folder, options, report)
    await measure_followed(world, options, report, cat)
    await measure_long_line(world, options, report)
    await world.client.close()
    return report.exit_code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=500, help="that a program writes")
    parser.add_argument("--seconds", type=float, default=6.0, help="of creates")
    parser.add_argument("--long-line", type=int, default=2, metavar="GB")
    parser.add_argument("--follow", nargs=2, metavar=("KUBECONFIG", "POD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        print(json.dumps(asdict(asyncio.run(follow(Path(options.follow[0]), options.follow[1])))))
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder,
        start_server(Path(folder) / "home") as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(measure(server, Path(folder), options))


if __name__ == "__main__":
    sys.exit(main())
