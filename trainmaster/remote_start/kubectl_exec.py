#!/usr/bin/env python3
"""Replaces `kubectl` in the launcher of a v1 MPIJob, so that `mpirun` can start its daemons in the workers.

As the init container `kubectl-delivery`, without arguments, it copies itself to $TARGET_DIR/kubectl. There
`/etc/mpi/kubexec.sh` calls it as `kubectl exec POD [-c CONTAINER] [-n NAMESPACE] [-i] -- COMMAND...`. It runs the
command in that Pod and exits with its exit code. mpirun starts at once, so a Pod that does not run yet is waited for.

For a worker of the same job, it passes its streams to the worker's shim (`shim/sessions.py`), so that the program does
not depend on the API server. Otherwise the command goes through the API server with the rights of the launcher's
ServiceAccount, by SPDY and not by a WebSocket, because that is a POST: `create` on `pods/exec` suffices, and the
launcher's Role grants nothing more. Run by path inside Pods; imports nothing of ours and needs only Python 3.8.
"""

from __future__ import annotations

import array
import http.client
import json
import os
import select
import shutil
import socket
import ssl
import struct
import sys
import time
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_VARIABLE = "TRAINMASTER_ACCOUNT_DIR"
"""Where the files of the ServiceAccount are if there are no mounts."""
GANG = "TRAINMASTER_GANG_DIR"
"""Where the shims of the job's workers listen."""
LIMIT_SECONDS = 300.0
"""How long to wait for a Pod to run; mpirun itself has no limit."""
USAGE = "usage: kubectl exec POD [-c CONTAINER] [-n NAMESPACE] [-i] -- COMMAND [ARGUMENTS...]"
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 1.0
_SILENT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_PIECE = 32 * 1024
_OPTIONS = {"-c": "container", "--container": "container", "-n": "namespace", "--namespace": "namespace"}

ERROR, STDIN, STDOUT, STDERR = 1, 3, 5, 7
"""Numbers of the SPDY streams. A client's are odd."""
_NAMES = {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr"}
_CONTROL = 0x8003_0000
_SYN_STREAM, _PING, _GOAWAY = 1, 6, 7
_FIN = 1


class KubectlError(Exception):
    """The command could not be run; the text is for the author of the job."""


class TryAgainError(Exception):
    """Another try may succeed: the Pod does not run yet, or the API server does not answer."""


# Arguments


class ExecCall(NamedTuple):
    pod: str
    command: Sequence[str]
    container: str = ""
    namespace: str = ""
    stdin: bool = False


def parse_arguments(argv: Sequence[str]) -> ExecCall:
    """Raises KubectlError."""
    if list(argv[:1]) != ["exec"]:
        raise KubectlError(f"this stand-in for kubectl has only exec; {USAGE}")
    found: dict[str, Any] = {}
    pods: list[str] = []
    rest = list(argv[1:])
    while rest and rest[0] != "--":
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in _OPTIONS:
            if not equals and not rest:
                raise KubectlError(f"{name} needs a value; {USAGE}")
            found[_OPTIONS[name]] = value if equals else rest.pop(0)
        elif word in ("-i", "--stdin", "--stdin=true"):
            found["stdin"] = True
        elif word.startswith("-"):
            raise KubectlError(f"this stand-in for kubectl has no option {word}; {USAGE}")
        else:
            pods.append(word[4:] if word.startswith("pod/") else word)
    if len(pods) != 1 or len(rest) < 2:
        raise KubectlError(f"exec needs one Pod, and a command after --; {USAGE}")
    return ExecCall(pods[0], rest[1:], **found)


# The API server


class PodApi:
    """The API server as a Pod sees it, with the rights of the Pod's ServiceAccount."""

    def __init__(self) -> None:
        account = self._account = os.environ.get(ACCOUNT_VARIABLE, ACCOUNT)
        self._host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        self._port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
        if not (self._host and self._port and os.path.exists(f"{account}/token")):
            raise KubectlError(
                "this Pod has no access to the API server; automountServiceAccountToken must not be false, neither in "
                "the template of the launcher nor in its ServiceAccount"
            )
        self._tls = ssl.create_default_context(cafile=f"{account}/ca.crt")

    def read(self, name: str) -> str:
        """A file of the ServiceAccount; the token is renewed while the Pod runs."""
        with open(f"{self._account}/{name}", encoding="utf-8") as file:
            return file.read().strip()

    def find_pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        connection, answer = self._request("GET", f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}", {})
        with connection:
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise _read_refusal(answer)
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def open_exec(self, namespace: str, call: ExecCall) -> ssl.SSLSocket:
        """A connection that carries SPDY. The server sends nothing on it before we do."""
        query = [("command", word) for word in call.command]
        query += [("container", call.container)] if call.container else []
        query += [("stdin", "true")] if call.stdin else []
        query += [("stdout", "true"), ("stderr", "true")]
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(call.pod)}/exec?{urlencode(query)}"
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "SPDY/3.1",
            "X-Stream-Protocol-Version": "v4.channel.k8s.io",
            "Content-Length": "0",
        }
        connection, answer = self._request("POST", path, headers)
        if answer.status != 101:
            with connection:
                raise _read_refusal(answer)
        return connection.take()

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[_Connection, http.client.HTTPResponse]:
        connection = _Connection(self._host, int(self._port), timeout=_ANSWER_SECONDS, context=self._tls)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {self.read('token')}", **headers})
            return connection, connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise KubectlError(f"the API server's certificate is not valid: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TryAgainError(f"the API server at {self._host}:{self._port} does not answer: {error}") from error


class _Connection(http.client.HTTPSConnection):
    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> ssl.SSLSocket:
        assert isinstance(self.sock, ssl.SSLSocket)
        return self.sock


def _read_refusal(answer: http.client.HTTPResponse) -> Exception:
    text = answer.read(1 << 20).decode(errors="replace")
    try:
        text = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        text = text[:200] or f"the server answered {answer.status}"
    # 404: the Pod is being replaced. 429 and 5xx: the server is busy, or the container has just ended.
    if answer.status in (404, 429) or answer.status >= 500:
        return TryAgainError(text)
    return KubectlError(text)


# Waiting for the Pod


def open_when_running(api: PodApi, call: ExecCall, limit: float = LIMIT_SECONDS) -> WorkerSession | SpdySession:
    """Waits until the Pod runs. Says what it is waiting for if that takes long."""
    namespace = call.namespace or api.read("namespace")
    waited, pause, told = 0.0, _PAUSE_SECONDS, ""
    while True:
        try:
            pod = api.find_pod(namespace, call.pod)
            problem = find_problem(pod, call)
            if pod is not None and not problem:
                return find_worker_session(pod, call) or SpdySession(api.open_exec(namespace, call), stdin=call.stdin)
        except TryAgainError as error:
            problem = str(error)
        if waited >= limit:
            raise KubectlError(f"gave up after {limit:.0f} s: {problem}")
        if waited > _SILENT_SECONDS and problem != told:
            told = problem
            sys.stderr.write(f"kubectl exec: waiting: {problem}\n")
            sys.stderr.flush()
        time.sleep(pause)
        waited += pause
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)


