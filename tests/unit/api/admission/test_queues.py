"""What a TrainJob with a queue of Kueue may not contain, and what it is told to write instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainmaster.api.admission.queues import check_queued
from trainmaster.api.labels import QUEUE_NAME
from trainmaster.api.training.overrides import merge_jobs, merge_metadata

pytestmark = pytest.mark.unit

Thing = dict[str, Any]
QUEUED = {QUEUE_NAME: "team"}
JOBSET: Thing = {
    "replicatedJobs": [
        {
            "name": name,
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}}},
        }
        for name in ("node", "launcher")
    ]
}
OLDER: Thing = {
    "podSpecOverrides": [
        {"targetJobs": [{"name": "node"}], "nodeSelector": {"pool": "a"}, "serviceAccountName": "first"}
    ],
    "podTemplateOverrides": [
        {
            "targetJobs": [{"name": "node"}, {"name": "launcher"}],
            "metadata": {"labels": {"team": "vision"}},
            "spec": {
                "serviceAccountName": "second",
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "volumes": [{"name": "data", "emptyDir": {}}],
                "containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            },
        },
        {
            "targetJobs": [{"name": "node"}],
            "spec": {"containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}]},
        },
    ],
    "labels": {"a": "b"},
    "annotations": {"c": "d"},
}


def job(marks: dict[str, str] | None = None, /, **spec: Any) -> Thing:
    return {"metadata": {"name": "j", "labels": marks or {}}, "spec": spec}


def test_older_shapes_are_refused_with_the_patch_that_says_the_same() -> None:
    own = {"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "own"}}}}}
    queued = job(QUEUED, **OLDER, runtimePatches=[own])
    [error] = check_queued(queued, None)
    names = "spec.podSpecOverrides and spec.podTemplateOverrides and spec.labels and spec.annotations"
    start = f"Kueue drops {names} when it starts a job with the label {QUEUE_NAME}; use this item as the first of "
    head, _, patch = error.detail.partition("spec.runtimePatches: ")
    assert (error.path, head) == ("spec.podSpecOverrides", start)
    replaced = job(QUEUED, runtimePatches=[json.loads(patch), own])
    assert merge_jobs(JOBSET, replaced) == merge_jobs(JOBSET, queued)
    assert merge_metadata(replaced, {})["labels"] == merge_metadata(queued, {})["labels"] == {"a": "own"}
    assert not list(check_queued(replaced, None))


@pytest.mark.parametrize("name", OLDER)
def test_each_older_shape_alone_has_an_equivalent(name: str) -> None:
    queued = job(QUEUED, **{name: OLDER[name]})
    [error] = check_queued(queued, None)
    replaced = job(QUEUED, runtimePatches=[json.loads(error.detail.partition("spec.runtimePatches: ")[2])])
    assert merge_jobs(JOBSET, replaced) == merge_jobs(JOBSET, queued)
    assert merge_metadata(replaced, {}) == merge_metadata(queued, {})


def test_a_very_long_patch_is_not_printed() -> None:
    [error] = check_queued(job(QUEUED, annotations={"c": "d" * 9000}), None)
    assert error.detail.endswith("; use spec.runtimePatches")


def test_a_word_for_the_processes_is_refused_because_kueue_cannot_read_it() -> None:
    [error] = check_queued(job(QUEUED, trainer={"numProcPerNode": "auto"}), None)
    assert error.path == "spec.trainer.numProcPerNode" and "Kueue cannot read a word there" in error.detail
    assert not list(check_queued(job(QUEUED, trainer={"numProcPerNode": 2}), None))


def test_without_a_queue_nothing_is_refused_and_a_job_that_gets_one_is_looked_at() -> None:
    assert not list(check_queued(job(**OLDER), None))
    assert list(check_queued(job(QUEUED, **OLDER), job(**OLDER)))
    assert not list(check_queued(job(QUEUED, **OLDER), job(QUEUED, **OLDER))), "it can still be suspended"
