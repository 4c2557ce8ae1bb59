"""Invalid Pods of a TrainJob are reported at the field that has to change: of the TrainJob, or of its runtime."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.unit.controllers.trainjob.stage import make_jobs, make_runtime, make_trainjob
from trainmaster.api.admission.trainjobs import check_against_runtime
from trainmaster.api.meta import Object

pytestmark = pytest.mark.unit

DATASET, MODEL, NODE = 0, 1, 2
TWO_CPUS = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}


def list_errors(runtime: Object, **spec: Any) -> list[tuple[str, str]]:
    trainjob = make_trainjob(**spec)
    before = deepcopy(trainjob)
    errors = check_against_runtime(trainjob, runtime, embedded=True).errors
    assert trainjob == before, "admission changed the TrainJob"
    return [(error.path, error.detail) for error in errors]


def change_container(job: int, **changes: Any) -> Object:
    """A runtime whose container of that job has other fields; None removes one."""
    jobs = make_jobs()
    container = jobs[job]["template"]["spec"]["template"]["spec"]["containers"][0]
    container.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del container[name]
    return make_runtime(jobs=jobs)


def test_the_trainer_has_no_image() -> None:
    runtime = change_container(NODE, image=None)
    text = "the runtime sets no image for container node of job node"
    assert list_errors(runtime) == [("spec.trainer.image", text)]
    assert list_errors(runtime, trainer={"image": "mine:1"}) == []


@pytest.mark.parametrize("trainer", [{}, {"image": "mine:1"}], ids=["no trainer", "the trainer has an image"])
def test_an_initializer_has_no_image(trainer: Object) -> None:
    text = "container dataset-initializer of job dataset-initializer has no image; set one in the runtime"
    assert list_errors(change_container(DATASET, image=None), trainer=trainer) == [("spec.runtimeRef", text)]


def test_every_container_without_an_image_is_named() -> None:
    jobs = make_jobs(node={"initContainers": [{"name": "setup"}]})
    for job in jobs:
        containers = job["template"]["spec"]["template"]["spec"]["containers"]
        del containers[0]["image"]
        containers.append({"name": "side"})
    found = list_errors(make_runtime(jobs=jobs))
    assert sorted(path for path, _ in found) == ["spec.runtimeRef"] * 6 + ["spec.trainer.image"]
    assert len({text for _, text in found}) == 7
    assert any(text.startswith("container setup of job node has no image") for _, text in found)


@pytest.mark.parametrize(
    ("runtime", "spec", "want"),
    [
        (make_runtime(), {"trainer": {"env": [{"name": "A=B"}]}}, "spec.trainer.env"),
        (make_runtime(), {"trainer": {"image": " mine:1"}}, "spec.trainer.image"),
        (make_runtime(), {"trainer": {"resourcesPerNode": TWO_CPUS}}, "spec.trainer.resourcesPerNode"),
        (
            make_runtime(),
            {"initializer": {"dataset": {"env": [{"name": "A=B"}]}}, "trainer": {"env": [{"name": "C"}]}},
            "spec.initializer.dataset.env",
        ),
        (
            make_runtime(),
            {"initializer": {"model": {"secretRef": {"name": "A_B"}}}},
            "spec.initializer.model.secretRef",
        ),
        (
            change_container(DATASET, resources=TWO_CPUS),
            {"trainer": {"resourcesPerNode": {"limits": {"cpu": "1"}}}},
            "spec.runtimeRef",
        ),
        (change_container(NODE, env=[{"name": "A=B"}]), {"trainer": {"env": [{"name": "C"}]}}, "spec.runtimeRef"),
    ],
    ids=[
        "the trainer's variable",
        "the trainer's image",
        "the trainer's resources",
        "an initializer's variable",
        "an initializer's Secret",
        "resources of the runtime's initializer",
        "a variable of the runtime",
    ],
)
def test_the_error_is_at_the_field_that_sets_the_value(runtime: Object, spec: Object, want: str) -> None:
    (found,) = list_errors(runtime, **spec)
    assert found[0] == want
    assert "the Pods of job" in found[1]


def test_variables_that_need_a_default_are_accepted_and_not_changed() -> None:
    env = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    assert list_errors(make_runtime(), initializer={"dataset": {"env": env}}, trainer={"env": env}) == []


LOST: list[Object] = [
    {"storageUri": "hf://a/b"},
    {"env": [{"name": "A", "value": "1"}]},
    {"secretRef": {"name": "token"}},
]


@pytest.mark.parametrize("dataset", [*LOST, {}], ids=["storageUri", "env", "secretRef", "nothing"])
def test_an_initializer_job_without_its_label(dataset: Object) -> None:
    """What is set for it would not reach its Pods."""
    jobs = make_jobs()
    del jobs[DATASET]["template"]["metadata"]["labels"]
    found = list_errors(make_runtime(jobs=jobs), initializer={"dataset": dataset})
    if not dataset:
        assert found == []
        return
    label = "trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer"
    text = f"must have the label {label} on the dataset-initializer job, or spec.initializer.dataset has no effect"
    assert found == [("spec.runtimeRef", text)]
