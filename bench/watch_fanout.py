"""100 watchers over TLS, 100 events per second: how long after its commit an event reaches the last of them.

One process writes ConfigMaps of 4 KB at a steady pace and holds all the watches; the server is `trainmaster up`. A
write's answer leaves the server after its commit, so the time from that answer to the arrival of the event at each
watcher is commit to delivery (0 where the event was first). Rounds alternate between all watchers reading and one
more watcher that never reads a byte.

Promises: p99 at most 5 ms; the stalled watcher raises the others' p99 by at most 10 % (or half a millisecond, which is
the noise of a small number).
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from bench._report import Report
from tests.support.server import ServerProcess, start_server
from trainmaster.api.meta import GVR
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import build_tls, load_kubeconfig
from trainmaster.client.transport import Transport

WATCHERS = 100
RATE = 100
LATENCY_MS = 5.0
STALL_FACTOR, STALL_NOISE_MS = 1.10, 0.5
CONFIG_MAPS = GVR("", "v1", "configmaps")
_NAME = re.compile(rb'"name":"event-(\d+)"')
_WATCH = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={version}"


def request(server: ServerProcess, path: str) -> bytes:
    token = (server.home / "pki" / "owner.token").read_text()
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


class Round:
    def __init__(self, count: int) -> None:
        self.acknowledged: dict[int, float] = {}
        self.arrivals: list[tuple[int, float]] = []
        self.complete = asyncio.Event()
        self._expected = count * WATCHERS

    async def watch(self, transport: Transport, payload: bytes, ready: asyncio.Event) -> None:
        stream = await transport.open_stream(payload)
        try:
            ready.set()
            while piece := await stream.read_piece():
                now = time.perf_counter()
                self.arrivals += [(int(number), now) for number in _NAME.findall(piece)]
                if len(self.arrivals) >= self._expected:
                    self.complete.set()
        finally:
            stream.close()

    async def write(self, client: HttpClient, first: int, count: int) -> None:
        began = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            metadata = {"name": f"event-{first + number}"}
            obj = {"kind": "ConfigMap", "metadata": metadata, "data": {"text": "x" * 3800}}
            await client.create(CONFIG_MAPS, obj, "default")
            self.acknowledged[first + number] = time.perf_counter()

    def delays_ms(self) -> list[float]:
        return sorted(max(0.0, at - self.acknowledged[number]) * 1000 for number, at in self.arrivals)


@asynccontextmanager
async def stalled_watcher(server: ServerProcess, version: str) -> AsyncIterator[None]:
    """A client that opens a watch and never reads."""
    host, _, port = server.url.removeprefix("https://").rpartition(":")
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await asyncio.to_thread(plain.connect, (host, int(port)))
    context = ssl.create_default_context(cafile=str(server.ca))
    sock = await asyncio.to_thread(context.wrap_socket, plain, server_hostname=host)
    try:
        await asyncio.to_thread(sock.sendall, request(server, _WATCH.format(version=version)))
        yield
    finally:
        sock.close()


async def run_round(server: ServerProcess, first: int, seconds: float, *, stalled: bool) -> list[float]:
    config = load_kubeconfig([server.kubeconfig])
    client = HttpClient(config)
    transport = Transport(config.server, tls=build_tls(config))
    version = (await client.list(CONFIG_MAPS, "default")).resource_version
    payload = request(server, _WATCH.format(version=version))
    count = int(seconds * RATE)
    result = Round(count)
    ready = [asyncio.Event() for _ in range(WATCHERS)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(result.watch(transport, payload, event)) for event in ready]
        for event in ready:
            await event.wait()
        if stalled:
            async with stalled_watcher(server, version):
                await result.write(client, first, count)
        else:
            await result.write(client, first, count)
        async with asyncio.timeout(10):
            await result.complete.wait()
        for task in tasks:
            task.cancel()
    await client.delete_collection(CONFIG_MAPS, "default")
    await client.close()
    return result.delays_ms()


async def measure(server: ServerProcess, rounds: int, seconds: float) -> tuple[dict[bool, list[float]], float]:
    """p99 of each round without and with a stalled watcher, and the median of all deliveries; in ms."""
    p99s: dict[bool, list[float]] = {False: [], True: []}
    medians = []
    await run_round(server, 10**9, 1.0, stalled=False)
    for number in range(rounds):
        for stalled in (False, True):
            delays = await run_round(server, (2 * number + stalled) * 10**6, seconds, stalled=stalled)
            p99 = delays[int(0.99 * (len(delays) - 1))]
            p99s[stalled].append(p99)
            medians.append(statistics.median(delays))
            kind = "one stalled" if stalled else "all reading"
            print(f"  {kind}: {len(delays)} deliveries, p50 {medians[-1]:.2f} ms, p99 {p99:.2f} ms, "
                  f"max {delays[-1]:.2f} ms", flush=True)  # fmt: skip
    return p99s, statistics.median(medians)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder,
        start_server(Path(folder)) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        p99s, p50 = runner.run(measure(server, options.rounds, options.seconds))
    normal, stalled = statistics.median(p99s[False]), statistics.median(p99s[True])
    report = Report()
    report.check(
        "commit to delivery, 100 watchers, p99", normal, at_most=LATENCY_MS, unit=" ms", anchor=f"p50 {p50:.2f} ms"
    )
    allowed = max(normal * STALL_FACTOR, normal + STALL_NOISE_MS)
    what = "commit to delivery beside a watcher that never reads, p99"
    anchor = f"{normal:.2f} ms without it"
    report.check(what, stalled, at_most=round(allowed, 2), unit=" ms", anchor=anchor)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
