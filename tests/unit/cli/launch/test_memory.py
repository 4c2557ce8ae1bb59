"""The memory of a job that requests none: what is expected of it, and when `run` warns and asks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.unit.jobs.compose.test_compose import load
from trainmaster.api.meta import Object
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch import memory
from trainmaster.cli.launch.memory import MemoryEstimate
from trainmaster.history.archive import Archive
from trainmaster.history.record import JobRecord
from trainmaster.jobs.compose.request import JobRequest

pytestmark = pytest.mark.unit

GIB = 1 << 30
TORCH = memory.get_usual("torch")


class Typed(io.StringIO):
    """A terminal on which this was typed."""

    def isatty(self) -> bool:
        return True


def put(history: Path, name: str, words: list[str], sizes: list[int], finished: str) -> None:
    pods: list[Object] = [{"uid": f"{name}-{index}", "memory": size} for index, size in enumerate(sizes)]
    trainer = {"command": words[:1], "args": words[1:]}
    document = {"trainjob": {"metadata": {"name": name}, "spec": {"trainer": trainer}}, "pods": pods}
    archive = Archive.open(history)
    archive.put([JobRecord(name, "default", name, "torch-distributed", "Complete", "", finished, document=document)])
    archive.close()


def test_the_size_is_that_of_the_newest_job_with_the_same_program(tmp_path: Path) -> None:
    assert memory.find_learned(tmp_path, ["torchrun", "train.py"]) is None, "there is no archive yet"
    put(tmp_path, "old", ["torchrun", "train.py", "--lr", "1"], [5 * GIB], "2026-01-01T00:00:00Z")
    put(tmp_path, "new", ["torchrun", "train.py", "--lr", "2"], [2 * GIB, 3 * GIB], "2026-01-02T00:00:00Z")
    put(tmp_path, "other", ["torchrun", "eval.py"], [9 * GIB], "2026-01-03T00:00:00Z")
    put(tmp_path, "unknown", ["torchrun", "train.py"], [], "2026-01-04T00:00:00Z")
    assert memory.find_learned(tmp_path, ["torchrun", "train.py"]) == MemoryEstimate(3 * GIB, "as in new")
    assert memory.find_learned(tmp_path, ["python", "train.py"]) is None


@pytest.mark.parametrize(
    ("request_", "estimate", "want"),
    [
        (JobRequest("j", nodes=20), TORCH, ""),
        (JobRequest("j", nodes=100), TORCH, "100 nodes will probably use 100.0 GiB of memory, 1.0 GiB per process"),
        (JobRequest("j", nodes=100), TORCH, "(usual for torch), and 20.0 GiB are free: use --nodes 20 or less, or "),
        (JobRequest("j", nodes=100), memory.get_usual(""), ""),
        (JobRequest("j", nodes=4, processes="6"), TORCH, "4 nodes with 6 processes each will probably use 24.0 GiB"),
        (JobRequest("j", nodes=4, processes="6"), TORCH, "use --nodes 3 or less"),
        (JobRequest("j", nodes=2), MemoryEstimate(30 * GIB, "as in j"), "20.0 GiB are free: request the real amount"),
    ],
)
def test_a_job_that_will_probably_not_fit_is_explained(
    request_: JobRequest, estimate: MemoryEstimate, want: str
) -> None:
    text = memory.explain(request_, estimate, 20 * GIB)
    assert want in text if want else not text


@pytest.mark.parametrize(
    ("typed", "yes", "submits"),
    [(None, False, True), ("yes\n", False, True), ("\n", False, False), ("\n", True, True), ("", False, False)],
    ids=["no terminal", "yes", "no", "--yes", "the end of input"],
)
def test_it_asks_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, typed: str | None, yes: bool, submits: bool
) -> None:
    monkeypatch.setattr(memory, "read_free_memory", lambda: GIB)
    said = io.StringIO()
    context = CommandContext({}, io.StringIO(), said, io.StringIO() if typed is None else Typed(typed))
    asked = JobRequest("j", nodes=100)
    if submits:
        memory.confirm_memory(context, asked, TORCH, yes=yes)
    else:
        with pytest.raises(exits.Failure, match="not submitted") as caught:
            memory.confirm_memory(context, asked, TORCH, yes=yes)
        assert caught.value.code == exits.RUN_USAGE
    assert "warning: 100 nodes will probably use 100.0 GiB" in said.getvalue()
    assert ("Submit it anyway?" in said.getvalue()) is (typed is not None and not yes)


def test_what_the_scheduler_knows_is_not_estimated() -> None:
    runtime = load("torch-distributed")
    assert not memory.has_request(JobRequest("j", resources={"cpu": "1"}), runtime)
    assert memory.has_request(JobRequest("j", resources={"memory": "1Gi"}), runtime)
    container = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    container["containers"][0]["resources"] = {"limits": {"memory": "2Gi"}}
    assert memory.has_request(JobRequest("j"), runtime)
