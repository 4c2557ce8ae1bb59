"""Followers of a job's log through REST, and creates beside them: how late a line is, and whether anything fails.

A job of one worker prints the time, so many times a second; every follower has a TLS connection and a stream of its own
and subtracts. All followers are one process, which is not the server; so is the load of creates (suspended jobs: making
is measured, not running). CPU is that of the server's process.

Promises: with 200 followers a line reaches a follower within 50 ms in 99 of 100 cases; 200 followers and 50 creates a
second go without an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any

from bench._load import percentile
from bench._report import Report
from bench.rest import Connection, read_cpu
from tests.support.server import ServerProcess, start_server

LATENESS_P99 = 50.0
_PRINTER = """
import time
end = time.time() + {seconds}
while time.time() < end:
    print("at", time.time(), flush=True)
    time.sleep({pause})
"""


class Followers:
    def __init__(self, url: str, context: ssl.SSLContext, token: str, path: str, count: int) -> None:
        self._parts, self._context = urllib.parse.urlsplit(url), context
        self._head = f"GET {path} HTTP/1.1\r\nHost: {self._parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._head += "Connection: close\r\n\r\n"
        self.times: list[float] = []
        self.lines: list[int] = []
        self.errors: list[str] = []
        self.since = float("inf")
        self._left = count
        self.complete = asyncio.Event()
        """Everybody listens, or has failed."""

    async def follow(self) -> None:
        host, port = self._parts.hostname, self._parts.port
        reader, writer = await asyncio.open_connection(host, port, ssl=self._context)
        try:
            writer.write(self._head.encode())
            status = await reader.readline()
            if b" 200 " not in status:
                self.errors.append(status.decode())
                self._arrive()
                return
            self._arrive()
            self.lines.append(await self._read(reader))
        finally:
            writer.close()

    def _arrive(self) -> None:
        self._left -= 1
        if not self._left:
            self.complete.set()

    async def _read(self, reader: asyncio.StreamReader) -> int:
        count, ended = 0, False
        while raw := await reader.readline():
            now = time.time()
            ended = ended or raw.startswith(b"event: end")
            if not raw.startswith(b"data: "):
                continue
            for line in json.loads(raw[6:]).get("lines", ()):
                count += 1
                printed = float(line["text"].split()[1])
                if printed > self.since:
                    self.times.append((now - printed) * 1000)
        if not ended:
            self.errors.append("a stream broke off")
        return count


async def create(connection: Connection, rate: float, seconds: float, prefix: str, errors: list[str]) -> list[float]:
    times, began = [], time.perf_counter()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        body = {"namespace": "default", "user": "ann", "framework": "pytorch", "code": "print(1)\n", "suspended": True}
        try:
            await connection.call("POST", "/api/v1/jobs", json.dumps({**body, "name": f"{prefix}-{number}"}).encode())
        except RuntimeError as error:
            errors.append(str(error))
        times.append((time.perf_counter() - due) * 1000)
    return times


async def drive(url: str, ca: str, token: str, options: argparse.Namespace) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=ca)
    path = f"/api/v1/jobs/{options.job}/logs/stream?namespace=default"
    followers = Followers(url, context, token, path, options.followers)
    made: list[float] = []
    connections = [Connection(url, context, token) for _ in range(5)]
    async with asyncio.TaskGroup() as group:
        for _ in range(options.followers):
            group.create_task(followers.follow())
        await followers.complete.wait()
        # What was printed before everybody was there is not late.
        followers.since = time.time()
        share = options.creates / len(connections)
        makers = [
            group.create_task(create(one, share, options.seconds / 2, f"{options.job}-{number}", followers.errors))
            for number, one in enumerate(connections)
            if share
        ]
        for maker in makers:
            made += await maker
    return {"late": followers.times, "lines": followers.lines, "errors": followers.errors, "made": made}


def measure(server: ServerProcess, name: str, creates: float, options: argparse.Namespace, report: Report) -> None:
    token = server.home / "pki" / "owner.token"
    child = [
        sys.executable,
        "-m",
        "bench.rest_streams",
        "--drive",
        server.info["rest"]["url"],
        str(server.ca),
        str(token),
    ]
    code = _PRINTER.format(seconds=options.seconds, pause=1.0 / options.rate)
    body = {"name": name, "namespace": "default", "user": "ann", "framework": "pytorch", "code": code}
    asyncio.run(_start(server, body))
    before = read_cpu(server.pid)
    sizes = ["--followers", str(options.followers), "--seconds", str(options.seconds), "--creates", str(creates)]
    found = json.loads(subprocess.check_output([*child, "--job", name, *sizes]))
    cpu = read_cpu(server.pid) - before
    late = found["late"]
    p50, p99 = statistics.median(late), percentile(late, 0.99)
    what = f"{options.followers} followers, {options.rate:g} lines/s, {creates:g} creates/s"
    share, load = cpu / options.seconds * 100, os.getloadavg()[0]
    print(
        f"  {what}: p50 {p50:.1f} ms  p99 {p99:.1f} ms  n {len(late)}  CPU {share:.0f} %  load {load:.1f}", flush=True
    )
    if found["made"]:
        print(f"  creates: p50 {statistics.median(found['made']):.1f} ms  p99 {percentile(found['made'], 0.99):.1f} ms")
    whole = len(set(found["lines"])) == 1 and len(found["lines"]) == options.followers
    problems = found["errors"] or ([] if whole else [f"followers saw {sorted(set(found['lines']))} lines"])
    for problem in problems[:3]:
        print(f"  {problem}", flush=True)
    report.check(f"REST: errors of {what}", len(problems), at_most=0, anchor=f"{len(late)} lines delivered")
    if not creates:
        report.check(f"REST: a log line reaches {options.followers} followers, p99", p99, at_most=LATENESS_P99,
                     unit=" ms", anchor=f"p50 {p50:.1f} ms, CPU {share:.0f} % of a core")  # fmt: skip


async def _start(server: ServerProcess, body: dict[str, Any]) -> None:
    context = ssl.create_default_context(cafile=str(server.ca))
    connection = Connection(server.info["rest"]["url"], context, (server.home / "pki" / "owner.token").read_text())
    await connection.call("POST", "/api/v1/jobs", json.dumps(body).encode())
    await connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--followers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=2.0, help="lines a second")
    parser.add_argument("--creates", type=float, default=50.0, help="a second, in the second half")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    parser.add_argument("--drive", nargs=3, metavar=("URL", "CA", "TOKEN_FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        url, ca, token = options.drive
        print(json.dumps(asyncio.run(drive(url, ca, Path(token).read_text(), options))))
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder,
        start_server(Path(folder) / "home") as server,
    ):
        report = Report()
        measure(server, "quiet", 0.0, options, report)
        measure(server, "busy", options.creates, options, report)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
