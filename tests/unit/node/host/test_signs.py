"""What a machine sees of its jobs: output, use, files of checkpoints, stopped processes."""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from trainmaster.api.lifecycle.stalls import SAVING, STOPPED, JobSign
from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.usage import GpuUsage, PodMeasurement
from trainmaster.kit.clock import format_time
from trainmaster.node.disk.results import Results
from trainmaster.node.host.signs import JobLook, JobSigns, SignReader
from trainmaster.testing.virtual import VirtualClock

pytestmark = pytest.mark.unit

IDLE = PodMeasurement(0.0, 0)


class Seen:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.signs = JobSigns(self.clock)

    def note(self, look: JobLook, times: int = 1) -> JobSign:
        for _ in range(times):
            self.clock.advance(10)
            self.signs.note("u", look)
        found = self.signs.find("u")
        assert found is not None
        return found


def test_a_job_is_not_idle_before_it_was_looked_at_twice() -> None:
    seen = Seen()
    assert seen.signs.find("u") is None
    assert seen.note(JobLook()) == JobSign(None)
    assert seen.note(JobLook()) == JobSign(10.0)
    assert seen.note(JobLook(), times=5) == JobSign(60.0)


@pytest.mark.parametrize("look", [JobLook(is_busy=True), JobLook(output=2)])
def test_output_and_use_end_it(look: JobLook) -> None:
    seen = Seen()
    seen.note(JobLook(output=1), times=10)
    assert seen.note(look) == JobSign(0.0)
    assert seen.note(JobLook(output=look.output or 1), times=2).idle_seconds == 20


def test_a_job_that_is_not_looked_at_any_more_does_not_become_idle() -> None:
    seen = Seen()
    seen.note(JobLook(), times=3)
    seen.clock.advance(1000)
    assert seen.signs.find("u") == JobSign(20.0)
    seen.signs.keep([])
    assert seen.signs.find("u") is None


def test_a_checkpoint_is_being_written_until_a_minute_after_the_last_change() -> None:
    seen = Seen()
    seen.note(JobLook(files=1))
    assert seen.note(JobLook(files=2)) == JobSign(0.0, 0.0, SAVING)
    assert seen.note(JobLook(files=2), times=5).excuse == SAVING
    assert seen.note(JobLook(files=2)).excuse == ""
    assert seen.note(JobLook(files=2), times=3).excused_seconds == 30


def test_files_that_were_not_looked_at_say_nothing() -> None:
    seen = Seen()
    seen.note(JobLook(files=1, output=1))
    seen.note(JobLook())
    assert seen.note(JobLook(files=2, output=2)) == JobSign(20.0)


def test_stopped_processes_are_an_excuse_while_they_are_stopped() -> None:
    seen = Seen()
    assert seen.signs.count_since_stop("u") == math.inf
    seen.note(JobLook())
    assert seen.signs.count_since_stop("u") == math.inf
    assert seen.note(JobLook(is_stopped=True)) == JobSign(10.0, 0.0, STOPPED)
    assert seen.note(JobLook(), times=4) == JobSign(50.0, 40.0)
    assert seen.signs.count_since_stop("u") == 40


# What is read


class Rank(NamedTuple):
    pod: Pod
    job: TrainJob
    use: PodMeasurement | None


class Machine:
    """One job with one Pod, whose files lie below a directory."""

    def __init__(self, path: Path) -> None:
        self.clock = VirtualClock()
        self.signs = JobSigns(self.clock)
        self.logs, self.results = path / "logs", path / "results"
        (self.logs / "node").mkdir(parents=True)
        self.checkpoints, self.outputs = (self.results / "u" / name for name in ("checkpoints", "outputs"))
        for folder in (self.checkpoints, self.outputs):
            folder.mkdir(parents=True)
        self.stopped = False
        self.reader = SignReader(
            self.signs, Results(self.results), lambda uid: str(self.logs), lambda uid: self.stopped
        )
        self.job: Object = {"metadata": {"uid": "u"}}

    def look(self, use: PodMeasurement | None = IDLE, *, advances: bool = False) -> JobSign:
        self.clock.advance(10)
        if advances:
            pace = {"position": "7", "furthest": "7", "advancedAt": format_time(self.clock.now())}
            self.job["status"] = {"pace": pace}
        asyncio.run(self.reader.look([Rank(Pod({"metadata": {"uid": "p"}}), TrainJob(self.job), use)]))
        found = self.signs.find("u")
        assert found is not None
        return found


def test_a_line_in_a_log_is_output(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.look()
    assert machine.look().idle_seconds == 10
    (machine.logs / "node" / "0.log").write_text("a line\n")
    assert machine.look().idle_seconds == 0


@pytest.mark.parametrize(
    ("use", "idle"),
    [
        (PodMeasurement(0.002, 0), 20.0),
        (PodMeasurement(0.02, 0), 0.0),
        (PodMeasurement(0.0, 0, (GpuUsage(0, "a", 0),)), 20.0),
        (PodMeasurement(0.0, 0, (GpuUsage(0, "a", 30),)), 0.0),
        (None, 0.0),
    ],
)
def test_a_little_use_is_idle_and_what_was_not_measured_is_not(
    tmp_path: Path, use: PodMeasurement | None, idle: float
) -> None:
    machine = Machine(tmp_path)
    machine.look()
    machine.look()
    assert machine.look(use).idle_seconds == idle


@pytest.mark.parametrize(
    "name",
    ["checkpoints/step-5/rank0.pt", "checkpoints/model.pt.partial", "outputs/checkpoint-500/model.safetensors"],
)
def test_a_checkpoint_that_is_written_is_seen_wherever_it_is(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path)
    target = machine.results / "u" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"1")
    machine.look()
    assert machine.look().excuse == ""
    with target.open("ab") as file:
        file.write(b"more")
    assert machine.look().excuse == SAVING


def test_other_outputs_are_no_checkpoint(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.look()
    (machine.outputs / "metrics.csv").write_text("1")
    assert machine.look().excuse == ""


def test_links_in_a_checkpoint_directory_are_not_followed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", machine.checkpoints / "link")
    machine.look()
    (tmp_path / "elsewhere" / "file").write_text("1")
    assert machine.look().excuse == ""


def test_files_of_a_job_that_advances_are_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.look(advances=True)
    (machine.checkpoints / "a.pt").write_bytes(b"1")
    assert machine.look(advances=True).excuse == ""
    # It stands still from here on, longer than reports are apart.
    for _ in range(5):
        machine.look()
    assert machine.look().excuse == ""
    (machine.checkpoints / "a.pt").write_bytes(b"22")
    assert machine.look().excuse == SAVING


def test_stopped_processes_are_seen(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.look()
    machine.stopped = True
    assert machine.look().excuse == STOPPED
