"""What a new Pod gets, and what it may not ask for."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import PODS, make_pod, refusal
from tests.contract.client.stage import Stage
from trainmaster.api.meta import GVR
from trainmaster.client.contract import PatchType

pytestmark = pytest.mark.contract

PRIORITY_CLASSES = GVR("scheduling.k8s.io", "v1", "priorityclasses")


async def test_a_new_pod_is_pending_with_account_priority_and_defaults(stage: Stage) -> None:
    pod = await stage.client.create(PODS, make_pod(), stage.namespace)
    spec = pod["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["schedulerName"]) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    assert spec["terminationGracePeriodSeconds"] == 30
    assert pod["status"]["phase"] == "Pending"
    assert pod["status"]["qosClass"] == "BestEffort"
    assert pod["metadata"]["generation"] == 1


async def test_the_service_account_must_exist(stage: Stage) -> None:
    given = make_pod()
    given["spec"]["serviceAccountName"] = "nobody"
    assert await refusal(stage.client.create(PODS, given, stage.namespace)) == {
        "code": 403,
        "reason": "Forbidden",
        "message": f'pods "p" is forbidden: error looking up service account {stage.namespace}/nobody: serviceaccount '
        '"nobody" not found',
        "details": {"name": "p", "kind": "pods"},
    }


async def test_the_priority_comes_from_the_class(stage: Stage) -> None:
    name = stage.namespace
    given = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 7,
        "preemptionPolicy": "Never",
    }
    await stage.client.create(PRIORITY_CLASSES, given)
    pod = make_pod()
    pod["spec"]["priorityClassName"] = name
    made = await stage.client.create(PODS, pod, stage.namespace)
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
    await stage.client.delete(PRIORITY_CLASSES, name)


async def test_the_priority_class_must_exist(stage: Stage) -> None:
    given = make_pod()
    given["spec"]["priorityClassName"] = "none-such"
    assert await refusal(stage.client.create(PODS, given, stage.namespace)) == {
        "code": 403,
        "reason": "Forbidden",
        "message": 'pods "p" is forbidden: no PriorityClass with name none-such was found',
        "details": {"name": "p", "kind": "pods"},
    }


async def test_containers_are_required(stage: Stage) -> None:
    given = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
    assert await refusal(stage.client.create(PODS, given, stage.namespace)) == {
        "code": 422,
        "reason": "Invalid",
        "message": 'Pod "p" is invalid: spec.containers: Required value',
        "details": {
            "name": "p",
            "kind": "Pod",
            "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}],
        },
    }


async def test_most_of_a_pods_spec_can_not_be_changed(stage: Stage) -> None:
    await stage.client.create(PODS, make_pod(), stage.namespace)
    status = await refusal(
        stage.client.patch(PODS, "p", PatchType.MERGE, {"spec": {"hostname": "other"}}, stage.namespace)
    )
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(
        'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than '
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    )
    assert [(cause["reason"], cause["field"]) for cause in status["details"]["causes"]] == [
        ("FieldValueForbidden", "spec")
    ]
