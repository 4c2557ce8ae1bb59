"""The lines of the conformance checklist about validation: common ones (C), PyTorch (P), TensorFlow (T), MPI (M),
XGBoost and MXNet (X), Paddle (D), JAX (J)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.v1jobs.stage import make_v1_job
from trainmaster.api.meta import Object
from trainmaster.api.v1jobs.frameworks import (
    FRAMEWORKS,
    JAX,
    MPI,
    MXNET,
    PADDLE,
    PYTORCH,
    TENSORFLOW,
    XGBOOST,
    V1Framework,
)
from trainmaster.api.v1jobs.validation import admit

pytestmark = pytest.mark.unit

FIRST = {framework: framework.types[0] for framework in FRAMEWORKS}
EVERY_KIND = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.kind)


def list_errors(framework: V1Framework, job: Object, old: Object | None = None) -> list[str]:
    return [str(error) for error in admit(framework, job, old).errors]


def ask(framework: V1Framework, replicas: dict[str, int], **spec: Any) -> list[str]:
    return list_errors(framework, make_v1_job(framework, replicas, **spec))


def make_with(framework: V1Framework, containers: list[Object]) -> Object:
    job = make_v1_job(framework, {FIRST[framework]: 1})
    job["spec"][framework.replicas_field][FIRST[framework]]["template"]["spec"]["containers"] = containers
    return job


@EVERY_KIND
def test_a_good_job_has_no_errors(framework: V1Framework) -> None:
    assert ask(framework, {FIRST[framework]: 1}) == []


@EVERY_KIND
def test_p08_t08_x01_d02_j01_names_and_containers(framework: V1Framework) -> None:
    place = f"{framework.path}[{FIRST[framework]}].template.spec.containers"
    name = f'"{framework.container}"' if framework is PADDLE else framework.container
    missing = f"{place}: Required value: must have at least one container with name {name}"
    named = [] if framework is MPI else [missing]
    specified = f"{place}: Required value: must be specified"
    assert list_errors(framework, make_with(framework, [])) == [specified, *named]
    assert list_errors(framework, make_with(framework, [{"name": "other", "image": "i"}])) == named
    without = make_with(framework, [{"name": framework.container}])
    assert list_errors(framework, without) == [f"{place}[0].image: Required value: must be required"]
    job = make_v1_job(framework, {FIRST[framework]: 1})
    job["metadata"]["name"] = "0-bad"
    assert list_errors(framework, job)[0].startswith('metadata.name: Invalid value: "0-bad": should match: a DNS-1035')


@EVERY_KIND
def test_p08_d02_j01_a_job_needs_replicas(framework: V1Framework) -> None:
    required = [f"{framework.path}: Required value: must be required"]
    job = make_v1_job(framework, {})
    assert list_errors(framework, job) == required
    job["spec"][framework.replicas_field] = None
    assert list_errors(framework, job) == required


@EVERY_KIND
def test_c25_p08_d02_who_may_manage_a_job(framework: V1Framework) -> None:
    [error] = ask(framework, {FIRST[framework]: 1}, runPolicy={"managedBy": "other"})
    assert error.startswith('spec.runPolicy.managedBy: Unsupported value: "other": supported values: ')
    old = make_v1_job(framework, {FIRST[framework]: 1})
    new = make_v1_job(framework, {FIRST[framework]: 1}, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
    assert [error for error in list_errors(framework, new, old) if error.endswith("field is immutable")]


def test_p08_masters_workers_and_elastic_jobs() -> None:
    path = "spec.pytorchReplicaSpecs"
    assert ask(PYTORCH, {"Master": 2}) == [f"{path}[Master].replicas: Forbidden: must be 1"]
    assert ask(PYTORCH, {"Master": 1, "Worker": 0}) == [f"{path}[Worker].replicas: Forbidden: must be at least 1"]
    assert ask(PYTORCH, {"Master": 1}, elasticPolicy={}) == [
        f"{path}[Worker]: Required value: must be configured if elastic policy is used"
    ]
    both = {"nprocPerNode": "2", "elasticPolicy": {"nProcPerNode": 2}}
    assert ask(PYTORCH, {"Worker": 1}, **both) == [
        "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"
    ]


def test_metrics_are_let_in_and_said_not_to_act() -> None:
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]
    found = admit(PYTORCH, make_v1_job(PYTORCH, {"Worker": 1}, elasticPolicy={"metrics": metrics}), None)
    assert not found.errors and list(found.warnings) == [
        "spec.elasticPolicy.metrics has no effect: there is no autoscaler on one machine, use kubectl scale"
    ]


def test_p08_a_deprecated_field_is_warned_about() -> None:
    job = make_v1_job(PYTORCH, {"Worker": 1}, elasticPolicy={"nProcPerNode": 2})
    found = admit(PYTORCH, job, None)
    assert list(found.errors) == []
    assert list(found.warnings) == ["spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead"]


def test_t08_a_tfjob_has_one_chief() -> None:
    forbidden = "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"
    assert ask(TENSORFLOW, {"Chief": 1, "Master": 1}) == [forbidden]
    assert ask(TENSORFLOW, {"CHIEF": 1, "master": 1}) == [forbidden]


def test_m07_an_mpijob_has_one_launcher() -> None:
    assert ask(MPI, {"Worker": 1}) == ["spec.mpiReplicaSpecs[Launcher]: Required value: must be present"]
    assert ask(MPI, {"Launcher": 2}) == ["spec.mpiReplicaSpecs[Launcher].replicas: Forbidden: must be 1"]


def test_x01_an_xgboostjob_has_one_master() -> None:
    assert ask(XGBOOST, {"Worker": 1}) == ["spec.xgbReplicaSpecs[Master]: Required value: must be present"]
    assert ask(XGBOOST, {"Master": 2}) == ["spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1"]


def test_x02_an_mxjob_has_one_scheduler() -> None:
    assert ask(MXNET, {"Scheduler": 2}) == ["spec.mxReplicaSpecs[Scheduler].replicas: Forbidden: must be 1"]


def test_j01_a_jaxjob_has_workers_only() -> None:
    assert ask(JAX, {"Worker": 0}) == ["spec.jaxReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"]
    [error] = ask(JAX, {"Worker": 1, "Master": 1})
    assert error == 'spec.jaxReplicaSpecs[Master]: Unsupported value: "Master": supported values: "Worker"'


@pytest.mark.parametrize("framework", [TENSORFLOW, PADDLE], ids=lambda framework: framework.kind)
def test_a_job_whose_workers_decide_has_workers(framework: V1Framework) -> None:
    """It would succeed without doing anything."""
    path = f"{framework.path}[Worker].replicas"
    assert ask(framework, {"Worker": 0}) == [f"{path}: Forbidden: must be at least 1"]
    assert ask(framework, {"Master": 1, "Worker": 0}) == []


def test_the_name_of_a_launcher_has_no_index() -> None:
    job = make_v1_job(MPI, {"Launcher": 1, "Worker": 1})
    job["metadata"]["name"] = "a" * 54
    assert list_errors(MPI, job) == []
    job["metadata"]["name"] = "a" * 55
    (error,) = list_errors(MPI, job)
    assert "must have at most 54 characters" in error


@pytest.mark.parametrize(
    ("framework", "replicas", "spec", "want"),
    [
        (
            PYTORCH,
            {"Master": 1},
            {"nprocPerNode": "many"},
            'spec.nprocPerNode: torchrun accepts auto, cpu, gpu or a number, not "many"',
        ),
        (
            TENSORFLOW,
            {"Worker": 1},
            {"successPolicy": "Any"},
            'spec.successPolicy: "Any" has no effect; the only value besides "" is "AllWorkers"',
        ),
        (
            MXNET,
            {"Scheduler": 1},
            {"jobMode": "Foo"},
            'spec.jobMode: "Foo" has no effect; the values are MXTrain and MXTune',
        ),
        (
            MXNET,
            {"Server": 1, "Worker": 1},
            {"jobMode": "MXTune"},
            "spec.mxReplicaSpecs: without a Scheduler, which decides about the job, it never ends by itself",
        ),
    ],
)
def test_mistakes_with_which_upstream_runs_a_job_are_warned_about(
    framework: V1Framework, replicas: dict[str, int], spec: Object, want: str
) -> None:
    found = admit(framework, make_v1_job(framework, replicas, **spec), None)
    assert not found.errors and list(found.warnings) == [want]
