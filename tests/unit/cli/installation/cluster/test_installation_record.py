"""What belongs to an installation, the record of it, and how far its Pods are."""

from __future__ import annotations

import pytest

from trainmaster.api.labels import INSTALLATION
from trainmaster.api.meta import Object
from trainmaster.api.status import apply_conflict, forbidden
from trainmaster.cli import exits
from trainmaster.cli.installation.cluster.inventory import (
    InstallationInventory,
    build_config_map,
    read_config_map,
    unite,
)
from trainmaster.cli.installation.cluster.objects import find_other_owner, is_marked, mark, refer
from trainmaster.cli.installation.cluster.rollout import describe_rollout, read_refusal
from trainmaster.cli.installation.cluster.writes import explain_refusal
from trainmaster.operator.install import build_objects, read_values

pytestmark = pytest.mark.unit

EVERYTHING = {
    "v1Jobs": ["all"],
    "watchNamespaces": ["a"],
    "webhook": {"certManager": {"enabled": True}},
    "history": {"enabled": True},
    "manager": {"replicas": 1},
    "metrics": {"readers": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]},
    **{name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "grafanaDashboard", "rest")},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
}

AGREED = {"observedGeneration": 2}


def build(name: str = "Deployment") -> Object:
    return next(obj for obj in build_objects(read_values({})) if obj["kind"] == name)


def test_every_object_of_an_installation_is_found_where_it_is_applied() -> None:
    objects = build_objects(read_values(EVERYTHING))
    references = [refer(obj) for obj in objects]
    assert len({one.place for one in references}) == len(objects)
    assert [one.gvr.api_version for one in references] == [obj["apiVersion"] for obj in objects]
    assert {one.kind for one in references if one.kept} == {
        "CustomResourceDefinition",
        "Namespace",
        "PersistentVolumeClaim",
    }
    assert {"Certificate", "ServiceMonitor", "NetworkPolicy"} <= {one.kind for one in references}


def test_a_record_is_read_as_it_was_written() -> None:
    objects = tuple(refer(obj) for obj in build_objects(read_values(EVERYTHING)))
    inventory = InstallationInventory("1.2.3", objects, EVERYTHING, True, "7")
    assert read_config_map(build_config_map(inventory, "mine")) == inventory


def test_a_record_that_somebody_edited_is_one_sentence() -> None:
    made = build_config_map(InstallationInventory("1.2.3", (), {}, True, "7"), "mine")
    made["data"]["objects.json"] = "[{}]"
    with pytest.raises(exits.Failure, match="mine/trainmaster-installation, the record of the installation, cannot"):
        read_config_map(made)


def test_an_upgrade_knows_the_objects_of_both_versions() -> None:
    old = tuple(refer(obj) for obj in build_objects(read_values(EVERYTHING)))
    new = tuple(refer(obj) for obj in build_objects(read_values({})))
    both = unite(old, new)
    assert {one.place for one in both} == {one.place for one in (*old, *new)}
    assert both[-len(new) :] == new


def test_an_object_says_whose_it_is() -> None:
    deployment = build()
    ours = mark(deployment, "mine")
    assert is_marked(ours, "mine") and not is_marked(ours, "other") and not is_marked(deployment, "mine")
    assert find_other_owner(deployment, refer(deployment), "mine") == ""
    assert "--namespace mine" in find_other_owner(ours, refer(deployment), "other")
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    helms = {**deployment, "metadata": {**deployment["metadata"], "labels": labels}}
    assert "Helm release" in find_other_owner(helms, refer(deployment), "mine")
    definition = build("CustomResourceDefinition")
    left = {**definition, "metadata": {**definition["metadata"], "labels": labels}}
    assert find_other_owner(left, refer(definition), "mine") == "", "it stays when a release is removed"
    assert INSTALLATION not in labels


@pytest.mark.parametrize(
    ("status", "is_done", "text"),
    [
        ({}, False, ""),
        ({**AGREED, "replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}, False, "1 of 2 Pods ready"),
        ({**AGREED, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 2}, False, "2 of 2 Pods ready"),
        ({**AGREED, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, True, "2 of 2 Pods ready"),
    ],
)
def test_a_rollout_is_done_when_all_pods_are_new_and_ready(status: Object, is_done: bool, text: str) -> None:
    deployment = {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}
    assert describe_rollout(deployment) == (is_done, text)


def test_pods_that_the_server_refuses_are_named() -> None:
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": "exceeded quota: none",
    }
    assert read_refusal({"status": {"conditions": [condition]}}) == "FailedCreate: exceeded quota: none"
    assert read_refusal({"status": {"conditions": [{**condition, "status": "False"}]}}) == ""


def test_a_refusal_says_what_to_do() -> None:
    deployment, definition = refer(build()), refer(build("CustomResourceDefinition"))
    causes = [{"field": ".spec.replicas", "message": 'conflict with "kubectl"'}]
    text = explain_refusal(deployment, apply_conflict("conflict", causes))
    assert text == (
        'deployment.apps/trainmaster-operator in trainmaster-system: "kubectl" has set spec.replicas, with other '
        "values; --force-conflicts takes these fields over"
    )
    assert "crds.enabled=false" in explain_refusal(definition, apply_conflict("conflict", causes))
    refused = forbidden(deployment.gvr, deployment.name, 'User "ann" cannot patch resource "deployments"')
    assert "cluster's administrator" in explain_refusal(deployment, refused)
    refused = forbidden(deployment.gvr, deployment.name, "exceeded quota: none")
    assert explain_refusal(deployment, refused).endswith("exceeded quota: none")