def find_problem(pod: dict[str, Any] | None, call: ExecCall) -> str:
    """Why the command cannot be run yet; "" if it can. Raises KubectlError if it never will."""
    if pod is None:
        return f"Pod {call.pod} does not exist"
    status = pod.get("status", {})
    phase = status.get("phase", "Pending")
    names = [container["name"] for container in pod["spec"]["containers"]]
    if call.container and call.container not in names:
        raise KubectlError(f"Pod {call.pod} has no container {call.container}; it has {', '.join(names)}")
    if phase == "Succeeded":
        raise KubectlError(f"Pod {call.pod} has already ended; a worker must run until the launcher ends")
    if phase == "Failed":
        return f"Pod {call.pod} has failed{_describe(status)}"
    wanted = call.container or names[0]
    for entry in status.get("containerStatuses", []):
        if entry["name"] != wanted:
            continue
        if "running" in entry.get("state", {}):
            return ""
        waiting = entry.get("state", {}).get("waiting", {})
        return f"Pod {call.pod} is {phase}{_describe(waiting)}"
    conditions = (entry for entry in status.get("conditions", []) if entry.get("type") == "PodScheduled")
    return f"Pod {call.pod} is {phase}{_describe(next(conditions, {}))}"


def _describe(found: dict[str, Any]) -> str:
    text = ": ".join(filter(None, (found.get("reason"), found.get("message"))))
    return f" ({text})" if text else ""


# The worker's shim


class WorkerSession:
    """A running program that has our streams."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def run(self) -> int:
        """The program's exit code. Raises KubectlError if it is unknown."""
        with self._link:
            answer = receive(self._link)
        if "code" not in answer:
            raise KubectlError("the Pod has ended before the program did")
        return int(answer["code"])


def find_worker_session(pod: dict[str, Any], call: ExecCall) -> WorkerSession | None:
    """None if the Pod is not a worker of this job, or was started by a version without this."""
    link = find_shim(os.environ.get(GANG, ""), pod["metadata"]["uid"])
    if link is None:
        return None
    container = call.container or pod["spec"]["containers"][0]["name"]
    request = json.dumps({"container": container, "argv": list(call.command)}).encode()
    try:
        with open(os.devnull, "rb") as nothing:
            streams = array.array("i", [0 if call.stdin else nothing.fileno(), 1, 2])
            link.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        answer = receive(link)
    except OSError as error:
        answer = {"error": f"the command cannot be passed on: {error.strerror}", "kind": "ExecError"}
    if answer.get("started"):
        return WorkerSession(link)
    link.close()
    text = answer.get("error", f"Pod {call.pod} has just ended")
    raise KubectlError(text) if answer.get("kind") == "ExecError" else TryAgainError(text)


