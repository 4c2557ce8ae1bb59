"""Writes that Kubeflow Trainer 2.3 accepts and that we refuse, without a recorded case: each is a short program.

docs/differences.md lists them; `test_differences.py` checks that each is still refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.unit.controllers.trainjob.stage import Stage, make_jobs, make_runtime, make_trainjob
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS, TRAINING_RUNTIMES


@dataclass(frozen=True, slots=True)
class Stricter:
    what: str
    texts: tuple[str, ...]
    """All of them are in our refusal."""
    reason: str
    act: Callable[[Stage], Awaitable[object]]
    """The last write is refused."""


async def _create_with_unlabelled_initializer(stage: Stage) -> Object:
    jobs = make_jobs()
    del jobs[0]["template"]["metadata"]["labels"]
    await stage.create_runtime(make_runtime(jobs=jobs))
    return await stage.create(TRAIN_JOBS, make_trainjob(initializer={"dataset": {"storageUri": "hf://a/b"}}))


async def _break_runtime(stage: Stage) -> Object:
    runtime = await stage.create_runtime(make_runtime())
    runtime["spec"]["template"]["spec"]["replicatedJobs"][2]["replicas"] = 2
    return await stage.cluster.client.update(TRAINING_RUNTIMES, runtime, "default")


async def _create_without_image(stage: Stage) -> Object:
    jobs = make_jobs()
    del jobs[2]["template"]["spec"]["template"]["spec"]["containers"][0]["image"]
    await stage.create_runtime(make_runtime(jobs=jobs))
    return await stage.create(TRAIN_JOBS, make_trainjob())


async def _create_with_bad_variable(stage: Stage) -> Object:
    await stage.create_runtime(make_runtime())
    return await stage.create(TRAIN_JOBS, make_trainjob(trainer={"env": [{"name": "A=B", "value": "1"}]}))


async def _remove_deadline(stage: Stage) -> Object:
    await stage.create_runtime(make_runtime())
    made = await stage.create(TRAIN_JOBS, make_trainjob(activeDeadlineSeconds=60))
    spec = {name: value for name, value in made["spec"].items() if name != "activeDeadlineSeconds"}
    # With its mirror: alone it would be put back.
    wanted = {**made, "metadata": {**made["metadata"], "annotations": {}}, "spec": spec}
    return await stage.cluster.client.update(TRAIN_JOBS, wanted, "default")


STRICTER = (
    Stricter(
        "a TrainJob with `spec.initializer.dataset` or `model`, if the job of that name in the runtime lacks the "
        "label `trainer.kubeflow.org/trainjob-ancestor-step`",
        ("spec.runtimeRef", "must have the label", "spec.initializer.dataset has no effect"),
        "upstream ignores the URI, variables and Secret, and trains on other data or none",
        _create_with_unlabelled_initializer,
    ),
    Stricter(
        "an update of a TrainingRuntime that would be refused at creation",
        ("spec.template.spec.replicatedJobs[2].replicas", "always must be 1"),
        "upstream validates updates of ClusterTrainingRuntimes only (trainer#3686); the label "
        "`trainer.kubeflow.org/webhook-validation: disabled` turns this off for both kinds",
        _break_runtime,
    ),
    Stricter(
        "a TrainJob with a container that has no image",
        ("spec.trainer.image", "Required value"),
        "the Pod would be invalid",
        _create_without_image,
    ),
    Stricter(
        "a TrainJob with an invalid variable in `spec.trainer.env`",
        ("spec.trainer.env", "a valid environment variable name"),
        "the Pod would be invalid",
        _create_with_bad_variable,
    ),
    Stricter(
        "an update of a TrainJob that removes `spec.activeDeadlineSeconds`",
        ("spec.activeDeadlineSeconds", "field is immutable"),
        "a job could be given another deadline by removing and adding it, although the field is immutable",
        _remove_deadline,
    ),
)
