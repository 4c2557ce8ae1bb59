"""The CRDs that a real cluster gets, and that clients of our server find."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.declaring.catalogue import build
from trainmaster.api.declaring.crd import build_all, established
from trainmaster.api.meta import Object

pytestmark = pytest.mark.unit

CRDS = {crd["metadata"]["name"]: crd for crd in build_all(build().kinds)}


def schema_of(plural: str) -> Object:
    schema: Object = CRDS[f"{plural}.trainer.kubeflow.org"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def at(schema: Object, path: str) -> Any:
    for step in path.split("."):
        schema = schema["properties"][step]
        if "items" in schema:
            schema = schema["items"]
    return schema


def test_there_is_one_for_each_custom_kind() -> None:
    assert list(CRDS) == [
        "clustertrainingruntimes.trainer.kubeflow.org",
        "jaxjobs.kubeflow.org",
        "jobsets.jobset.x-k8s.io",
        "mpijobs.kubeflow.org",
        "mxjobs.kubeflow.org",
        "paddlejobs.kubeflow.org",
        "pytorchjobs.kubeflow.org",
        "tfjobs.kubeflow.org",
        "trainingruntimes.trainer.kubeflow.org",
        "trainjobs.trainer.kubeflow.org",
        "xgboostjobs.kubeflow.org",
    ]


def test_names_scope_columns_and_subresources_are_those_of_the_kind() -> None:
    spec = CRDS["trainjobs.trainer.kubeflow.org"]["spec"]
    names = {"kind": "TrainJob", "listKind": "TrainJobList", "plural": "trainjobs", "singular": "trainjob"}
    assert (spec["group"], spec["scope"], spec["names"]) == ("trainer.kubeflow.org", "Namespaced", names)
    version = spec["versions"][0]
    assert version["subresources"] == {"status": {}}
    columns = [(column["name"], column["jsonPath"]) for column in version["additionalPrinterColumns"]]
    assert columns[:2] == [
        ("State", '.status.conditions[?(@.status=="True")].type'),
        ("Age", ".metadata.creationTimestamp"),
    ]
    assert CRDS["clustertrainingruntimes.trainer.kubeflow.org"]["spec"]["scope"] == "Cluster"


def test_a_kind_that_can_be_scaled_says_where_its_numbers_are() -> None:
    (version,) = CRDS["jaxjobs.kubeflow.org"]["spec"]["versions"]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.jaxReplicaSpecs.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }


def test_the_schema_carries_limits_rules_defaults_and_list_keys() -> None:
    spec = at(schema_of("trainjobs"), "spec")
    assert spec["required"] == ["runtimeRef"]
    assert spec["properties"]["managedBy"]["default"] == "trainer.kubeflow.org/trainjob-controller"
    assert spec["properties"]["trainer"]["x-kubernetes-validations"] == [
        {"rule": "self == oldSelf", "message": "field is immutable"}
    ]
    env = spec["properties"]["trainer"]["properties"]["env"]
    assert (env["x-kubernetes-list-type"], env["x-kubernetes-list-map-keys"]) == ("map", ["name"])
    assert spec["properties"]["trainer"]["properties"]["numProcPerNode"]["x-kubernetes-int-or-string"] is True
    assert schema_of("trainjobs")["properties"]["metadata"] == {"type": "object"}


def test_our_fields_are_there_and_runtimes_may_change_their_failure_policy() -> None:
    assert at(schema_of("trainjobs"), "spec.ttlSecondsAfterFinished")["minimum"] == 0
    assert at(schema_of("trainingruntimes"), "spec.runPolicy.activeDeadlineSeconds")["minimum"] == 1
    template = at(schema_of("trainingruntimes"), "spec.template.spec")
    for name in ("failurePolicy", "successPolicy", "startupPolicy", "network"):
        assert "x-kubernetes-validations" not in template["properties"][name]
    assert "x-kubernetes-validations" in template["properties"]["volumeClaimPolicies"]


def test_a_served_definition_reports_that_it_is_established() -> None:
    crd = established(CRDS["jobsets.jobset.x-k8s.io"], "2026-01-01T00:00:00Z")
    assert [condition["type"] for condition in crd["status"]["conditions"]] == ["NamesAccepted", "Established"]
    assert crd["status"]["storedVersions"] == ["v1alpha2"]
