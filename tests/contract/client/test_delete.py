"""Deleting: preconditions, finalizers, grace and selections."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client.objects import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    make_config_map,
    make_job,
    make_pod,
    refusal,
)
from tests.contract.client.stage import Stage
from trainmaster.api.meta import Object
from trainmaster.api.status import NotFound
from trainmaster.client.contract import DeleteOptions, ListOptions, PatchType

pytestmark = pytest.mark.contract

HOLD = "example.com/hold"


async def is_gone(stage: Stage, name: str = "a") -> bool:
    try:
        await stage.client.get(CONFIG_MAPS, name, stage.namespace)
    except NotFound:
        return True
    return False


async def begin(stage: Stage, **metadata: Any) -> Object:
    return await stage.client.create(CONFIG_MAPS, make_config_map("a", None, **metadata), stage.namespace)


async def test_an_object_that_nothing_holds_is_gone_at_once(stage: Stage) -> None:
    made = await begin(stage)
    assert await stage.client.delete(CONFIG_MAPS, "a", stage.namespace) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    assert await is_gone(stage)


async def test_a_missing_object_is_not_found(stage: Stage) -> None:
    status = await refusal(stage.client.delete(CONFIG_MAPS, "zzz", stage.namespace))
    assert (status["code"], status["message"]) == (404, 'configmaps "zzz" not found')


async def test_preconditions_must_hold(stage: Stage) -> None:
    metadata = (await begin(stage))["metadata"]
    assert await refusal(stage.client.delete(CONFIG_MAPS, "a", stage.namespace, DeleteOptions(uid="other"))) == {
        "code": 409,
        "reason": "Conflict",
        "message": f'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (other) does not '
        f"match the UID in record ({metadata['uid']}). The object might have been deleted and then recreated",
        "details": {"name": "a", "kind": "ConfigMap"},
    }
    assert await refusal(
        stage.client.delete(CONFIG_MAPS, "a", stage.namespace, DeleteOptions(resource_version="1"))
    ) == {
        "code": 409,
        "reason": "Conflict",
        "message": 'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does '
        f"not match the ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified",
        "details": {"name": "a", "kind": "ConfigMap"},
    }
    right = DeleteOptions(uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    await stage.client.delete(CONFIG_MAPS, "a", stage.namespace, right)
    assert await is_gone(stage)


async def test_an_unknown_propagation_policy_is_refused(stage: Stage) -> None:
    await begin(stage)
    text = 'Unsupported value: "Foo": supported values: "Foreground", "Background", "Orphan", "nil"'
    assert await refusal(stage.client.delete(CONFIG_MAPS, "a", stage.namespace, DeleteOptions("Foo"))) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: {text}',
        "details": {
            "group": "meta.k8s.io",
            "kind": "DeleteOptions",
            "causes": [{"reason": "FieldValueNotSupported", "message": text, "field": "propagationPolicy"}],
        },
    }


async def test_a_dry_run_deletes_nothing(stage: Stage) -> None:
    await begin(stage)
    answer = await stage.client.delete(CONFIG_MAPS, "a", stage.namespace, DeleteOptions(dry_run=True))
    assert answer["status"] == "Success"
    assert not await is_gone(stage)


async def test_finalizers_hold_an_object(stage: Stage) -> None:
    made = await begin(stage, finalizers=[HOLD])
    going = await stage.client.delete(CONFIG_MAPS, "a", stage.namespace)
    assert going["metadata"]["deletionTimestamp"] >= made["metadata"]["creationTimestamp"]
    assert going["metadata"]["deletionGracePeriodSeconds"] == 0
    assert going["metadata"]["finalizers"] == [HOLD]
    # Deleting again changes nothing.
    assert await stage.client.delete(CONFIG_MAPS, "a", stage.namespace) == going
    # It can still be changed.
    edited = await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"k": "v"}}, stage.namespace)
    assert edited["data"] == {"k": "v"}
    patch = {"metadata": {"finalizers": None}}
    last = await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, patch, stage.namespace)
    assert "finalizers" not in last["metadata"]
    assert last["metadata"]["resourceVersion"] == edited["metadata"]["resourceVersion"]
    assert await is_gone(stage)


async def test_a_deleted_object_takes_no_new_finalizers(stage: Stage) -> None:
    await begin(stage, finalizers=[HOLD])
    await stage.client.delete(CONFIG_MAPS, "a", stage.namespace)
    patch: Object = {"metadata": {"finalizers": [HOLD, "example.com/more"]}}
    text = (
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        '[]string{"example.com/more"}'
    )
    cause = {"reason": "FieldValueForbidden", "message": text, "field": "metadata.finalizers"}
    assert await refusal(stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, patch, stage.namespace)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'ConfigMap "a" is invalid: metadata.finalizers: {text}',
        "details": {"name": "a", "kind": "ConfigMap", "causes": [cause, cause]},
    }
    await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"metadata": {"finalizers": []}}, stage.namespace)
    assert await is_gone(stage)


async def test_deletion_counts_as_a_generation(stage: Stage) -> None:
    await stage.client.create(JOBS, {**make_job(), "metadata": {"name": "j", "finalizers": [HOLD]}}, stage.namespace)
    going = await stage.client.delete(JOBS, "j", stage.namespace, DeleteOptions("Background"))
    assert going["metadata"]["generation"] == 2
    await stage.client.patch(JOBS, "j", PatchType.MERGE, {"metadata": {"finalizers": None}}, stage.namespace)


async def test_jobs_orphan_their_pods_unless_told_otherwise_and_say_so(stage: Stage) -> None:
    await stage.client.create(JOBS, make_job(), stage.namespace)
    going = await stage.client.delete(JOBS, "j", stage.namespace)
    assert going["metadata"]["finalizers"] == ["orphan"]
    assert list(stage.client.warnings) == [
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
        "set propagationPolicy=Orphan to suppress this warning"
    ]


async def test_a_pod_without_a_node_is_gone_at_once(stage: Stage) -> None:
    await stage.client.create(PODS, make_pod(), stage.namespace)
    answer = await stage.client.delete(PODS, "p", stage.namespace)
    # Pods are among the kinds that are answered with their last state.
    assert answer["kind"] == "Pod"
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert answer["metadata"]["generation"] == 2
    with pytest.raises(NotFound):
        await stage.client.get(PODS, "p", stage.namespace)


async def test_a_pod_on_a_node_stays_until_the_node_confirms(stage: Stage) -> None:
    await stage.client.create(PODS, make_pod(node="n1"), stage.namespace)
    going = await stage.client.delete(PODS, "p", stage.namespace)
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    again = await stage.client.delete(PODS, "p", stage.namespace)
    assert again["metadata"]["deletionTimestamp"] == going["metadata"]["deletionTimestamp"]
    shorter = await stage.client.delete(PODS, "p", stage.namespace, DeleteOptions(grace_seconds=5))
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < going["metadata"]["deletionTimestamp"]
    longer = await stage.client.delete(PODS, "p", stage.namespace, DeleteOptions(grace_seconds=50))
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
    await stage.client.delete(PODS, "p", stage.namespace, DeleteOptions(grace_seconds=0))
    with pytest.raises(NotFound):
        await stage.client.get(PODS, "p", stage.namespace)


async def test_a_finished_pod_is_gone_at_once(stage: Stage) -> None:
    await stage.client.create(PODS, make_pod(node="n1"), stage.namespace)
    status = {"status": {"phase": "Succeeded"}}
    await stage.client.patch(PODS, "p", PatchType.MERGE, status, stage.namespace, subresource="status")
    await stage.client.delete(PODS, "p", stage.namespace)
    with pytest.raises(NotFound):
        await stage.client.get(PODS, "p", stage.namespace)


async def test_a_selection_is_deleted_and_listed(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        labels = {"suite": "yes"} if name != "c" else {}
        await stage.client.create(CONFIG_MAPS, make_config_map(name, labels=labels), stage.namespace)
    deleted = await stage.client.delete_collection(CONFIG_MAPS, stage.namespace, ListOptions("suite=yes"))
    assert sorted(item["metadata"]["name"] for item in deleted) == ["a", "b"]
    left = await stage.client.list(CONFIG_MAPS, stage.namespace)
    assert "c" in [item["metadata"]["name"] for item in left.items]
    assert await is_gone(stage, "a")


async def test_a_dry_run_of_a_selection_deletes_nothing(stage: Stage) -> None:
    await begin(stage)
    await stage.client.delete_collection(CONFIG_MAPS, stage.namespace, options=DeleteOptions(dry_run=True))
    assert not await is_gone(stage)
