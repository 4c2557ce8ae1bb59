"""Restarts that make no sense, with real programs under the shipped runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.training import Lab, Object, training

pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

MISSING = "import os, no_such_module\n"
BROKEN = "def train(:\n    pass\n"
SAME_ERROR = """
def load(shard):
    raise ValueError(f"shard {shard} is damaged")

def train():
    load(3)

train()
"""
SAVES_THEN_FAILS = """
from trainmaster import checkpoint

def train():
    path = checkpoint.directory() / f"step-{min(checkpoint.attempt(), 2)}"
    if not path.exists():
        path.write_text("state")
        checkpoint.commit(path, step=checkpoint.attempt())
    raise ValueError("damaged")

train()
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with training(tmp_path_factory.mktemp("budget") / "home") as lab:
        yield lab


def run(lab: Lab, name: str, program: str, runtime: str = "plain") -> tuple[Object, int]:
    """(how the job ended, how often it was restarted)"""
    trainer = {"command": ["python", "-c", program], "numNodes": 1}
    lab.submit({"metadata": {"name": name}, "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer}})
    ended = lab.wait_for_end(name)
    jobset = lab.raw.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/{name}")
    lab.remove(name)
    return ended, int(jobset["status"].get("restarts", 0))


@pytest.mark.parametrize(
    ("name", "program", "error"),
    [("missing", MISSING, "ModuleNotFoundError: No module named 'no_such_module'"), ("broken", BROKEN, "SyntaxError")],
)
def test_a_program_that_cannot_begin_has_one_attempt(lab: Lab, name: str, program: str, error: str) -> None:
    ended, restarts = run(lab, name, program)
    assert (ended["reason"], restarts) == ("NotRestartable", 0)
    assert error in ended["message"]


def test_the_same_error_three_times_running_ends_the_job(lab: Lab) -> None:
    ended, restarts = run(lab, "same", SAME_ERROR)
    assert (ended["reason"], restarts) == ("RepeatedFailure", 2)
    assert "the same error has ended 3 attempts in a row" in ended["message"]
    assert "ValueError: shard 3 is damaged" in ended["message"]


def test_new_checkpoints_are_progress(lab: Lab) -> None:
    """The first three attempts save one each; then the same error ends two more in a row."""
    ended, restarts = run(lab, "saves", SAVES_THEN_FAILS)
    assert (ended["reason"], restarts) == ("RepeatedFailure", 4)
