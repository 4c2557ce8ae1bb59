"""Jobs that hang, on a real server: two ranks with torch, one of which never enters the all-reduce."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Raw
from tests.support.server import clean_environ, command
from tests.support.training import Lab, training
from trainmaster.cli import exits

# Torch needs half a minute to start where other tests run beside it.
pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

PROGRAM = """
import os, sys, time
os.environ.update(RANK=os.environ["PET_NODE_RANK"], WORLD_SIZE=os.environ["PET_NNODES"],
                  MASTER_ADDR=os.environ["PET_MASTER_ADDR"], MASTER_PORT=os.environ["PET_MASTER_PORT"])
import torch
import torch.distributed as dist

def load_batch():
    print("rank 1 loads", "\\x1b[31m", flush=True)
    time.sleep(600)

def train():
    if dist.get_rank() == 1:
        load_batch()
    print("rank 0 waits", flush=True)
    dist.all_reduce(torch.ones(1))

dist.init_process_group("gloo")
dist.barrier()
train()
"""
FAILS = """
import os, time
if os.environ["PET_NODE_RANK"] == "1":
    print("this is the end", flush=True)
    os._exit(7)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with training(tmp_path_factory.mktemp("evidence") / "home") as lab:
        yield lab


def submit(lab: Lab, name: str, program: str = PROGRAM) -> str:
    """The uid of the job."""
    trainer = {"numNodes": 2, "numProcPerNode": 1, "image": "x", "command": ["python", "-c", program]}
    lab.submit({"metadata": {"name": name}, "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}})
    return str(lab.get(name)["metadata"]["uid"])


def wait_until_it_hangs(lab: Lab, name: str) -> None:
    lines = {"rank 0 waits", "rank 1 loads"}
    lab.wait_until(lambda: all(line in lab.read_logs(name) for line in lines), f"both ranks of {name} hang")
    time.sleep(0.5)  # from the line to the call after it


def read(lab: Lab, uid: str, attempt: int = 0) -> dict[str, Any] | None:
    path = lab.home / "history" / "results" / uid / "evidence" / f"{attempt}.json"
    return json.loads(path.read_text()) if path.exists() else None


def run_command(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = command("evidence", *arguments, "--home", str(lab.home))
    return subprocess.run(line, env=clean_environ(), capture_output=True, text=True, timeout=60)


def connect(lab: Lab) -> Raw:
    token = (lab.home / "pki" / "owner.token").read_text().strip()
    return Raw(lab.server.rest_url, ssl.create_default_context(cafile=str(lab.server.ca)), token)


def list_functions(rank: dict[str, Any]) -> list[str]:
    """Of the main threads."""
    threads = [process["stacks"][0] for process in rank["processes"] if process.get("stacks")]
    return [frame["function"] for thread in threads for frame in thread["frames"]]


def check_ranks(found: dict[str, Any]) -> None:
    first, second = found["ranks"]
    assert (first["worker"], second["worker"], first["error"], second["error"]) == (0, 1, "", "")
    waits, loads = list_functions(first), list_functions(second)
    assert "all_reduce" in waits and "train" in waits, found
    assert loads[:2] == ["load_batch", "train"], found
    assert "rank 0 waits" in first["lines"]
    assert first["memory"]["used"] > 1 << 20


def test_a_job_is_looked_at_before_it_is_stopped_at_its_deadline(lab: Lab) -> None:
    uid = submit(lab, "late")
    wait_until_it_hangs(lab, "late")
    lab.patch("late", {"activeDeadlineSeconds": 1})
    assert lab.wait_for_end("late")["reason"] == "DeadlineExceeded"
    lab.wait_until(lambda: not lab.list_pods("late"), "its Pods go")
    found = read(lab, uid)
    assert found is not None and found["reason"] == "DeadlineExceeded"
    check_ranks(found)
    shown = run_command(lab, "late")
    assert shown.returncode == exits.OK, shown.stderr
    assert "rank 1 of node: load_batch (<string>:" in shown.stdout and "all_reduce" in shown.stdout
    assert "\x1b" not in shown.stdout, "what a program printed has no effect on the terminal"
    assert run_command(lab, "late", "--now").returncode == exits.NOT_FOUND
    assert "there is some of 0" in run_command(lab, "late", "--attempt", "5").stderr
    lab.remove("late")
    rest = connect(lab)
    lab.wait_until(lambda: rest.get("/api/v1/history?name=late&deleted=true")["items"], "its record is complete")
    kept = rest.get(f"/api/v1/history/{uid}/evidence?namespace=default")
    assert (kept["name"], kept["attempts"], kept["reason"]) == ("late", [0], "DeadlineExceeded")
    assert run_command(lab, "late").stdout == shown.stdout, "also of a deleted job"
    rest.delete(f"/api/v1/history/{uid}?namespace=default")
    rest.close()
    assert read(lab, uid) is None, "it goes with the record"


def test_a_job_is_looked_at_on_request_and_goes_on(lab: Lab) -> None:
    uid = submit(lab, "asked")
    assert run_command(lab, "asked").returncode == exits.NOT_FOUND
    wait_until_it_hangs(lab, "asked")
    answer = run_command(lab, "asked", "--now", "-o", "json")
    assert answer.returncode == exits.OK, answer.stderr
    found = json.loads(answer.stdout)
    check_ranks(found)
    assert found["reason"] == "Requested" and found == read(lab, uid)
    rest = connect(lab)
    status, again = rest.call("POST", "/api/v1/jobs/asked/evidence?namespace=default")
    assert status == 200, again
    check_ranks(again)
    assert rest.get("/api/v1/jobs/asked/evidence?namespace=default") == again
    rest.close()
    assert all(pod["status"]["phase"] == "Running" for pod in lab.list_pods("asked"))
    lab.remove("asked")


def test_of_a_rank_that_fails_its_end_is_kept(lab: Lab) -> None:
    uid = submit(lab, "fails", FAILS)
    found = lab.wait_until(lambda: read(lab, uid), "its end is kept")
    (rank,) = found["ranks"]
    assert (found["reason"], rank["worker"], rank["end"]["code"], rank["processes"]) == ("Failed", 1, 7, [])
    assert rank["lines"][-1] == "this is the end"
    lab.remove("fails")


def test_a_server_that_is_killed_meanwhile_stops_the_job_all_the_same(tmp_path: Path) -> None:
    with training(tmp_path / "home") as lab:
        _kill_and_stop(lab)


def _kill_and_stop(lab: Lab) -> None:
    uid = submit(lab, "killed")
    wait_until_it_hangs(lab, "killed")
    lab.kill_server()
    usual, lab._environ = lab._environ, {"TRAINMASTER_FAILPOINTS": "node.before_evidence=kill"}
    lab.start_server()
    lab.patch("killed", {"activeDeadlineSeconds": 1})
    assert lab.server.process.wait(60) != 0
    lab._environ = usual
    lab.raw.close()
    lab.start_server()
    lab.wait_until(lambda: not lab.list_pods("killed"), "its Pods go")
    found = read(lab, uid)
    assert found is not None
    check_ranks(found)
    lab.remove("killed")
