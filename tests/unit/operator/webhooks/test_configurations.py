"""What the webhook configurations say; what their conditions mean is tried on a real API server
(tests/seam/test_admission.py)."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.tenancy import TENANT
from trainmaster.jobs.models.v1jobs import PyTorchJob
from trainmaster.operator.webhooks.configurations import WebhookPlan, build_configurations

pytestmark = pytest.mark.unit

USER = "system:serviceaccount:trainmaster-system:trainmaster-operator"


def build(**fields: Any) -> dict[str, Object]:
    """All webhooks by name."""
    items = build_configurations(WebhookPlan(USER, "trainmaster-system", **fields))
    assert [item["metadata"]["name"] for item in items] == ["trainmaster-operator"] * 2
    found = {hook["name"]: hook for item in items for hook in item["webhooks"]}
    assert len(found) == sum(len(item["webhooks"]) for item in items), "names are unique"
    return found


def test_by_default_a_service_is_called_and_everything_is_refused_without_it() -> None:
    for hook in build(v1_jobs=(PyTorchJob,)).values():
        assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Fail", 5, "None")
        service = hook["clientConfig"]["service"]
        assert (service["namespace"], service["name"], service["port"]) == (
            "trainmaster-system",
            "trainmaster-operator",
            443,
        )
        assert "caBundle" not in hook["clientConfig"] and hook["matchConditions"]


def test_names_are_upstreams_because_they_stand_in_refusals() -> None:
    assert {
        "validator.trainjob.trainer.kubeflow.org",
        "validator.trainingruntime.trainer.kubeflow.org",
        "validator.clustertrainingruntime.trainer.kubeflow.org",
        "validator.pytorchjob.training-operator.kubeflow.org",
    } <= set(build(v1_jobs=(PyTorchJob,)))
    assert not any("pytorchjob" in name for name in build())


def test_the_values_of_an_installation_are_used() -> None:
    options = {"failure_policy": "Ignore", "timeout_seconds": 3, "url": "https://10.0.0.1:9443", "ca_bundle": "Y2E="}
    for hook in build(**options).values():
        assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Ignore", 3)
        assert hook["clientConfig"]["url"].startswith("https://10.0.0.1:9443/")
        assert hook["clientConfig"]["caBundle"] == "Y2E=" and "service" not in hook["clientConfig"]
    injected = {"cert-manager.io/inject-ca-from": "trainmaster-system/webhook"}
    for item in build_configurations(WebhookPlan(USER, "n", annotations=injected)):
        assert item["metadata"]["annotations"] == injected


def test_an_operator_of_some_namespaces_is_asked_about_these() -> None:
    place = {"key": "kubernetes.io/metadata.name", "operator": "In"}
    for name, hook in build(namespaces=("a", "b")).items():
        expressions = hook["namespaceSelector"]["matchExpressions"]
        wanted = ["kubeflow-system"] if name == "policy.trainmaster.dev" else ["a", "b"]
        assert expressions[0] == {**place, "values": wanted}
        assert ({"key": TENANT, "operator": "Exists"} in expressions) == name.startswith("reserved.")


def test_the_operator_is_not_asked_about_its_own_runtimes() -> None:
    hooks = build()
    for name, hook in hooks.items():
        texts = [condition["expression"] for condition in hook["matchConditions"]]
        is_runtime = "runtime" in name and name.startswith("validator.")
        assert (f"request.userInfo.username != '{USER}'" in texts) == is_runtime
        operations = {operation for rule in hook["rules"] for operation in rule["operations"]}
        assert ("DELETE" in operations) == is_runtime, "jobs can always be deleted"
        assert all("/" not in resource for rule in hook["rules"] for resource in rule["resources"]), "no status"
