"""What a real job uses is measured, and is still known after the server was restarted and after the job has ended."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Raw
from tests.support.server import ServerProcess, start_server

pytestmark = pytest.mark.node

PATIENCE = 90.0
MEBI = 1 << 20
CODE = """
import os, time, trainmaster
ballast = b"x" * (64 << 20)
trainmaster.report(step=1, total=2, loss=0.5, nothing=float("nan"))
while not os.path.exists("STOP"):
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    time.sleep(0.05)
"""


def connect(server: ServerProcess) -> Raw:
    token = (server.home / "pki" / "owner.token").read_text().strip()
    return Raw(server.rest_url, ssl.create_default_context(cafile=str(server.ca)), token)


def wait_for(rest: Raw, path: str, is_reached: Callable[[Any], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not is_reached(found := rest.get(f"/api/v1/{path}")):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def test_use_is_measured_and_outlives_the_server_and_the_job(tmp_path: Path) -> None:
    home, stop = tmp_path / "home", tmp_path / "stop"
    stop.mkdir()
    code = CODE.replace("STOP", str(stop / "now"))
    with start_server(home, environ={"TRAINMASTER_NODE_ISOLATION": "plain"}) as server:
        rest = connect(server)
        body = {"name": "busy", "namespace": "default", "runtime": "plain", "code": code}
        uid = rest.create("/api/v1/jobs", body)["uid"]
        path = "jobs/busy/usage?namespace=default"
        now = wait_for(rest, f"{path}&range=now", lambda one: one["now"] and one["now"][0]["cpu"])
        assert now["now"][0]["memory"] > 64 * MEBI and now["times"] == []
        usage = wait_for(rest, path, lambda one: one["times"])
        assert usage["ranks"][0]["memory"][0] > 64 * MEBI
        series = wait_for(rest, "jobs/busy/series?namespace=default", lambda one: one["times"])
        assert {one["name"]: one["values"][0] for one in series["metrics"]} == {"loss": 0.5, "nothing": None}
        rest.close()
    with start_server(home, environ={"TRAINMASTER_NODE_ISOLATION": "plain"}) as server:
        rest = connect(server)
        again = rest.get(f"/api/v1/{path}")
        assert again["times"][: len(usage["times"])] == usage["times"]
        (stop / "now").touch()
        wait_for(rest, "jobs/busy?namespace=default", lambda one: one["state"] == "Complete")
        rest.delete("/api/v1/jobs/busy?namespace=default")
        wait_for(rest, "history?name=busy&deleted=true", lambda one: one["items"])
        kept = rest.get(f"/api/v1/history/{uid}/usage?namespace=default")
        assert kept["times"][0] == usage["times"][0] and kept["now"] == []
        assert rest.get(f"/api/v1/history/{uid}/series?namespace=default")["times"] == series["times"]
        rest.close()
