"""Two spellings of one object mean the same where Go reads them into the same struct, and nowhere else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.kindsets.jobset_v1alpha2 import default
from trainmaster.api.meta import Object
from trainmaster.api.spelling import respell

pytestmark = pytest.mark.unit


def get_kind(name: str) -> Kind:
    return next(kind for kind in catalogue.build().kinds if kind.kind == name)


def wrap(kind: str, container: Object, pod: Object | None = None) -> Object:
    spec = {"containers": [{"name": "main", **container}], **(pod or {})}
    match kind:
        case "Pod":
            return {"spec": spec}
        case "Job":
            return {"spec": {"template": {"spec": spec}}}
    return {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": spec}}}}]}}


SAME: list[tuple[Object, Object]] = [
    ({}, {"resources": {}}),
    ({}, {"resources": {"limits": {}}}),
    ({"resources": {"limits": {"cpu": 1}}}, {"resources": {"limits": {"cpu": "1000m"}}}),
    ({"resources": {"limits": {"memory": "0.5Gi"}}}, {"resources": {"limits": {"memory": "512Mi"}}}),
    ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
    ({"volumeMounts": [{"name": "a", "readOnly": False}]}, {"volumeMounts": [{"name": "a"}]}),
    ({"args": []}, {}),
    ({"livenessProbe": {"initialDelaySeconds": 0}}, {"livenessProbe": {}}),
    ({"ports": [{"containerPort": 1, "hostPort": 0}]}, {"ports": [{"containerPort": 1}]}),
]
DIFFERENT: list[tuple[Object, Object]] = [
    ({"resources": {"limits": {"cpu": 1}}}, {"resources": {"limits": {"cpu": 2}}}),
    ({"resources": {"limits": {"cpu": 1}}}, {}),
    ({"env": [{"name": "A", "value": ""}]}, {"env": []}),
    ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A", "value": "x"}]}),
    ({"args": ["x"]}, {}),
    ({"securityContext": {"runAsUser": 0}}, {"securityContext": {}}),
    ({"securityContext": {"allowPrivilegeEscalation": False}}, {"securityContext": {}}),
    ({"livenessProbe": {}}, {}),
    ({"command": ["a", "b"]}, {"command": ["b", "a"]}),
]
DIFFERENT_PODS: list[tuple[Object, Object]] = [
    ({"enableServiceLinks": False}, {}),
    ({"terminationGracePeriodSeconds": 0}, {}),
    ({"volumes": [{"name": "a", "emptyDir": {}}]}, {"volumes": [{"name": "a"}]}),
    ({"affinity": {"podAffinity": {}}}, {"affinity": {}}),
    ({"topologySpreadConstraints": [{"labelSelector": {}}]}, {"topologySpreadConstraints": [{}]}),
]


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet"])
@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_in_other_words_is_the_same(kind: str, one: Object, other: Object) -> None:
    for old, new in ((wrap(kind, one), wrap(kind, other)), (wrap(kind, other), wrap(kind, one))):
        before = copy.deepcopy((old, new))
        assert respell(get_kind(kind), old, new) == new
        assert (old, new) == before


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet"])
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_go_tells_apart_stays_different(kind: str, one: Object, other: Object) -> None:
    check_different(kind, wrap(kind, one), wrap(kind, other))


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet"])
@pytest.mark.parametrize(("one", "other"), DIFFERENT_PODS)
def test_what_go_tells_apart_in_a_pod_stays_different(kind: str, one: Object, other: Object) -> None:
    check_different(kind, wrap(kind, {}, one), wrap(kind, {}, other))


def check_different(kind: str, one: Object, other: Object) -> None:
    assert respell(get_kind(kind), one, other) != other
    assert respell(get_kind(kind), other, one) != one


def test_a_claim_without_a_class_is_not_one_of_the_default_class() -> None:
    none: Object = {"spec": {"storageClassName": ""}}
    check_different("PersistentVolumeClaim", none, {"spec": {}})


def test_only_the_changed_part_differs() -> None:
    """Rules that allow a change look at the rest of the object."""
    old = wrap("Job", {"env": [{"name": "A", "value": ""}], "image": "one"})
    new = wrap("Job", {"env": [{"name": "A"}], "image": "two"})
    assert respell(get_kind("Job"), old, new) == wrap("Job", {"env": [{"name": "A"}], "image": "one"})


# ---- what a new JobSet becomes ----------------------------------------------


def make_jobset(template: Any, **spec: Any) -> Object:
    return {"metadata": {"name": "a"}, "spec": {"replicatedJobs": [{"name": "node", "template": template}], **spec}}


def test_a_new_jobset_is_stored_as_go_writes_it() -> None:
    pod = {"containers": [{"name": "main", "resources": {"limits": {"cpu": 1.5, "memory": "1024Mi"}}}, {"name": "b"}]}
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "0.5Gi"}}}}
    jobset = make_jobset({"spec": {"template": {"spec": pod}}}, volumeClaimPolicies=[{"templates": [claim]}])
    default(jobset)
    template = jobset["spec"]["replicatedJobs"][0]["template"]
    assert template["metadata"] == {} == template["spec"]["template"]["metadata"]
    first, second = template["spec"]["template"]["spec"]["containers"]
    assert first["resources"] == {"limits": {"cpu": "1500m", "memory": "1Gi"}}
    assert second["resources"] == {}
    assert claim["spec"] == {"resources": {"requests": {"storage": "512Mi"}}}
    assert claim["status"] == {}
    again = copy.deepcopy(jobset)
    default(again)
    assert again == jobset


@pytest.mark.parametrize(
    "pod",
    [
        "x",
        {"containers": {}},
        {"containers": [None, {"resources": []}]},
        {"containers": [{"name": "a", "resources": {"limits": {"cpu": "x", "memory": [], "disk": True}}}]},
        {"volumes": [{"emptyDir": {"sizeLimit": {}}}, {"emptyDir": "x"}]},
    ],
)
def test_wrong_types_and_missing_names_are_left_for_validation_to_report(pod: Any) -> None:
    jobset = make_jobset({"spec": {"template": {"spec": copy.deepcopy(pod)}}})
    default(jobset)
    given = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    if isinstance(given, dict):
        given.pop("restartPolicy")
    assert given == pod
