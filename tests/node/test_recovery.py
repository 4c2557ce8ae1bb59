"""Jobs that lose ranks, their control plane, or are told to stop: they go on from the last complete checkpoint.

The program is the example `examples/torch-checkpoint/train.py`, run by a wrapper that adds the accident: real
processes, really killed, at a known place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.training import Lab, training
from trainmaster.api.labels import KEEP_CHECKPOINTS, RESUME_FROM

# Torch needs half a minute to start where other tests run beside it.
pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]

# Without torchrun, so that the Pod ends as the rank does.
LAUNCH = """
export RANK=$PET_NODE_RANK WORLD_SIZE=$PET_NNODES MASTER_ADDR=$PET_MASTER_ADDR MASTER_PORT=$PET_MASTER_PORT
exec python /code/accident.py
"""

KILLED_TWICE = """
import io, os, signal
import torch, train
from trainmaster import checkpoint

whole_save, whole_advance = torch.save, train.Training.advance

def save(state, path):
    if checkpoint.attempt() == 0 and state["step"] == 10:
        content = io.BytesIO()
        whole_save(state, content)
        path.write_bytes(content.getvalue()[:100])
        os.kill(os.getpid(), signal.SIGKILL)
    whole_save(state, path)

def advance(training):
    loss = whole_advance(training)
    if checkpoint.attempt() == 1 and training.step == 12 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return loss

torch.save, train.Training.advance = save, advance
train.main()
"""

ALWAYS_FAILS = """
import os, traceback
import train

whole_advance = train.Training.advance

def advance(training):
    if training.step == 3 and os.environ["RANK"] == "1":
        raise RuntimeError("the gradients are not numbers")
    return whole_advance(training)

train.Training.advance = advance
try:
    train.main()
except RuntimeError:
    traceback.print_exc()
    os._exit(7)  # torch sometimes aborts when an interpreter ends in the middle
"""

WAITS_AT_GATES = """
import os, time
import train
from trainmaster import checkpoint

whole_report = train.report

def report(step, loss):
    whole_report(step, loss)
    gate = f"{os.environ['TRAINMASTER_OUTPUT_DIR']}/go-{step}"
    while step in (4, 13) and not os.path.exists(gate) and not checkpoint.should_stop():
        time.sleep(0.02)

train.report = report
train.main()
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with training(tmp_path_factory.mktemp("recovery") / "home") as lab:
        yield lab


def start(
    lab: Lab, name: str, accident: str, runtime: str = "", annotations: dict[str, str] | None = None, **env: str
) -> None:
    variables = [{"name": key, "value": value} for key, value in {"OMP_NUM_THREADS": "1", **env}.items()]
    trainer = {"command": ["bash", "-c", LAUNCH], "env": variables}
    files = {"accident.py": accident}
    lab.start("torch-checkpoint", name=name, runtime=runtime, files=files, trainer=trainer, annotations=annotations)


def list_steps(losses: list[dict[str, Any]], attempt: int) -> list[int]:
    return [entry["step"] for entry in losses if entry["attempt"] == attempt]


