"""`trainmaster operator` as a process that a test starts with flags, and asks how it is."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kube.cluster import KubeCluster
from tests.kube.processes import free_port
from tests.support.server import clean_environ

SECONDS = 60.0


@dataclass
class Run:
    """`trainmaster operator` as a process."""

    process: subprocess.Popen[bytes]
    log: Path
    health_port: int

    def read(self) -> str:
        return self.log.read_text()

    def wait_for(self, *words: str) -> str:
        """The first line of the log with all of these words."""
        end = time.monotonic() + SECONDS
        while True:
            found = [line for line in self.read().splitlines() if all(word in line for word in words)]
            if found:
                return found[0]
            assert time.monotonic() < end and self.process.poll() is None, (words, self.read()[-3000:])
            time.sleep(0.1)

    def wait(self) -> int:
        return self.process.wait(SECONDS)

    def ask_ready(self) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz?verbose")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def check_said(self, reason: str, words: str) -> None:
        """Once, in one line; and `/readyz` says the same."""
        line = self.wait_for(f"reason={reason}", words)
        self.wait_until_unready(words)
        assert self.read().count(f"action=operator.trouble reason={reason}") == 1, self.read()
        assert "Traceback" not in self.read() and " warning " in line

    def wait_until_unready(self, words: str) -> None:
        end = time.monotonic() + SECONDS
        while True:
            code, text = self.ask_ready()
            if code == 503 and words in text:
                return
            assert time.monotonic() < end, (code, text)
            time.sleep(0.1)


@contextmanager
def operating(kubeconfig: Path, log: Path, *flags: str) -> Iterator[Run]:
    port = free_port()
    command = [sys.executable, "-m", "trainmaster.cli", "operator", "--kubeconfig", str(kubeconfig)]
    with log.open("wb") as output:
        more = () if "--health-port" in flags else ("--health-port", str(port))
        process = subprocess.Popen([*command, *more, *flags], stdout=output, stderr=output, env=clean_environ({}))
    try:
        yield Run(process, log, port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        finally:
            process.kill()
            process.wait()


def write_kubeconfig(cluster: KubeCluster, path: Path, user: dict[str, str]) -> Path:
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = user
    path.write_text(json.dumps(config))
    return path
