"""`trainmaster drain` and `undrain` with real processes: a job saves, the server dies in between, the job continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.shell import PAUSE, Person
from tests.support.server import clean_environ, command

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TRAIN = """
import json, time
from trainmaster import checkpoint

checkpoint.catch_stop()
begin = checkpoint.resume_from()
step = json.loads(begin.read_text()) if begin else 0
print("from", step, flush=True)
while not checkpoint.should_stop():
    step += 1
    time.sleep(0.05)
path = checkpoint.begin(checkpoint.directory() / f"step-{step}.json")
path.write_text(json.dumps(step))
checkpoint.commit(path, step=step)
print("saved", step, flush=True)
"""
STUBBORN = "trap '' TERM; while true; do sleep 0.1; done"


def start_training(person: Person, tmp_path: Path, name: str) -> None:
    code = tmp_path / name
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    environ = clean_environ({"TRAINMASTER_HOME": str(person.home)})
    words = command("run", "--detach", "--name", name, "train.py")
    subprocess.run(words, cwd=code, env=environ, check=True, capture_output=True, timeout=90)


def wait_for_log(person: Person, name: str, text: str) -> str:
    for _ in range(300):
        said = person.trainmaster("logs", name).out
        if text in said:
            return said
        time.sleep(PAUSE)
    raise AssertionError(f"{name} never said {text!r}: {said}")


def read_step(saved: Path) -> int:
    step = json.loads(saved.read_text())
    assert isinstance(step, int) and step > 0
    return step


def kill_server(person: Person) -> None:
    os.kill(person.trainmaster("status", "-o", "json").json["pid"], signal.SIGKILL)
    while person.trainmaster("status").code != 3:
        time.sleep(PAUSE)


def is_suspended(person: Person, name: str) -> bool:
    return bool(json.loads(person.kubectl("get", "trainjob", name, "-o", "json"))["spec"].get("suspend"))


def test_a_job_saves_outlasts_a_crash_and_continues_at_its_checkpoint(person: Person, tmp_path: Path) -> None:
    person.must("up", "--detach")
    start_training(person, tmp_path, "trained")
    wait_for_log(person, "trained", "from 0")
    said = person.must("drain", "--reason", "new kernel", "--timeout", "60s")
    assert "default/trained: stopped; checkpoint step-" in said and "before it was asked" not in said, said
    assert "`trainmaster undrain` resumes default/trained" in said
    assert person.pods("trained") == []
    assert "Ready,Drained" in person.must("nodes")
    start_training(person, tmp_path, "late")
    kill_server(person)
    person.must("up", "--detach")
    again = person.must("drain", "--timeout", "60s")
    assert "(new kernel)" in again and "default/trained: stopped; checkpoint" in again, again
    assert "the machine is drained since" in person.must("explain", "late")
    assert not any(pod["spec"].get("nodeName") for pod in person.pods("late"))
    (saved,) = (person.home / "history" / "results").glob("*/checkpoints/step-*.json")
    assert "resumed: default/trained" in person.must("undrain")
    wait_for_log(person, "trained", f"from {read_step(saved)}\n")
    wait_for_log(person, "late", "from 0")
    assert "is not drained" in person.must("undrain")


def test_a_job_that_does_not_stop_in_time_is_named_and_the_machine_stays_drained(person: Person) -> None:
    person.must("up", "--detach")
    person.train("stubborn", STUBBORN)
    answer = person.trainmaster("drain", "--timeout", "2s")
    assert answer.code == 6 and "still running after 2s: default/stubborn (1 Pod)" in answer.err
    assert is_suspended(person, "stubborn")
    assert "it has no checkpoint, so it begins again" in person.must("drain", "--timeout", "1m")


def test_a_command_that_is_killed_leaves_a_drain_that_the_server_carries_out(person: Person) -> None:
    person.must("up", "--detach")
    person.train("sleeper", "sleep 600")
    person.must("drain", "--no-wait")
    while person.pods("sleeper"):
        time.sleep(PAUSE)
    assert is_suspended(person, "sleeper")
    person.kubectl("uncordon", "local")
    while [pod["status"]["phase"] for pod in person.pods("sleeper")] != ["Running"]:
        time.sleep(PAUSE)
    person.kubectl("cordon", "local")
    assert "Ready,SchedulingDisabled" in person.must("nodes")
    assert not is_suspended(person, "sleeper")


def test_the_program_of_the_unit_lets_jobs_save_only_while_systemd_shuts_down(person: Person, tmp_path: Path) -> None:
    """systemctl is a stand-in: a machine that runs tests cannot be rebooted."""
    tools = tmp_path / "bin"
    tools.mkdir()
    systemctl = tools / "systemctl"
    systemctl.write_text('#!/bin/sh\ncat "$(dirname "$0")/state"\nexit 1\n')
    systemctl.chmod(0o755)
    state = tools / "state"
    environ = {"PATH": f"{tools}:{os.environ['PATH']}"}
    stopping = ("service", "stopping", "--user", "--save-seconds", "60")
    person.must("up", "--detach")
    start_training(person, tmp_path, "trained")
    wait_for_log(person, "trained", "from 0")
    state.write_text("running\n")
    answer = person.trainmaster(*stopping, environ=environ)
    assert answer.code == 0 and "the machine does not shut down" in answer.out
    assert len(person.pods("trained")) == 1
    state.write_text("stopping\n")
    answer = person.trainmaster(*stopping, environ=environ)
    assert answer.code == 0 and "checkpoint step-" in answer.out, answer
    assert person.pods("trained") == []
    person.must("down")
    assert person.trainmaster(*stopping, environ=environ).code == 0
    (saved,) = (person.home / "history" / "results").glob("*/checkpoints/step-*.json")
    person.must("up", "--detach")
    wait_for_log(person, "trained", f"from {read_step(saved)}\n")
    assert "Drained" not in person.must("nodes")
