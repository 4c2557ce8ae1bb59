"""Checklist F: exec, attach, cp, port-forward and top with real kubectls, and the Python client's streams.

The oldest kubectl speaks SPDY, the newest WebSockets, those between a mixture. One Pod serves all tests.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import random
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.stream import portforward, stream

from tests.support.clients import Raw, Target, connect
from tests.support.kubectl import Kubectl
from tests.wire.scenario import with_versions

pytestmark = pytest.mark.wire

SECONDS = 60.0
NAMESPACE = "streams"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVER = """
import http.server, os, socketserver
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * int(self.path[1:]))
    def log_message(self, *words):
        pass
server = socketserver.ThreadingTCPServer(("", 0), Handler)
print("port", server.server_address[1], flush=True)
server.serve_forever()
"""
ECHO = 'echo ready; while read line; do echo "got $line"; done; echo over; exec sleep 1000'


def container(name: str, *command: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "python:3", "command": list(command), **fields}


def await_pod(raw: Raw, name: str, check: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    with raw.watch(f"{PODS}?watch=true&timeoutSeconds=60&fieldSelector=metadata.name={name}") as events:
        return next(event["object"] for event in events if check(event["object"].get("status") or {}))


@pytest.fixture(scope="module")
def pod(main_target: Target) -> Iterator[str]:
    raw = main_target.raw()
    raw.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    containers = [
        container("main", "python3", "-u", "-c", SERVER),
        container("echo", "sh", "-c", ECHO, stdin=True),
    ]
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": containers}
    raw.create(PODS, {"metadata": {"name": "p"}, "spec": spec})
    done = {**spec, "containers": [container("main", "true")]}
    raw.create(PODS, {"metadata": {"name": "done"}, "spec": done})
    await_pod(raw, "p", lambda status: status.get("phase") == "Running")
    await_pod(raw, "done", lambda status: status.get("phase") == "Succeeded")
    yield "p"
    raw.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
    raw.close()


@pytest.fixture
def inside(kubectl: Kubectl, pod: str, tmp_path: Path) -> Kubectl:
    found = kubectl.bound(namespace=NAMESPACE)
    return Kubectl(found.binary, found.minor, found.kubeconfig, found.home, NAMESPACE, tmp_path)


def find_port(raw: Raw) -> int:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        _, text = raw.call("GET", f"{PODS}/p/log?container=main")
        if found := re.search(r"port (\d+)", str(text)):
            return int(found.group(1))
    raise AssertionError("the server in the Pod does not say its port")


@with_versions("full")
def test_exec_tells_output_errors_and_exit_code(inside: Kubectl) -> None:
    answer = inside.run("exec p -c main -- sh -c 'echo out; echo err >&2; exit 3'")
    assert (answer.rc, answer.out) == (3, "out\n")
    assert answer.err.splitlines() == ["err", "command terminated with exit code 3"]


@with_versions("full")
def test_exec_passes_megabytes_of_input_and_sees_its_end(inside: Kubectl) -> None:
    text = "".join(random.Random(5).choices("abcdefgh\n", k=8_000_000))
    answer = inside.run("exec -i p -c main -- cat", stdin=text)
    assert answer.rc == 0, answer.err
    assert hashlib.sha256(answer.out.encode()).digest() == hashlib.sha256(text.encode()).digest()


@with_versions("full")
def test_exec_says_what_cannot_be_executed(inside: Kubectl) -> None:
    answer = inside.run("exec p -c main -- no-such-program")
    assert answer.rc == 1
    assert 'exec: "no-such-program": executable file not found in $PATH' in answer.err
    answer = inside.run("exec p -c wrong -- true")
    assert answer.rc == 1 and "container wrong is not valid for pod p" in answer.err
    answer = inside.run("exec done -- true")
    assert answer.rc == 1 and "completed pod; current phase is Succeeded" in answer.err


class Terminal:
    """A kubectl at a terminal of ours."""

    def __init__(self, kubectl: Kubectl, line: str) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(80, 24, None)
        self.process = subprocess.Popen(
            kubectl.command(line), env=kubectl.environment(), cwd=kubectl.cwd,
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.seen = b""

    def resize(self, columns: int, rows: int, process: subprocess.Popen[bytes] | None) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if process is not None:
            process.send_signal(signal.SIGWINCH)

    def type_until(self, text: str, wanted: bytes) -> None:
        deadline = time.monotonic() + SECONDS
        while wanted not in self.seen:
            assert time.monotonic() < deadline, self.seen
            os.write(self.ours, text.encode())
            # Until it is quiet: every line typed too many is a program to run.
            while wanted not in self.seen and select.select([self.ours], [], [], 0.3)[0]:
                self.seen += os.read(self.ours, 65536)

    def read_to_the_end(self) -> None:
        """kubectl waits until its last words are read."""
        try:
            while data := os.read(self.ours, 65536):
                self.seen += data
        except OSError:
            return  # nobody holds the other side any more


@with_versions("full")
def test_exec_at_a_terminal_follows_its_size(inside: Kubectl) -> None:
    script = 'while :; do stty size; read -r line; [ "$line" = quit ] && exit 4; done'
    terminal = Terminal(inside, f"exec -it p -c main -- sh -c '{script}'")
    try:
        terminal.type_until("\r", b"24 80")
        terminal.resize(101, 31, terminal.process)
        terminal.type_until("\r", b"31 101")
        os.write(terminal.ours, b"quit\r")
        terminal.read_to_the_end()
        assert terminal.process.wait(SECONDS) == 4
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)


@with_versions("newest")
def test_a_client_that_is_killed_takes_its_program_with_it(inside: Kubectl) -> None:
    mark = f"1000.{random.randrange(10**6)}"
    with inside.start(f"exec p -c main -- sh -c 'echo up; exec sleep {mark}'") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.kill()
    deadline = time.monotonic() + SECONDS
    while is_running(mark):
        assert time.monotonic() < deadline, "the program outlives its client"
        time.sleep(0.05)


def is_running(mark: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == f"sleep\0{mark}\0".encode():
                return True
        except OSError:
            continue
    return False


@with_versions("full")
def test_attach_reads_and_writes_the_running_program(inside: Kubectl) -> None:
    process = subprocess.Popen(
        inside.command("attach -i p -c echo"), env=inside.environment(), cwd=inside.cwd,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        # The first client also gets what was printed before; what another version wrote is not seen again.
        lines = iter(process.stdout.readline, b"")
        assert next(line for line in lines if line != b"ready\n") == b"got one\n"
    finally:
        process.kill()
        process.communicate()


@with_versions("full")
def test_cp_copies_files_and_trees_both_ways(inside: Kubectl, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    content = random.Random(6).randbytes(1_000_000)
    (tree / "deep" / "data").write_bytes(content)
    (tree / "small").write_text("small\n")
    where = f"copied-{inside.minor}"
    inside.must(f"cp tree p:{where} -c main")
    assert inside.must(f"exec p -c main -- cat {where}/small") == "small\n"
    inside.must(f"cp p:{where} back -c main")
    assert (tmp_path / "back" / "deep" / "data").read_bytes() == content


@contextmanager
def forwarding(kubectl: Kubectl, port: int) -> Iterator[int]:
    with kubectl.start(f"port-forward p :{port}") as process:
        try:
            assert process.stdout is not None
            found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line := process.stdout.readline())
            assert found, line
            yield int(found.group(1))
        finally:
            process.kill()


@with_versions("full")
def test_port_forward_carries_several_connections(inside: Kubectl, raw: Raw) -> None:
    with forwarding(inside, find_port(raw)) as port:
        for size in (5, 4_000_000, 0):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{size}", timeout=SECONDS) as answer:
                assert answer.read() == b"x" * size


@with_versions("full")
def test_port_forward_says_that_nobody_listens(inside: Kubectl) -> None:
    with inside.start("port-forward p :1") as process:
        assert process.stdout is not None and process.stderr is not None
        found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found
        with socket.create_connection(("127.0.0.1", int(found.group(1))), SECONDS) as link:
            link.settimeout(SECONDS)
            assert link.recv(10) == b""
        assert "error forwarding port 1 to pod p" in process.stderr.readline()
        process.kill()


@with_versions("full")
def test_top_shows_pods_containers_and_the_node(inside: Kubectl) -> None:
    lines = inside.must("top pods --containers").splitlines()[1:]
    found = {tuple(line.split()[:2]): line.split()[2:] for line in lines}
    assert set(found) == {("p", "main"), ("p", "echo")}
    assert all(cpu.endswith("m") and int(memory.removesuffix("Mi")) > 0 for cpu, memory in found.values())
    assert inside.must("top pod p --no-headers").split()[0] == "p"
    assert re.match(r"local +\d+m +\d+% +\d+Mi +\d+%", inside.must("top node --no-headers"))
    assert "not found" in inside.run("top pod nobody").err


def test_the_python_client_executes_with_exit_code(target: Target, pod: str) -> None:
    with connect(target) as api:
        core = client.CoreV1Api(api)
        session = stream(
            core.connect_get_namespaced_pod_exec, pod, NAMESPACE, container="main", _preload_content=False,
            command=["sh", "-c", "read x; echo got $x; exit 5"], stdin=True, stdout=True, stderr=True, tty=False,
        )  # fmt: skip
        link = session.sock.sock  # which the client forgets to close when the server has said good-bye
        session.write_stdin("words\n")
        session.run_forever(timeout=SECONDS)
        assert session.read_stdout() == "got words\n"
        assert session.returncode == 5
        link.close()


def test_the_python_client_forwards_ports(target: Target, pod: str, raw: Raw) -> None:
    port = find_port(raw)
    with connect(target) as api:
        core = client.CoreV1Api(api)
        tunnel = portforward(core.connect_get_namespaced_pod_portforward, pod, NAMESPACE, ports=str(port))
        wire, link = tunnel.websocket.sock, tunnel.socket(port)
        link.setblocking(True)
        link.sendall(b"GET /7 HTTP/1.0\r\n\r\n")
        answer = b""
        while piece := link.recv(65536):
            answer += piece
        assert answer.endswith(b"\r\n\r\nxxxxxxx")
        assert tunnel.error(port) is None
        link.close()
        wire.close()


def test_sessions_are_in_the_audit_log_and_need_the_right_to_create(target: Target, pod: str, raw: Raw) -> None:
    role = {"rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["get"]}]}
    raw.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles", {"metadata": {"name": "r"}, **role})
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "reader"}],
    }
    raw.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings", binding)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Impersonate_User": "reader"}
    code, answer = raw.call("GET", f"{PODS}/{pod}/exec?command=id&stdout=true&container=main", **upgrade)
    assert code == 403 and 'User "reader" cannot create resource "pods/exec"' in answer["message"]
    log = target.kubeconfig.parent / "logs" / "audit.log"
    deadline = time.monotonic() + SECONDS
    found: set[tuple[int, str]] = set()
    while (403, "reader") not in found:  # written after the answer
        assert time.monotonic() < deadline, found
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        found = {(entry["code"], entry["user"]) for entry in entries if entry["resource"] == "pods/exec"}
