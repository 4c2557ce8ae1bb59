"""The examples with the real frameworks, two nodes each: they meet, they train, the loss falls, nothing is left.

`make heavy` runs what takes minutes: FSDP on four nodes, elastic restart, DeepSpeed (`heavy_frameworks.py`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.training import Lab, training
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main

# Torch needs half a minute to start where other tests run beside it.
pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

LOSS = re.compile(r"step +\d+ loss ([0-9.]+)")


@pytest.fixture(scope="module", params=["auto", "plain"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """At the level that the server chooses, and at the one that every machine has."""
    folder = tmp_path_factory.mktemp(f"training-{request.param}")
    with training(folder / "home", TRAINMASTER_NODE_ISOLATION=request.param) as lab:
        yield lab


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with training(tmp_path_factory.mktemp("training-mpi") / "home") as lab:
        yield lab


def check(lab: Lab, example: str, joined: list[str]) -> None:
    """It completes, everybody was there, the loss fell, and it goes without a trace."""
    lab.start(example)
    ended = lab.wait_for_end(example)
    text = lab.read_logs(example)
    assert ended["type"] == "Complete", f"{ended['message']}\n{text}"
    assert [line for line in joined if line not in text] == []
    losses = [float(found) for found in LOSS.findall(text)]
    assert len(losses) > 5 and losses[-1] < losses[0] / 2, losses
    lab.remove(example)


def test_torch_trains_with_torchrun_on_two_nodes(lab: Lab) -> None:
    check(lab, "torch-ddp", ["rank 0 of 2 has joined", "rank 1 of 2 has joined"])


FAILS = """cat > train.py <<'PROGRAM'
import torch
def load():
    return torch.load("/does/not/exist.pt")
load()
PROGRAM
torchrun train.py"""
ERROR = "FileNotFoundError: [Errno 2] No such file or directory: '/does/not/exist.pt'"


def test_a_program_that_fails_inside_torch_is_understood_from_every_command(sandboxes: Lab) -> None:
    """The exception is the program's, with its file and line, although torchrun prints more after it than is kept."""
    path = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
    runtime = sandboxes.raw.get(f"{path}/torch-distributed")
    runtime["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] = 0
    sandboxes.raw.create(path, {**runtime, "metadata": {"name": "no-restart"}})
    trainer = {"numNodes": 2, "command": ["bash", "-c", FAILS]}
    sandboxes.submit({"metadata": {"name": "lost"}, "spec": {"runtimeRef": {"name": "no-restart"}, "trainer": trainer}})
    ended = sandboxes.wait_for_end("lost")
    message = sandboxes.get("lost")["status"]["failure"]["message"].splitlines()
    assert message[0] == "Traceback (most recent call last):" and message[-1] == ERROR, message
    assert ended["message"].endswith(ERROR)
    for command in (("list",), ("describe", "lost"), ("explain", "lost"), ("history", "get", "lost")):
        text = ask(sandboxes, *command)
        assert re.search(rf"rank [01]: {re.escape(ERROR)}, at \S*train.py:3 in load\n", text), (command, text)
    assert "ChildFailedError" in ask(sandboxes, "logs", "lost", "--raw")
    assert "ChildFailedError" not in ask(sandboxes, "logs", "lost")
    sandboxes.remove("lost")


def ask(lab: Lab, *command: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    assert main((*command, "--home", str(lab.home)), CommandContext({}, out, io.StringIO())) == 0
    return out.getvalue()


def test_jax_spreads_one_array_over_two_processes(lab: Lab) -> None:
    check(lab, "jax", ["process 0 of 2 sees 2 devices", "process 1 of 2 sees 2 devices"])


def test_xgboost_workers_meet_at_the_tracker(lab: Lab) -> None:
    check(lab, "xgboost", ["worker 0 of 2 has joined", "worker 1 of 2 has joined"])


def test_the_starter_project_trains_with_torch_by_its_own_manifest(sandboxes: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "starter"
    assert main(("init", "--torch", str(folder)), CommandContext({}, io.StringIO(), io.StringIO())) == 0
    sandboxes.submit(yaml.safe_load((folder / "trainjob.yaml").read_text()))
    ended = sandboxes.wait_for_end("starter")
    text = sandboxes.read_logs("starter")
    assert ended["type"] == "Complete", f"{ended['message']}\n{text}"
    losses = [float(found) for found in LOSS.findall(text)]
    assert len(losses) > 5 and losses[-1] < losses[0] / 2, losses
    assert "rank 1 of 2 on cpu" in text or "rank 1 of 2 on cuda" in text
    sandboxes.remove("starter")


def test_mpirun_starts_its_ranks_on_the_pods_of_the_job(sandboxes: Lab) -> None:
    """Its Pods have a user of their own, which the plain level cannot give an environment in somebody's home."""
    check(sandboxes, "mpi", ["rank 0 of 2 on mpi-launcher-0-0", "rank 1 of 2 on mpi-node-0-0"])
