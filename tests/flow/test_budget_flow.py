"""Restarts that make no sense, and restarts that progress gives back, with the shipped runtimes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.flow.plant import Plant, ScriptedNode, running_plant
from tests.flow.stage import is_finished, make_trainjob
from trainmaster.api.labels import CHECKPOINT, STOP_ON_SAME_FAILURE
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.client.contract import Client, PatchType
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import Clock
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

TRACE = """Traceback (most recent call last):
  File "/workspace/code/train.py", line {line}, in step
    f()
ValueError: run {run}"""
MISSING = 'Traceback (most recent call last):\n  File "/w/train.py", line 1, in <module>\n    import x\nImportError: x'
LIMIT = 86_400.0

Steps = Callable[[int], int | None]


def stand_still(run: int) -> int | None:
    return 7


def say_nothing(run: int) -> int | None:
    return None


@dataclass
class FailingNode(ScriptedNode):
    """Every run fails; before that the program has reported the step, or saved the checkpoint, of this run."""

    steps: Steps = say_nothing
    checkpoints: Steps = say_nothing
    code: int = 1
    line: Callable[[int], int] = lambda run: 12
    said: list[str] = field(default_factory=list)

    def count_start(self, pod: Object) -> int:
        run = int(pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"])
        self.started.append(pod["metadata"]["name"])
        return run

    async def end(self, client: Client, clock: Clock, pod: Object, run: int, moment: str) -> None:
        meta = pod["metadata"]
        if Pod(pod).index == 0 and (step := self.steps(run)) is not None:
            report = {"status": {"pace": {"position": str(step), "furthest": str(step), "advancedAt": moment}}}
            await client.patch(TRAIN_JOBS, "first", PatchType.MERGE, report, meta["namespace"], subresource="status")
        await clock.sleep(self.seconds)
        ended: Object = {"exitCode": self.code, "startedAt": moment, "reason": "Error"}
        ended["message"] = self.words.replace("{line}", str(self.line(run))).replace("{run}", str(run))
        container = pod["spec"]["containers"][0]
        status = {"name": container["name"], "image": "", "imageID": "", "ready": False, "restartCount": 0}
        saved = self.checkpoints(run)
        text = None if saved is None else f"2026-11-15T12:00:{saved:02}.000000Z step-{saved}"
        condition = {"type": CHECKPOINT, "status": "True", "reason": "Complete", "message": text}
        patch: Object = {
            "metadata": {"uid": meta["uid"]},
            "status": {
                "phase": "Failed",
                "conditions": [condition] if text else [],
                "containerStatuses": [{**status, "state": {"terminated": ended}}],
            },
        }
        await client.patch(PODS, meta["name"], PatchType.MERGE, patch, meta["namespace"], subresource="status")


async def run_to_its_end(plant: Plant, annotations: dict[str, str] | None = None) -> tuple[TrainJob, Object]:
    """The failed TrainJob and its JobSet's status."""
    trainjob = make_trainjob(nodes=1)
    trainjob["metadata"]["annotations"] = annotations or {}
    await plant.apply((TRAIN_JOBS, trainjob))
    found = TrainJob(await plant.wait_for(TRAIN_JOBS, "first", is_finished))
    return found, (await plant.list_all(JOB_SETS))[0]["status"]


def play(
    node: ScriptedNode, annotations: dict[str, str] | None = None, edit: Object | None = None
) -> tuple[str, Object]:
    """(the reason why the job failed, the status of its JobSet)"""

    async def main() -> tuple[str, Object]:
        async with running_plant(node) as plant:
            if edit is not None:
                await plant.client.patch(CLUSTER_TRAINING_RUNTIMES, "torch-distributed", PatchType.MERGE, edit)
            trainjob, status = await run_to_its_end(plant, annotations)
            return trainjob.state.reason, status

    return run_virtual(main(), limit=LIMIT)


def test_the_same_error_three_times_running_ends_the_job_with_that_sentence() -> None:
    async def main() -> None:
        async with running_plant(FailingNode(words=TRACE, steps=stand_still)) as plant:
            trainjob, status = await run_to_its_end(plant)
            assert (trainjob.state.reason, status["restarts"]) == ("RepeatedFailure", 2)
            sentence, _, rank = trainjob.state.message.partition(" (first failed job: first-node-0); ")
            assert sentence == (
                "the same error has ended 3 attempts in a row, without a new step or checkpoint in between, so the job"
                " is not restarted again: ValueError: run 2, at train.py:12 in step"
            )
            assert rank.startswith("first failure: ") and rank.endswith("ValueError: run 2")
            assert trainjob.state.sentence.endswith("in step; the same in 3 attempts in a row, without progress")

    run_virtual(main(), limit=LIMIT)


def test_a_program_that_cannot_begin_has_one_attempt() -> None:
    reason, status = play(FailingNode(words=MISSING))
    assert (reason, status.get("restarts", 0)) == ("NotRestartable", 0)


def test_errors_at_different_places_use_up_the_restarts() -> None:
    reason, status = play(FailingNode(words=TRACE, line=lambda run: run))
    assert (reason, status["restarts"]) == ("ReachedMaxRestarts", 6)


def test_progress_gives_the_restarts_back() -> None:
    """Nine attempts come further each; then the job stands still, with another error each time."""
    node = FailingNode(words=TRACE, steps=lambda run: min(run, 9), line=lambda run: run)
    reason, status = play(node)
    assert (reason, status["restarts"], status["restartsCountTowardsMax"]) == ("ReachedMaxRestarts", 15, 6)


def test_a_new_checkpoint_is_progress() -> None:
    node = FailingNode(words=TRACE, checkpoints=lambda run: min(run, 4))
    reason, status = play(node)
    assert (reason, status["restarts"]) == ("RepeatedFailure", 6)


def test_a_killed_program_uses_up_the_restarts() -> None:
    reason, status = play(FailingNode(words=TRACE, code=137, steps=stand_still))
    assert (reason, status["restarts"]) == ("ReachedMaxRestarts", 6)


def test_an_edited_runtime_means_what_it_says() -> None:
    edit = {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 10}}}}}
    reason, status = play(FailingNode(words=TRACE, steps=lambda run: run), edit=edit)
    assert (reason, status["restarts"]) == ("ReachedMaxRestarts", 10)


def test_an_annotation_of_the_job_decides() -> None:
    edit = {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 10}}}}}
    reason, status = play(FailingNode(words=TRACE), {STOP_ON_SAME_FAILURE: "true"}, edit)
    assert (reason, status["restarts"]) == ("RepeatedFailure", 2)
    reason, status = play(FailingNode(words=TRACE), {STOP_ON_SAME_FAILURE: "false"})
    assert (reason, status["restarts"]) == ("ReachedMaxRestarts", 6)
    reason, status = play(FailingNode(words=MISSING), {STOP_ON_SAME_FAILURE: "false"})
    assert (reason, status["restarts"]) == ("ReachedMaxRestarts", 6)


def test_an_annotation_of_the_runtime_decides_for_its_jobs() -> None:
    edit = {
        "metadata": {"annotations": {STOP_ON_SAME_FAILURE: "true"}},
        "spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": 10}}}},
    }
    reason, status = play(FailingNode(words=TRACE), edit=edit)
    assert (reason, status["restarts"]) == ("RepeatedFailure", 2)
