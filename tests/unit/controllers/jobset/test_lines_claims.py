"""Conformance lines JI-35 and JI-36: the claims of a JobSet, and claims that exist before it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.jobset.stage import Stage, make_jobset, make_replicated
from tests.unit.controllers.world import NOW
from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS
from trainmaster.controllers.jobset.sources import map_claim
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time

pytestmark = pytest.mark.unit


def make_claimed(**more: Any) -> Object:
    replicated = make_replicated("a")
    container = replicated["template"]["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "gone", "mountPath": "/x"}, {"name": "kept", "mountPath": "/y"}]
    claim = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    policies = [
        {"templates": [{"metadata": {"name": "gone", "labels": {"l": "1"}}, **claim}]},
        {"templates": [{"metadata": {"name": "kept"}, **claim}], "retentionPolicy": {"whenDeleted": "Retain"}},
    ]
    return make_jobset(replicated, make_replicated("b"), volumeClaimPolicies=policies, **more)


@pytest.mark.parametrize(
    "suspend",
    [pytest.param(False, id="JI-35 running"), pytest.param(True, id="JI-36 suspended")],
)
def test_claims_are_made_and_only_those_that_go_have_an_owner(suspend: bool) -> None:
    stage = Stage(make_claimed(suspend=suspend))
    claims = stage.list(PERSISTENT_VOLUME_CLAIMS)
    assert [claim["metadata"]["name"] for claim in claims] == ["gone-js", "kept-js"]
    assert ["ownerReferences" in claim["metadata"] for claim in claims] == [True, False]
    assert claims[0]["metadata"]["labels"] == {"l": "1", labels.JOBSET_NAME: "js"}
    assert claims[0]["spec"] == {"accessModes": ["ReadWriteOnce"]}
    assert stage.get(JOBS, "js-a-0")["spec"]["template"]["spec"]["volumes"] == [
        {"name": "gone", "persistentVolumeClaim": {"claimName": "gone-js"}},
        {"name": "kept", "persistentVolumeClaim": {"claimName": "kept-js"}},
    ]
    assert "volumes" not in stage.get(JOBS, "js-b-0")["spec"]["template"]["spec"]


def test_ji_35_a_later_jobset_finds_the_claim_that_was_kept() -> None:
    stage = Stage(make_claimed())
    kept = stage.get(PERSISTENT_VOLUME_CLAIMS, "kept-js")
    for name in stage.names:
        del stage.objects[JOBS, "default", name]
    del stage.objects[PERSISTENT_VOLUME_CLAIMS, "default", "gone-js"]
    del stage.objects[JOB_SETS, "default", "js"]
    stage.add(JOB_SETS, make_claimed())
    stage.play()
    assert stage.get(PERSISTENT_VOLUME_CLAIMS, "kept-js") is kept
    assert stage.get(PERSISTENT_VOLUME_CLAIMS, "gone-js")["metadata"]["ownerReferences"]


def test_a_claim_on_its_way_out_is_not_used() -> None:
    stage = Stage(make_claimed())
    for name in stage.names:
        del stage.objects[JOBS, "default", name]
    stage.merge(PERSISTENT_VOLUME_CLAIMS, "gone-js", {"metadata": {"deletionTimestamp": format_time(NOW)}})
    stage.play()
    assert stage.names == []
    assert stage.waiting["reason"] == "ClaimTerminating"
    del stage.objects[PERSISTENT_VOLUME_CLAIMS, "default", "gone-js"]
    stage.play()
    assert stage.names == ["js-a-0", "js-b-0"]


def test_a_claim_of_somebody_else_is_not_taken_for_one_that_goes_with_the_jobset() -> None:
    stage = Stage(make_claimed(managedBy="acme.io/later"))
    claim = stage.add(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "gone-js", "namespace": "default"}, "spec": {}})
    stage.edit(managedBy=None)
    stage.play()
    assert stage.names == []
    assert stage.waiting["reason"] == "ClaimConflict"
    assert list(map_claim(stage, claim)) == [Request("default", "js")]
    del stage.objects[PERSISTENT_VOLUME_CLAIMS, "default", "gone-js"]
    stage.play()
    assert stage.names == ["js-a-0", "js-b-0"]


FULL = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "2Gi"}}}
SMALL = {"resources": {"requests": {"storage": "1Gi"}}}


def make_kept_claim(spec: Object, **more: Any) -> Object:
    return {"metadata": {"name": "kept-js", "namespace": "default"}, "spec": {**FULL, **spec}, **more}


def start_with_claim(claim: Object, template: Object) -> Stage:
    """A JobSet whose template `kept` is this; the claim exists before it."""
    jobset = make_claimed(managedBy="acme.io/later")
    jobset["spec"]["volumeClaimPolicies"][1]["templates"][0]["spec"] = template
    stage = Stage(jobset)
    stage.add(PERSISTENT_VOLUME_CLAIMS, claim)
    stage.edit(managedBy=None)
    stage.play()
    return stage


@pytest.mark.parametrize(
    ("has", "wants", "problem"),
    [
        ({}, {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}, "it lacks the access mode ReadWriteMany"),
        ({}, {"storageClassName": "slow"}, 'its class is "fast" instead of "slow"'),
        ({}, {"storageClassName": ""}, 'its class is "fast" instead of ""'),
        (SMALL, {}, "its size is 1Gi instead of at least 2Gi"),
        ({}, {"resources": {"requests": {"storage": "1e500"}}}, "its size is 2Gi instead of at least 1e500"),
        ({"volumeMode": "Block"}, {}, "its volume mode is Block instead of Filesystem"),
        (
            SMALL,
            {"accessModes": ["ReadWriteMany"]},
            "it lacks the access mode ReadWriteMany; its size is 1Gi instead of at least 2Gi",
        ),
    ],
)
def test_a_claim_that_does_not_fit_its_template_is_not_used(has: Object, wants: Object, problem: str) -> None:
    claim = make_kept_claim(has)
    stage = start_with_claim(claim, {**FULL, **wants})
    assert stage.names == []
    waiting = stage.waiting
    assert (waiting["reason"], waiting["message"].partition(". ")[0]) == (
        "ClaimMismatch",
        f'the existing claim "kept-js" does not fit its template: {problem}',
    )
    assert ("Warning", "ClaimMismatch", waiting["message"]) in stage.notes
    assert list(map_claim(stage, claim)) == [Request("default", "js")]
    del stage.objects[PERSISTENT_VOLUME_CLAIMS, "default", "kept-js"]
    stage.play()
    assert stage.names == ["js-a-0", "js-b-0"]


@pytest.mark.parametrize(
    ("claim", "wants"),
    [
        (make_kept_claim({}), {}),
        (make_kept_claim({"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}), {}),
        (make_kept_claim({}), {"resources": {"requests": {"storage": "2147483648"}}}),
        (make_kept_claim({"resources": {"requests": {"storage": "4Gi"}}}), {}),
        (make_kept_claim(SMALL, status={"capacity": {"storage": "8Gi"}}), {}),
        (make_kept_claim({"volumeName": "pv", "volumeMode": "Filesystem"}), {"volumeMode": "Filesystem"}),
    ],
)
def test_a_claim_that_has_at_least_what_its_template_asks_for_is_used(claim: Object, wants: Object) -> None:
    assert start_with_claim(claim, {**FULL, **wants}).names == ["js-a-0", "js-b-0"]


def test_a_template_without_a_class_takes_any() -> None:
    template = {name: value for name, value in FULL.items() if name != "storageClassName"}
    assert start_with_claim(make_kept_claim({}), template).names == ["js-a-0", "js-b-0"]


def test_a_jobset_that_has_started_keeps_its_claim() -> None:
    """Another version may have started it, and the claim has its checkpoints."""
    stage = start_with_claim(make_kept_claim({}), FULL)
    stage.merge(PERSISTENT_VOLUME_CLAIMS, "kept-js", {"spec": SMALL})
    stage.end("js-a-0")
    del stage.objects[JOBS, "default", "js-b-0"]
    stage.play()
    assert stage.names == ["js-a-0", "js-b-0"]
