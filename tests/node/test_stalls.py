"""Stalls of real programs: some that wait for data, one that writes a checkpoint, one that a person has stopped."""

from __future__ import annotations

import json
import os
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Raw
from tests.support.server import ServerProcess, start_server

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

PATIENCE = 120.0
BOUND = 40
ENVIRON = {
    "TRAINMASTER_NODE_ISOLATION": "plain",
    "TRAINMASTER_STALLS_SECONDS": str(BOUND),
    "TRAINMASTER_STALLS_PHASE_SECONDS": str(BOUND),
}
STEPS = """
import os, sys, time, trainmaster
from trainmaster import checkpoint
print("pid", os.getpid(), flush=True)
open("FOLDER/pid", "w").write(str(os.getpid()))
for step in range(1, 4):
    trainmaster.report(step=step)
    time.sleep(6)
"""
GOES_ON = """
while not os.path.exists("FOLDER/end"):
    step += 1
    trainmaster.report(step=step)
    time.sleep(0.5)
"""
LOADER = (
    STEPS
    + """
def load_batch():
    while not os.path.exists("FOLDER/go"):
        time.sleep(0.1)
load_batch()
"""
    + GOES_ON
)
SAVING = (
    STEPS
    + """
target = checkpoint.directory() / "step-3"
with open(target, "wb") as file:
    while not os.path.exists("FOLDER/go"):
        file.write(b"x" * 1024)
        file.flush()
        time.sleep(1)
"""
    + GOES_ON
)
SILENT = """
import os, time
while not os.path.exists("FOLDER/go"):
    time.sleep(1)
print("on", flush=True)
while not os.path.exists("FOLDER/end"):
    print("on", flush=True)
    time.sleep(1)
"""


class Bench:
    def __init__(self, server: ServerProcess, tmp: Path) -> None:
        token = (server.home / "pki" / "owner.token").read_text().strip()
        tls = ssl.create_default_context(cafile=str(server.ca))
        self.rest, self.api = Raw(server.rest_url, tls, token), Raw(server.url, tls, token)
        self.tmp = tmp

    def start(self, name: str, code: str) -> None:
        folder = self.tmp / name
        folder.mkdir()
        code = code.replace("FOLDER", str(folder))
        self.rest.create("/api/v1/jobs", {"name": name, "namespace": "default", "runtime": "plain", "code": code})

    def wait_for(self, name: str, is_reached: Callable[[Any], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not is_reached(found := self.rest.get(f"/api/v1/jobs/{name}?namespace=default")):
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return found

    def wait_for_step(self, name: str, step: int) -> None:
        def has_step(job: Any) -> bool:
            return bool(job["progress"]) and float(job["progress"]["metrics"].get("current_step", 0)) >= step

        self.wait_for(name, has_step)

    def wait_for_evidence(self, name: str, function: str) -> None:
        """What its ranks did when the stall was noticed."""
        deadline = time.monotonic() + PATIENCE
        while True:
            code, found = self.rest.call("GET", f"/api/v1/jobs/{name}/evidence?namespace=default")
            if code == 200:
                assert found["reason"] == "Stalled" and function in json.dumps(found), found
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    def list_events(self, name: str) -> list[str]:
        found = self.api.get("/api/v1/namespaces/default/events")["items"]
        own = [one for one in found if one["involvedObject"]["name"] == name]
        told = [one for one in own if one["reason"] in ("Stalled", "Advancing")]
        return [one["reason"] for one in sorted(told, key=lambda one: str(one["firstTimestamp"]))]

    def tell(self, name: str, word: str) -> None:
        (self.tmp / name / word).touch()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with start_server(tmp_path / "home", environ=ENVIRON) as server:
        made = Bench(server, tmp_path)
        yield made
        made.rest.close()
        made.api.close()


def test_real_programs_stall_or_are_waited_for(bench: Bench) -> None:
    """All at once, because time has to pass in which those that are waited for would stall."""
    for name, code in (("loader", LOADER), ("saving", SAVING), ("stopped", STEPS + GOES_ON), ("silent", SILENT)):
        bench.start(name, code)
    bench.wait_for_step("stopped", 5)
    pid = int((bench.tmp / "stopped" / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        loader = bench.wait_for("loader", lambda one: one["stalled"])
        assert (loader["state"], loader["reason"], loader["stalled"]["position"]) == ("Running", "Stalled", "3")
        assert "no step has come after step 3" in loader["message"]
        bench.wait_for_evidence("loader", "load_batch")
        silent = bench.wait_for("silent", lambda one: one["stalled"])
        assert "no output, and no use of CPU or GPU" in silent["message"]
        for name in ("loader", "silent"):
            bench.tell(name, "go")
            bench.wait_for(name, lambda one: not one["stalled"])
        time.sleep(1.5 * BOUND)
    finally:
        os.kill(pid, signal.SIGCONT)
    bench.tell("saving", "go")
    bench.wait_for_step("saving", 5)
    for name in ("loader", "saving", "stopped", "silent"):
        bench.tell(name, "end")
        bench.wait_for(name, lambda one: one["state"] == "Complete")
    events = {name: bench.list_events(name) for name in ("loader", "silent", "saving", "stopped")}
    seen = ["Stalled", "Advancing"]
    assert events == {"loader": seen, "silent": seen, "saving": [], "stopped": []}