def count_restarts(lab: Lab, name: str) -> int:
    jobset = lab.raw.get(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/{name}")
    return int(jobset["status"].get("restarts", 0))


def test_killed_ranks_restart_the_gang_and_the_loss_goes_on_from_the_last_complete_checkpoint(lab: Lab) -> None:
    start(lab, "killed", KILLED_TWICE)
    ended = lab.wait_for_end("killed")
    assert ended["type"] == "Complete", ended["message"]
    assert count_restarts(lab, "killed") == 2
    losses = lab.read_losses("killed")
    assert list_steps(losses, 0) == [*range(1, 11)]
    again = list_steps(losses, 1)
    assert again[0] == 6, "the checkpoint of step 10 was cut short, that of step 5 is the last complete one"
    assert again == [*range(6, again[-1] + 1)] and again[-1] in (11, 12)
    assert list_steps(losses, 2) == [*range(11, 21)]
    known: dict[int, float] = {}
    for entry in losses:
        assert entry["loss"] == pytest.approx(known.setdefault(entry["step"], entry["loss"]), rel=1e-4), entry
    assert known[20] < known[1] / 2
    lab.remove("killed")


def test_without_checkpoints_it_begins_again_and_after_the_budget_the_verdict_has_the_traceback(lab: Lab) -> None:
    path = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
    runtime = lab.raw.get(f"{path}/torch-distributed")
    runtime["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] = 1
    lab.raw.create(path, {**runtime, "metadata": {"name": "one-restart"}})
    start(lab, "doomed", ALWAYS_FAILS, "one-restart", SAVE_EVERY="0")
    ended = lab.wait_for_end("doomed")
    assert ended["type"] == "Failed"
    losses = lab.read_losses("doomed")
    assert [list_steps(losses, attempt) for attempt in (0, 1)] == [[1, 2, 3], [1, 2, 3]]
    assert "first failure: rank 1 of job doomed-node-0" in ended["message"]
    assert "ended with exit code 7; its last words:" in ended["message"]
    assert "in advance" in ended["message"]
    assert "RuntimeError: the gradients are not numbers" in ended["message"]
    lab.remove("doomed")


def test_a_job_outlives_its_control_plane_saves_when_it_is_suspended_and_goes_on_when_resumed(tmp_path: Path) -> None:
    with training(tmp_path / "home") as lab:
        check_steady(lab)


def check_steady(lab: Lab) -> None:
    start(lab, "steady", WAITS_AT_GATES)
    lab.wait_for_step("steady", 4)
    results = lab.get_results("steady")
    before = {pod["metadata"]["uid"] for pod in lab.list_pods("steady")}
    lab.kill_server()
    (results / "outputs" / "go-4").touch()
    lab.wait_until(lambda: '"step": 13' in (results / "outputs" / "loss.jsonl").read_text(), "it trains on alone")
    lab.start_server()
    pods = lab.list_pods("steady")
    assert {pod["metadata"]["uid"] for pod in pods} == before
    assert [pod["status"]["phase"] for pod in pods] == ["Running", "Running"]
    assert count_restarts(lab, "steady") == 0
    lab.patch("steady", {"suspend": True})
    lab.wait_until(lambda: not lab.list_pods("steady"), "the Pods go")
    assert [path.name for path in sorted((results / "checkpoints").iterdir())] == [
        "step-000005", "step-000010", "step-000013",
    ]  # fmt: skip
    lab.patch("steady", {"suspend": False})
    ended = lab.wait_for_end("steady")
    assert ended["type"] == "Complete", ended["message"]
    losses = lab.read_losses("steady")
    # Not the number of restarts: gloo aborts now and then when a finished process ends, and the gang comes back for it.
    assert list_steps(losses, 0) == [*range(1, 21)], "every step once, over a crash and a pause"
    lab.remove("steady")


STUBBORN = """
exec 9>>"$TRAINMASTER_CHECKPOINT_DIR/seat-$JOB_COMPLETION_INDEX"
flock -n 9 || { touch "$TRAINMASTER_OUTPUT_DIR/overlap"; exit 9; }
[ "$TRAINMASTER_ATTEMPT" = 1 ] && exit 0
if [ "$JOB_COMPLETION_INDEX" = 1 ]; then
    while [ ! -e "$TRAINMASTER_OUTPUT_DIR/deaf" ]; do sleep 0.02; done
    exit 3
fi
trap '' TERM
touch "$TRAINMASTER_OUTPUT_DIR/deaf"
while :; do sleep 0.1; done
"""


def test_a_rank_that_ignores_sigterm_is_dead_before_the_next_generation_begins(lab: Lab) -> None:
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}}
    patch = {"template": {"spec": {"replicatedJobs": [job]}}}
    spec = {
        "runtimeRef": {"name": "plain"},
        "trainer": {"numNodes": 2, "command": ["bash", "-c", STUBBORN]},
        "runtimePatches": [{"manager": "example.com/grace", "trainingRuntimeSpec": patch}],
    }
    lab.submit({"metadata": {"name": "stubborn"}, "spec": spec})
    ended = lab.wait_for_end("stubborn")
    results = lab.get_results("stubborn")
    assert not (results / "outputs" / "overlap").exists(), "two generations at once"
    assert (ended["type"], count_restarts(lab, "stubborn")) == ("Complete", 1), ended["message"]
    lab.remove("stubborn")


DAMAGED_LATER = """
import os, pathlib, signal
import train
from trainmaster import checkpoint

whole_advance = train.Training.advance

def advance(training):
    loss = whole_advance(training)
    if checkpoint.attempt() == 0 and training.step == 12 and os.environ["RANK"] == "0":
        with open(checkpoint.directory() / "step-000010" / "state.pt", "r+b") as file:
            file.truncate(1000)
        os.kill(os.getpid(), signal.SIGKILL)
    return loss

train.Training.advance = advance
train.main()
"""


def list_events(lab: Lab, reason: str) -> list[str]:
    found = lab.raw.get(f"/api/v1/namespaces/default/events?fieldSelector=reason={reason}")
    return [event["message"] for event in found["items"]]


def test_a_damaged_checkpoint_is_passed_over_and_a_new_job_goes_on_from_one_of_an_old_job(lab: Lab) -> None:
    start(lab, "damaged", DAMAGED_LATER)
    ended = lab.wait_for_end("damaged")
    assert ended["type"] == "Complete", ended["message"]
    losses = lab.read_losses("damaged")
    assert list_steps(losses, 1)[0] == 6
    (said, *_) = lab.wait_until(lambda: list_events(lab, "CheckpointDamaged"), "it is said")
    assert "step-000010 (state.pt has 1,000 bytes, and its marker says" in said
    assert "it resumes from step-000005 instead" in said
    uid = lab.get("damaged")["metadata"]["uid"]
    lab.remove("damaged")
    # The record of a deleted job works as well.
    notes = {RESUME_FROM: f"{uid}/step-000015", KEEP_CHECKPOINTS: "1"}
    start(lab, "onward", "import train; train.main()", annotations=notes, STEPS="30")
    ended = lab.wait_for_end("onward")
    assert ended["type"] == "Complete", ended["message"]
    assert list_steps(lab.read_losses("onward"), 0) == [*range(16, 31)]
    folder = lab.get_results("onward") / "checkpoints"

    def list_kept() -> list[str]:
        return sorted(path.name for path in folder.iterdir())

    # The first attempt began with the old one, so it stays.
    lab.wait_until(lambda: list_kept() == ["step-000015", "step-000030"], "old ones are removed")
    lab.remove("onward")
