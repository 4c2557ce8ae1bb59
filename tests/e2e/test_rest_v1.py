"""/api/v1 of a real server: the examples as they stand, and a stream that goes on through a restart of the server."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.house.tree import ROOT
from tests.support.clients import Raw
from tests.support.server import ServerProcess, clean_environ, start_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

EXAMPLES = ROOT / "examples" / "rest"
CODE = """
import os, time
for step in range({steps}):
    print("rank", os.environ["RANK"], "step", step, flush=True)
    time.sleep({pause})
"""


def connect(server: ServerProcess) -> Raw:
    token = (server.home / "pki" / "owner.token").read_text()
    return Raw(server.rest_url, ssl.create_default_context(cafile=str(server.ca)), token)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("v1") / "home") as server:
        yield server


@pytest.mark.parametrize("example", ["follow.sh", "follow.py"])
def test_the_examples_follow_a_job_to_its_end(server: ServerProcess, tmp_path: Path, example: str) -> None:
    httpx = pytest.importorskip("httpx")
    rest = connect(server)
    name = example.replace(".", "-")
    code, made = rest.call("POST", "/api/v1/tenants", {"name": name, "without_walls": True})
    assert code == 201, made
    rest.close()
    (tmp_path / "train.py").write_text(CODE.format(steps=3, pause=0.05))
    program = ["bash"] if example.endswith(".sh") else [sys.executable]
    target = str(tmp_path if example.endswith(".sh") else tmp_path / "train.py")
    environ = {
        "URL": server.rest_url,
        "CA": str(server.ca),
        "TOKEN": made["token"],
        "PATH": os.environ["PATH"],
        # The example needs it, the server does not.
        "PYTHONPATH": str(Path(httpx.__file__).parent.parent),
    }
    done = subprocess.run(
        [*program, str(EXAMPLES / example), target],
        env=clean_environ(environ),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    for rank in range(2):
        for step in range(3):
            assert done.stdout.count(f"rank {rank} step {step}") == 1, done.stdout
    assert "Complete" in done.stdout


class Stream:
    """The lines of one connection, and the id of the last event."""

    def __init__(self, server: ServerProcess, path: str, last: str = "") -> None:
        token = (server.home / "pki" / "owner.token").read_text()
        parts = urlsplit(server.rest_url)
        context = ssl.create_default_context(cafile=str(server.ca))
        self._connection = HTTPSConnection(parts.netloc, context=context, timeout=60)
        headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": last}
        self._connection.request("GET", path, headers=headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self.last, self.ended = last, False

    def read(self, most: int) -> list[str]:
        """Lines until there are so many, or the stream ends."""
        found: list[str] = []
        fields: dict[str, str] = {}
        while len(found) < most and (raw := self._response.readline()):
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
                continue
            # An event counts when it is whole.
            if "data" in fields:
                found += [line["text"] for line in json.loads(fields["data"]).get("lines", ())]
                self.last, self.ended = fields["id"], fields["event"] == "end"
            fields = {}
        return found

    def close(self) -> None:
        self._connection.close()


def test_a_stream_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    steps, path = 40, "/api/v1/jobs/long/logs/stream?namespace=default"
    body = {"name": "long", "namespace": "default", "user": "ann", "framework": "pytorch", "config": {"num_nodes": 2}}
    with start_server(tmp_path / "home") as server:
        rest = connect(server)
        code, made = rest.call("POST", "/api/v1/jobs", {**body, "code": CODE.format(steps=steps, pause=0.1)})
        assert code == 201, made
        rest.close()
        first = Stream(server, path)
        seen = first.read(10)
        first.close()
    # Its workers go on meanwhile.
    with start_server(tmp_path / "home") as server:
        second = Stream(server, path, first.last)
        seen += second.read(10)
        second.close()
        third = Stream(server, path, second.last)
        seen += third.read(10_000)
        assert third.ended
        third.close()
    assert sorted(seen) == sorted(f"rank {rank} step {step}" for rank in range(2) for step in range(steps))
