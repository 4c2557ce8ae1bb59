"""Sends attacks to a running server and judges it: it lives, never answers 500, logs no traceback, keeps its bounds.

Workers are threads; who asks `/livez` all the while is a process of its own, so that making attacks delays no clock.
"""

from __future__ import annotations

import functools
import http.client
import itertools
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from tests.attacks.fuzz.attack import Attack
from tests.attacks.fuzz.crew import run_crew
from tests.attacks.fuzz.generators import STANDING, make_attacks
from tests.attacks.fuzz.livez import judge
from tests.attacks.fuzz.objects import BODIES, build_object
from tests.attacks.fuzz.outcome import Outcome
from tests.attacks.site import Caller, Site

ROOT = Path(__file__).parents[3]
SECONDS_PER_ATTACK = 15.0
_WORKERS = 3
_GRACE = 60.0
"""After the end: longer than one attack with its undoing takes."""
_BROKEN = frozenset({500, 502})
"""503 says that something is not there yet, 501 and 505 that we do not do it."""
_KEPT_OPEN = 0.3
"""How long raw bytes wait for an answer; many of them deserve none."""


class _Worker:
    """One after the other, on connections that are kept while the server keeps them."""

    def __init__(self, site: Site, outcome: Outcome, lock: threading.Lock, stop: threading.Event) -> None:
        self._site = site
        self._stop = stop
        self._outcome = outcome
        self._lock = lock
        self._connections: dict[tuple[str, str], http.client.HTTPSConnection] = {}
        self._context = ssl.create_default_context(cafile=str(site.server.ca))
        self.current: Attack | None = None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def run(self, attacks: Iterable[Attack], end: float) -> None:
        for attack in attacks:
            if time.monotonic() >= end or self._stop.is_set() or self._site.server.process.poll() is not None:
                break
            self.current = attack
            began = time.monotonic()
            codes = self._send_raw(attack) if attack.is_raw else [self._send(attack)]
            self._note(attack, codes, time.monotonic() - began)
        self.current = None

    def _note(self, attack: Attack, codes: list[str], seconds: float) -> None:
        with self._lock:
            self._outcome.sent[attack.kind] += 1
            self._outcome.codes.update(codes)
            self._outcome.slowest = sorted([*self._outcome.slowest, (seconds, attack)], key=lambda one: -one[0])[:5]
            for code in codes:
                if code.isdigit() and int(code) in _BROKEN:
                    self._outcome.broken.append((attack, code))
            if "silence" in codes:
                self._outcome.broken.append((attack, "silence"))

    def _caller(self, attack: Attack) -> Caller:
        return self._site.owner if attack.caller == "owner" else self._site.ann

    def _connect(self, attack: Attack) -> http.client.HTTPSConnection:
        key = (attack.port, attack.caller)
        if key not in self._connections:
            netloc = urllib.parse.urlsplit(get_url(self._site, attack.port)).netloc
            self._connections[key] = http.client.HTTPSConnection(
                netloc, context=self._context, timeout=SECONDS_PER_ATTACK
            )
        return self._connections[key]

    def _send(self, attack: Attack) -> str:
        caller = self._caller(attack)
        headers = dict(attack.headers)
        if attack.caller != "stranger":
            headers["Authorization"] = f"Bearer {caller.token}"
        target = attack.target.replace("{ns}", caller.namespace)
        code = self._request(attack, attack.method, target, attack.body, headers)
        if attack.undo and code == "201" and "dryRun" not in target:
            self._undo(attack, target, headers)
        return code

    def _request(self, attack: Attack, method: str, target: str, body: bytes, headers: dict[str, str]) -> str:
        """The code, or what happened in place of one. A kept connection may have been closed meanwhile: once again."""
        for is_last in (False, True):
            connection = self._connect(attack)
            try:
                connection.putrequest(method, target, skip_accept_encoding=True)
                if body or method in ("POST", "PATCH", "PUT"):
                    headers = {**headers, "Content-Length": str(len(body))}
                for name, value in headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body or None)
                response = connection.getresponse()
                self._answer = response.read(8 * 1024 * 1024)
                if response.will_close:
                    connection.close()
                return str(response.status)
            except (http.client.InvalidURL, ValueError):
                connection.close()
                return "unsendable"
            except TimeoutError:
                connection.close()
                return "silence"
            except (OSError, http.client.HTTPException):
                connection.close()
                if is_last:
                    return "closed"
        raise AssertionError("not reached")

    def _undo(self, attack: Attack, target: str, headers: dict[str, str]) -> None:
        try:
            name = json.loads(self._answer)["metadata"]["name"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        path = f"{target.partition('?')[0]}/{urllib.parse.quote(name)}?gracePeriodSeconds=0"
        self._request(attack, "DELETE", path, b"", {"Authorization": headers["Authorization"]})

    def _send_raw(self, attack: Attack) -> list[str]:
        parts = urllib.parse.urlsplit(get_url(self._site, attack.port))
        assert parts.hostname is not None
        assert parts.port is not None
        received = b""
        try:
            with socket.create_connection((parts.hostname, parts.port), timeout=5) as plain:
                if attack.kind == "junk":
                    received = _exchange(plain, attack.body)
                else:
                    with self._context.wrap_socket(plain, server_hostname=parts.hostname) as secure:
                        received = _exchange(secure, attack.body)
        except OSError:
            return ["closed"]
        codes = [answer[:3].decode(errors="replace") for answer in received.split(b"HTTP/1.1 ")[1:]]
        return codes or ["no answer"]


def _exchange(connection: socket.socket, raw: bytes) -> bytes:
    """In three fragments, then whatever comes back."""
    received = b""
    try:
        for at in range(0, len(raw), len(raw) // 3 + 1):
            connection.sendall(raw[at : at + len(raw) // 3 + 1])
        connection.settimeout(_KEPT_OPEN)
        while len(received) < 200_000 and (piece := connection.recv(65536)):
            received += piece
    except OSError:
        pass
    return received


def get_url(site: Site, port: str) -> str:
    connection: Any = (site.owner.kube if port == "kube" else site.owner.rest)._connection
    return f"https://{connection.host}:{connection.port}"


# The bounds


@contextmanager
def watching(site: Site, outcome: Outcome) -> Iterator[None]:
    """Notes memory and `/livez` while the block runs."""
    command = (sys.executable, "-m", "tests.attacks.fuzz.livez", get_url(site, "kube"), str(site.server.ca))
    watcher = subprocess.Popen(
        (*command, str(site.server.process.pid)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    try:
        yield
    finally:
        said, _ = watcher.communicate(timeout=60)
    try:
        outcome.livez = judge([tuple(one) for one in json.loads(said)])
    except ValueError:
        outcome.lost.append(f"who asks /livez said {said[:200]!r} and ended with {watcher.returncode}")


def read_peak_rss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def prepare(site: Site) -> None:
    """The objects that patches are tried on."""
    for caller in (site.ann, site.owner):
        caller.rest.call("GET", "/api/v1/me")
        for plural in STANDING:
            path = f"{BODIES[plural][2]}/namespaces/{caller.namespace}/{plural}"
            code, answer = caller.kube.call("POST", path, build_object(Random(1), plural, "fuzzed"))
            assert code in (201, 403, 409), (answer, site.server.log[-5000:])


def fuzz(site: Site, seed: int, seconds: float, corpus: Iterable[Attack] = ()) -> Outcome:
    outcome, lock, stop = Outcome(), threading.Lock(), threading.Event()
    prepare(site)
    workers = [_Worker(site, outcome, lock, stop) for _ in range(_WORKERS)]
    end = time.monotonic() + seconds
    corpus = list(corpus)
    attacks = [
        itertools.chain(corpus[number::_WORKERS], make_attacks(f"{seed}:{number}")) for number in range(_WORKERS)
    ]
    jobs = {
        f"{seed}:{number}": functools.partial(worker.run, attacks[number], end) for number, worker in enumerate(workers)
    }
    with watching(site, outcome):
        outcome.lost += run_crew(jobs, stop, seconds + _GRACE)
    for worker in workers:
        if (last := worker.current) is not None:
            what = f"{last.kind} {last.method} {last.target[:200]!a}, {len(last.body)} bytes"
            outcome.lost.append(f"a thread that was lost had begun {what}")
        worker.close()
    outcome.alive = site.server.process.poll() is None
    if outcome.alive:
        outcome.rss_mib = read_peak_rss(site.server.process.pid)
    return outcome
