"""Creates and status reads through REST, and the same with the official Kubernetes client against a real API server.

Creates come at a fixed rate (an open loop: a late one is counted from when it was due), each durable and made of five
calls: system ConfigMap, newest code, the job's copy, the TrainJob, the copy's owner. `trainmaster up` runs without
workloads here, and so does the other side (etcd and kube-apiserver, without Trainer): measured is making, not running.
The official client sends the same five calls from as many threads, at a lower rate, in turns with ours at that rate.
TLS and tokens on both sides, connections kept alive. CPU is that of the server's process; the load generator is another
process.
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
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench._load import percentile
from bench._report import Report
from tests.kube.cluster import KubeCluster
from tests.support.server import ServerProcess, start_server
from trainmaster.operator.manifests import build_manifests

CONNECTIONS = 8
USERS = 20
ROUNDS = 2
CODE = "import torch.distributed as dist\n" * 40
MANIFEST = Path(__file__).resolve().parent.parent / "trainmaster" / "manifests" / "pytorch"


def describe(name: str, times: list[float]) -> tuple[float, float]:
    p50, p99 = statistics.median(times), percentile(times, 0.99)
    load = os.getloadavg()[0]
    print(f"  {name:34} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   n {len(times)}   load {load:.1f}", flush=True)
    return p50, p99


# Through REST


class Connection:
    """One kept-alive connection; one request at a time."""

    def __init__(self, url: str, context: ssl.SSLContext, token: str) -> None:
        self._parts, self._context = urllib.parse.urlsplit(url), context
        self._head = f"Host: {self._parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes = b"") -> Any:
        if self._streams is None:
            host, port = self._parts.hostname, self._parts.port
            self._streams = await asyncio.open_connection(host, port, ssl=self._context)
        reader, writer = self._streams
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split("\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        if " 20" not in head.split("\r\n")[0]:
            raise RuntimeError(f"{method} {path}: {answer}")
        return answer

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()


def build_body(user: int) -> bytes:
    config = {"num_nodes": 2, "cpu_per_node": "1", "memory_per_node": "1Gi"}
    body = {"user_id": f"user-{user}", "namespace": "default", "framework": "pytorch", "training_code": CODE}
    return json.dumps({**body, "config": config}).encode()


async def drive(url: str, ca: str, token: str, rate: float, seconds: float) -> dict[str, list[float]]:
    context = ssl.create_default_context(cafile=ca)
    free: asyncio.Queue[Connection] = asyncio.Queue()
    connections = [Connection(url, context, token) for _ in range(CONNECTIONS)]
    names: list[str] = []
    times: list[float] = []

    async def create(number: int, due: float) -> None:
        connection = await free.get()
        made = await connection.call("POST", "/api/trainjob/create", build_body(number % USERS))
        times.append((time.perf_counter() - due) * 1000)
        names.append(made["trainjob_name"])
        free.put_nowait(connection)

    for connection in connections:
        await connection.call("POST", "/api/trainjob/create", build_body(0))
        free.put_nowait(connection)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(create(number, due))
    reads: list[float] = []
    for name in names[:500]:
        start = time.perf_counter()
        await connections[0].call("GET", f"/api/trainjob/{name}/status?namespace=default")
        reads.append((time.perf_counter() - start) * 1000)
    for connection in connections:
        await connection.close()
    return {"create": times, "status": reads}


def read_cpu(pid: int) -> float:
    """Seconds of processor time that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class RestLoad:
    """Drives one server from another process."""

    def __init__(self, server: ServerProcess) -> None:
        runtime = ["kubectl", "--kubeconfig", str(server.kubeconfig), "apply", "-f", str(MANIFEST / "runtime.yaml")]
        subprocess.run(runtime, check=True, stdout=subprocess.DEVNULL)
        arguments = [server.info["rest"]["url"], str(server.ca), str(server.home / "pki" / "owner.token")]
        self._child = [sys.executable, "-m", "bench.rest", "--drive", *arguments]
        self._pid = server.pid
        self._call(5, 1)

    def _call(self, rate: float, seconds: float) -> dict[str, list[float]]:
        line = [*self._child, "--rate", str(rate), "--seconds", str(seconds)]
        found: dict[str, list[float]] = json.loads(subprocess.check_output(line))
        return found

    def measure(self, rate: float, seconds: float) -> dict[str, list[float]]:
        """Milliseconds of each `create` and `status`."""
        before = read_cpu(self._pid)
        found = self._call(rate, seconds)
        cpu = read_cpu(self._pid) - before
        describe(f"REST create at {rate:.0f}/s", found["create"])
        describe("REST status", found["status"])
        count = len(found["create"]) + len(found["status"])
        print(f"  CPU of the server: {cpu * 1000 / count:.2f} ms a request, creates and reads together")
        return found