def find_shim(directory: str, uid: str) -> socket.socket | None:
    """Connects through a descriptor of the directory: the path may exceed the limit of Unix addresses."""
    try:
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        link.connect(f"/proc/self/fd/{place}/{uid}")
    except OSError:
        link.close()
        return None
    finally:
        os.close(place)
    return link


def receive(link: socket.socket) -> dict[str, Any]:
    """{} if the shim is gone."""
    try:
        content = link.recv(_PIECE)
    except ConnectionError:
        content = b""
    found: dict[str, Any] = json.loads(content or b"{}")
    return found


# SPDY


class SpdySession:
    """A running program. Copies its streams until it ends."""

    def __init__(self, link: ssl.SSLSocket, *, stdin: bool) -> None:
        self._link = link
        self._out = b""
        self._in = b""
        self._stdin = stdin
        self._end = b""
        self._open = {ERROR, STDOUT, STDERR}
        self._deflate = zlib.compressobj()
        for number in (ERROR, *((STDIN,) if stdin else ()), STDOUT, STDERR):
            self._out += self._build_stream(number)

    def run(self) -> int:
        """The program's exit code. Raises KubectlError if it could not be run."""
        self._link.setblocking(False)
        while self._open:
            self._send()
            if not self._receive():
                break
            self._wait()
        return read_end(self._end)

    def _wait(self) -> None:
        if self._link.pending() or not self._open:
            return
        reads: list[Any] = [self._link, 0] if self._stdin and not self._out else [self._link]
        ready, _, _ = select.select(reads, [self._link] if self._out else [], [])
        if 0 in ready:
            data = os.read(0, _PIECE)
            self._stdin = bool(data)
            self._out += struct.pack(">II", STDIN, (0 if data else _FIN) << 24 | len(data)) + data

    def _send(self) -> None:
        try:
            while self._out:
                self._out = self._out[self._link.send(self._out) :]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            self._out, self._stdin = b"", False  # what the server said before is still to be read

    def _receive(self) -> bool:
        """False once the server has closed the connection."""
        while True:
            try:
                data = self._link.recv(_PIECE)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            except OSError:
                data = b""
            if not data:
                return False
            self._in += data
            self._take_frames()

    def _take_frames(self) -> None:
        while len(self._in) >= 8:
            first, second = struct.unpack(">II", self._in[:8])
            size, flags = second & 0xFF_FFFF, second >> 24
            if len(self._in) < 8 + size:
                return
            body, self._in = self._in[8 : 8 + size], self._in[8 + size :]
            if first < 1 << 31:
                self._take_data(first, body, final=bool(flags & _FIN))
            elif first & 0xFFFF == _PING and body[-1] % 2 == 0:
                self._out += struct.pack(">II", _CONTROL | _PING, len(body)) + body
            elif first & 0xFFFF == _GOAWAY:
                self._open.clear()

    def _take_data(self, stream: int, data: bytes, *, final: bool) -> None:
        if stream == ERROR:
            self._end += data
        elif stream in (STDOUT, STDERR):
            target = 1 if stream == STDOUT else 2
            while data:
                data = data[os.write(target, data) :]
        if final:
            self._open.discard(stream)

    def _build_stream(self, number: int) -> bytes:
        name = _NAMES[number].encode()
        headers = struct.pack(">II", 1, 10) + b"streamtype" + struct.pack(">I", len(name)) + name
        block = self._deflate.compress(headers) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        body = struct.pack(">IIH", number, 0, 0) + block
        flags = 0 if number == STDIN else _FIN
        return struct.pack(">II", _CONTROL | _SYN_STREAM, flags << 24 | len(body)) + body


def read_end(text: bytes) -> int:
    """The exit code in the final Status. Raises KubectlError if there is none."""
    if not text:
        raise KubectlError(
            "the connection ended before the program did: the Pod has ended, or the server was restarted"
        )
    found = json.loads(text)
    if found.get("status") == "Success":
        return 0
    for cause in found.get("details", {}).get("causes", []):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise KubectlError(found.get("message", "the program could not be run"))


# The program


def deliver(target: str) -> None:
    """Copies this program to `target`, completely or not at all."""
    path = f"{target}/kubectl"
    shutil.copyfile(__file__, f"{path}.new")
    os.chmod(f"{path}.new", 0o755)
    os.replace(f"{path}.new", path)


def main(argv: Sequence[str]) -> int:
    target = os.environ.get("TARGET_DIR")
    if not argv and target:
        deliver(target)
        return 0
    try:
        call = parse_arguments(argv)
        return open_when_running(PodApi(), call).run()
    except KubectlError as error:
        sys.stderr.write(f"kubectl exec: {error}\n")
        return 1
    except BrokenPipeError:
        return 1  # nobody reads the output any more


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
