"""`kill -9` of the server while the page's stream follows a log of a thousand numbered lines a second."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.clients import Raw
from tests.support.server import ServerProcess, launch_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LINES = 12_000
KILLS = 3
PATIENCE = 120.0
PRINTER = f"""
import time
began = time.monotonic()
for number in range({LINES}):
    print(number)
    if number % 100 == 99:
        time.sleep(max(0.0, began + number / 1000 - time.monotonic()))
"""


class Page:
    """Follows until the job is over, as a page does: it comes again with its last id, whatever happens."""

    def __init__(self, server: ServerProcess, job: str) -> None:
        self.parts = urlsplit(server.rest_url)
        self.context = ssl.create_default_context(cafile=str(server.ca))
        self.token = (server.home / "pki" / "owner.token").read_text()
        self.path = f"/api/v1/stream?topic=log:default/{job}&topic=jobs&topic=job:default/{job}"
        self.job = job
        self.numbers: list[int] = []
        self.states: list[str] = []
        self.last_id = ""
        self.breaks = 0
        self.deadline = time.monotonic() + PATIENCE

    def follow(self) -> None:
        while time.monotonic() < self.deadline:
            try:
                for event in self._read():
                    if self._take(**event):
                        return
            except (OSError, http.client.HTTPException):
                pass
            self.breaks += 1
            time.sleep(0.05)

    def _read(self) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPSConnection(
            self.parts.hostname or "", self.parts.port, timeout=20, context=self.context
        )
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Last-Event-ID": self.last_id}
            connection.request("GET", self.path, headers={name: value for name, value in headers.items() if value})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            fields: dict[str, str] = {}
            while line := answer.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif fields:
                    if "data" in fields:
                        yield {"kind": fields["event"], "data": json.loads(fields["data"]), "id": fields["id"]}
                    fields = {}
        finally:
            connection.close()

    def _take(self, kind: str, data: Any, id: str) -> bool:
        """Whether it is the end."""
        self.last_id = id
        if kind == "log":
            self.numbers += [int(line["text"]) for line in data["lines"] if line["text"].isdigit()]
        elif kind == "row":
            self.states.append(data["row"][7])
        return kind == "end"


def test_every_line_comes_once_through_kills_of_the_server(tmp_path: Path) -> None:
    server = launch_server(tmp_path / "home")
    try:
        owner = Raw(
            server.rest_url,
            ssl.create_default_context(cafile=str(server.ca)),
            (server.home / "pki" / "owner.token").read_text(),
        )
        body = {"namespace": "default", "user": "ann", "framework": "pytorch", "code": PRINTER, "name": "numbers"}
        code, made = owner.call("POST", "/api/v1/jobs", body)
        assert code == 201, made
        owner.close()
        page = Page(server, "numbers")
        thread = threading.Thread(target=page.follow, daemon=True)
        thread.start()
        for turn in range(KILLS):
            while len(page.numbers) < (turn + 1) * LINES // (KILLS + 2) and time.monotonic() < page.deadline:
                time.sleep(0.01)
            server.kill()
            server = launch_server(tmp_path / "home")
        thread.join(PATIENCE)
        assert page.numbers == list(range(LINES))
        assert page.breaks >= KILLS
    finally:
        server.kill()