# The same with the official client


def build_maker(kubeconfig: Path) -> Callable[[int, int], None]:
    from kubernetes import client, config
    from kubernetes.client.exceptions import ApiException

    local = threading.local()

    def connect() -> tuple[Any, Any]:
        if not hasattr(local, "apis"):
            api = config.new_client_from_config(str(kubeconfig))
            local.apis = client.CoreV1Api(api), client.CustomObjectsApi(api)
        apis: tuple[Any, Any] = local.apis
        return apis

    def make(number: int, user: int) -> None:
        core, custom = connect()
        latest, job = f"user-{user}-train-script", f"user-{user}-job-{number:014d}"
        core.read_namespaced_config_map("pytorch-pet-setup", "default")
        try:
            core.patch_namespaced_config_map(latest, "default", {"data": {"train.py": CODE}})
        except ApiException:
            core.create_namespaced_config_map("default", {"metadata": {"name": latest}, "data": {"train.py": CODE}})
        copy = {"metadata": {"name": f"{job}-script"}, "immutable": True, "data": {"train.py": CODE}}
        core.create_namespaced_config_map("default", copy)
        group = ("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs")
        made = custom.create_namespaced_custom_object(*group, build_trainjob(job))
        owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": job}
        owners = [{**owner, "uid": made["metadata"]["uid"]}]
        core.patch_namespaced_config_map(f"{job}-script", "default", {"metadata": {"ownerReferences": owners}})

    return make


def build_trainjob(name: str) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi"}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": "pytorch-simple"},
            "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": amounts, "limits": amounts}},
        },
    }


class OfficialLoad:
    """The threads share one interpreter, as a backend that uses this client does."""

    def __init__(self, cluster: KubeCluster) -> None:
        cluster.apply(json.dumps(build_manifests()))
        cluster.kubectl("apply", "-f", str(MANIFEST / "system-configmap.yaml"))
        self._make = build_maker(cluster.kubeconfig)
        self._made = 0
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(lambda number: self._make(10**9 + number, number), range(USERS)))

    def measure(self, rate: float, seconds: float) -> list[float]:
        """Milliseconds of the five calls, each time."""
        times: list[float] = []

        def create(number: int, due: float) -> None:
            self._make(number, number % USERS)
            times.append((time.perf_counter() - due) * 1000)

        count = int(rate * seconds)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for number, due in _pace(time.perf_counter(), rate, count):
                pool.submit(create, self._made + number, due)
        self._made += count
        describe(f"official client at {rate:.0f}/s", times)
        return times


def _pace(began: float, rate: float, count: int) -> Iterator[tuple[int, float]]:
    for number in range(count):
        due = began + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        yield number, due


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--official-rate", type=float, default=10.0, help="the official client cannot keep up with 50")
    parser.add_argument("--drive", nargs=3, metavar=("URL", "CA", "TOKEN_FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        url, ca, token = options.drive
        found = asyncio.run(drive(url, ca, Path(token).read_text(), options.rate, options.seconds))
        print(json.dumps(found))
        return 0
    environ = {"TRAINMASTER_PROCESS_WORKLOADS": "false"}
    ours: list[float] = []
    theirs: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder,
        start_server(Path(folder) / "home", environ=environ) as server,
    ):
        rest = RestLoad(server)
        fast = rest.measure(options.rate, options.seconds)
        with KubeCluster() as cluster:
            official = OfficialLoad(cluster)
            for _ in range(ROUNDS):
                ours += rest.measure(options.official_rate, options.seconds / ROUNDS)["create"]
                theirs += official.measure(options.official_rate, options.seconds / ROUNDS)
    return report_times(fast, ours, theirs, options)


def report_times(
    fast: dict[str, list[float]], ours: list[float], theirs: list[float], options: argparse.Namespace
) -> int:
    report = Report()
    p50, other = statistics.median(ours), statistics.median(theirs)
    beside = f"at {options.official_rate:g}/s {p50:.1f} ms, official client and kube-apiserver {other:.1f} ms"
    name = f"REST create at {options.rate:g}/s"
    report.check(f"{name}, p50", statistics.median(fast["create"]), at_most=10, unit=" ms", anchor=beside)
    slow = [percentile(times, 0.99) for times in (ours, theirs)]
    beside = f"at {options.official_rate:g}/s {slow[0]:.1f} ms, official client and kube-apiserver {slow[1]:.1f} ms"
    report.check(f"{name}, p99", percentile(fast["create"], 0.99), at_most=50, unit=" ms", anchor=beside)
    status = fast["status"]
    p99 = f"p99 {percentile(status, 0.99):.1f} ms"
    report.check("REST status, p50", statistics.median(status), at_most=2, unit=" ms", anchor=p99)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
