"""Strangers and the five ports of an operator: webhooks, progress reports, metrics, records, probes. Nothing that they
send or hold back keeps others out, fills memory, or ends the process, and its log has no traceback.

The attacks are those on the ports of a server on one machine (tests/attacks/stranger, tests/bad_input); they come from
the address of the API server, which the webhooks answer meanwhile.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.stranger.door import (
    MIB,
    Door,
    build_get,
    crowd,
    read_all,
    read_answer,
    read_memory,
    send_until_cut,
)
from tests.bad_input.test_connections import AMBIGUOUS
from tests.kube.cluster import KubeCluster
from tests.kube.processes import free_port
from tests.seam.operator_run import Run, operating

pytestmark = [pytest.mark.kube, pytest.mark.timeout(180)]

PLACE = "hostile"
NAMES = ("webhook", "progress", "metrics", "records", "health")
WITH_TLS = NAMES[:4]
GROWTH = 16 * MIB * len(NAMES)
_SLOW_SECONDS = 60.0


class PlainDoor(Door):
    """Without TLS."""

    def __post_init__(self) -> None:
        return

    def enter(self) -> Any:
        return self.knock()


@dataclass(frozen=True)
class Target:
    run: Run
    doors: dict[str, Door]
    memory: int
    """Of the process, when it had just started."""

    def check_alive(self) -> None:
        """All ports answer, and what was sent is forgotten."""
        assert self.run.process.poll() is None, self.run.read()[-3000:]
        assert self.doors["health"].get("/healthz").startswith(b"HTTP/1.1 200")
        assert self.doors["metrics"].get("/metrics").startswith(b"HTTP/1.1 401")
        assert self.doors["progress"].get("/").startswith(b"HTTP/1.1 404")
        assert self.doors["records"].get("/apis").startswith(b"HTTP/1.1 401")
        assert self.review(build_review({})).startswith(b"HTTP/1.1 200")
        assert "Traceback" not in self.run.read(), self.run.read()[-3000:]
        assert read_memory(self.run.process.pid) - self.memory < GROWTH

    def review(self, body: bytes, content_type: str = "application/json") -> bytes:
        return self.doors["webhook"].ask(build_post("/validate", body, content_type))


def build_post(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def build_review(spec: object) -> bytes:
    group, version, resource = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
    obj = {
        "apiVersion": f"{group}/{version}",
        "kind": "TrainJob",
        "metadata": {"name": "a", "namespace": PLACE},
        "spec": spec,
    }
    request = {"uid": "u", "operation": "CREATE", "namespace": PLACE, "object": obj}
    request["resource"] = {"group": group, "version": version, "resource": resource}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


@pytest.fixture(scope="module")
def target(seam_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("hostile")
    seam_cluster.kubectl("create", "namespace", PLACE)
    ports = {name: free_port() for name in NAMES}
    flags = ["--namespace", PLACE, "--lease-namespace", PLACE, "--history", str(folder / "archive")]
    for name in NAMES:
        flags += [f"--{name}-port", str(ports[name])]
    for name in ("webhook", "progress"):
        flags += [f"--{name}-url", f"https://127.0.0.1:{ports[name]}"]
    with operating(seam_cluster.kubeconfig, folder / "log", *flags) as run:
        run.wait_for("operator.ready")
        cas = {name: save_ca(seam_cluster, name, folder) for name in ("webhook", "progress", "records")}
        cas["metrics"] = cas["progress"]
        names = {"records": f"trainmaster-operator.{PLACE}.svc"}
        doors: dict[str, Door] = {
            name: Door(f"https://127.0.0.1:{ports[name]}", cas[name], names.get(name, "")) for name in WITH_TLS
        }
        doors["health"] = PlainDoor(f"http://127.0.0.1:{ports['health']}", folder)
        yield Target(run, doors, read_memory(run.process.pid))


def save_ca(cluster: KubeCluster, name: str, folder: Path) -> Path:
    secret = json.loads(cluster.kubectl("get", "secret", f"trainmaster-{name}-tls", "-n", PLACE, "-o", "json"))
    path = folder / f"{name}.crt"
    path.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    return path


@pytest.fixture(params=NAMES)
def door(request: pytest.FixtureRequest, target: Target) -> Door:
    return target.doors[request.param]


@pytest.fixture(autouse=True)
def unharmed(target: Target) -> Iterator[None]:
    yield
    target.check_alive()


def test_requests_that_two_parsers_could_read_differently_get_one_refusal(target: Target) -> None:
    def send(name: str, payload: str) -> bytes:
        with target.doors[name].enter() as sock:
            sock.sendall(payload.replace("{path}", "/healthz").replace("{auth}", "").encode() + b"\r\n\r\n")
            return read_all(sock)

    asked = [(name, what) for name in NAMES for what in AMBIGUOUS]
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda pair: send(pair[0], AMBIGUOUS[pair[1]]), asked))
    for pair, answer in zip(asked, answers, strict=True):
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 405", b"HTTP/1.1 413")), (pair, answer)
        assert answer.count(b"HTTP/1.1") == 1, (pair, answer)


def test_headers_without_end_are_refused(door: Door) -> None:
    for piece in (b"y" * 16_384, b"X: y\r\n" * 2000):
        with door.enter() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
            assert send_until_cut(sock, piece, 200 * MIB) < 32 * MIB
    answer = door.ask(build_get("/", "", *[f"X-{number}: {'y' * 800}" for number in range(180)]))
    assert answer.startswith(b"HTTP/1.1 431")


def test_bodies_that_are_too_large_are_refused(door: Door) -> None:
    with door.enter() as sock:
        sock.sendall(b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000\r\n\r\n")
        assert read_answer(sock).startswith(b"HTTP/1.1 413")
    with door.enter() as sock:
        sock.sendall(b"POST /validate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert send_until_cut(sock, b"10000\r\n" + b"x" * 0x10000 + b"\r\n", 200 * MIB) < 48 * MIB


def test_what_is_pipelined_behind_a_request_fills_no_memory(target: Target, door: Door) -> None:
    with door.enter() as sock:
        sock.sendall(build_get("/") + b"GET / HTTP/1.1\r\nX: ")
        assert send_until_cut(sock, b"y" * 65_536, 100 * MIB) < 40 * MIB


def test_answers_that_nobody_reads_are_not_collected(door: Door) -> None:
    with crowd(door, 4, handshake=True) as deaf:
        for sock in deaf:
            send_until_cut(sock, build_get("/nothing") * 200, 3 * MIB)


def test_half_a_request_has_its_time(target: Target) -> None:
    """Half a header on each port, and half a body where there are bodies."""
    half = dict.fromkeys(NAMES, b"GET / HTTP/1.1\r\nHost: x\r\nX-Ha")
    body = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nContent-Type: application/json\r\n\r\n{"
    with ExitStack() as stack:
        waiting: list[tuple[str, socket.socket]] = []
        for name in NAMES:
            for payload in (half[name], *([body] if name in ("webhook", "progress") else [])):
                waiting.append((name, stack.enter_context(target.doors[name].enter())))
                waiting[-1][1].sendall(payload)
        for name, slow in waiting:
            assert read_answer(slow, _SLOW_SECONDS).startswith(b"HTTP/1.1 408"), name


def test_a_crowd_that_says_nothing_keeps_nobody_out(target: Target, door: Door) -> None:
    with crowd(door, 700, handshake=False) as silent, crowd(door, 100, handshake=True) as idle:
        assert len(silent) + len(idle) > 500
        target.check_alive()


@pytest.mark.parametrize("name", WITH_TLS)
def test_what_is_no_tls_gets_no_answer(target: Target, name: str) -> None:
    door = target.doors[name]
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 400):
        with door.knock() as sock:
            sock.sendall(data)
            assert b"200" not in read_all(sock)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with door.knock() as plain, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(plain)


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_reviews_of_another_content_type_are_refused(target: Target, content_type: str) -> None:
    assert target.review(build_review({}), content_type).startswith(b"HTTP/1.1 415")


BODIES = {
    "nothing": b"",
    "half an object": b"{",
    "a list": b"[]",
    "null": b"null",
    "not UTF-8": b'{"kind":"\xff\xfe"}',
    "NaN": b'{"kind":NaN}',
    "zeros": b"\0" * 100,
    "no review": b'{"kind":"Pod","apiVersion":"v1","request":{}}',
    "deep lists": b"[" * 1_000_000,
    "deep objects": b'{"a":' * 500_000,
}


@pytest.mark.parametrize("what", BODIES)
def test_bodies_that_are_no_review_are_refused(target: Target, what: str) -> None:
    assert target.review(BODIES[what]).startswith((b"HTTP/1.1 400", b"HTTP/1.1 413"))
    report = build_post(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{PLACE}/trainjobs/a/status", BODIES[what])
    assert target.doors["progress"].ask(report).startswith((b"HTTP/1.1 403", b"HTTP/1.1 413"))


@pytest.mark.parametrize("depth", [50, 240, 900])
@pytest.mark.parametrize("path", ["/default", "/validate", "/validate-reserved"])
def test_deep_objects_in_a_review_get_an_answer(target: Target, depth: int, path: str) -> None:
    value: object = 1
    for _ in range(depth):
        value = {"a": [value]} if depth < 500 else [value]
    body = build_review({"trainer": value, "runtimeRef": {"name": "plain"}, "runtimePatches": value})
    answer = target.doors["webhook"].ask(build_post(path, body))
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400")), answer


def test_reports_without_a_token_of_a_pod_are_refused(target: Target) -> None:
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{PLACE}/trainjobs/a/status"
    for token in ("", "made.up.token", "x" * 8_000, "a b"):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
        head += f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
        assert target.doors["progress"].ask(head.encode() + b"{}").startswith(b"HTTP/1.1 403"), token[:20]
