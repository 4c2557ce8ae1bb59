"""Replacing objects: the optimistic lock, what can not be changed, status apart from the rest."""

from __future__ import annotations

import copy

import pytest

from tests.contract.client.objects import (
    CONFIG_MAPS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    make_config_map,
    make_job,
    make_pod,
    refusal,
)
from tests.contract.client.stage import Stage
from trainmaster.client.contract import PatchType, WriteOptions

pytestmark = pytest.mark.contract

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_an_update_replaces_the_object_and_keeps_its_identity(stage: Stage) -> None:
    old = await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}, labels={"l": "1"}), stage.namespace)
    new = await stage.client.update(CONFIG_MAPS, make_config_map("a", {"k": "w"}), stage.namespace)
    assert new["data"] == {"k": "w"}
    assert "labels" not in new["metadata"]
    for name in ("uid", "creationTimestamp", "namespace"):
        assert new["metadata"][name] == old["metadata"][name]
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])


async def test_another_spelling_of_an_immutable_field_is_no_change(stage: Stage) -> None:
    """Go clients leave out empty texts and values that are false or zero."""
    job = make_job()
    container = job["spec"]["template"]["spec"]["containers"][0]
    container |= {"env": [{"name": "A", "value": ""}], "stdin": False, "resources": {"limits": {"cpu": "1000m"}}}
    old = await stage.client.create(JOBS, job, stage.namespace)
    given = copy.deepcopy(old)
    read = given["spec"]["template"]["spec"]["containers"][0]
    read |= {"env": [{"name": "A"}], "resources": {"limits": {"cpu": "1"}}}
    read.pop("stdin", None)
    # On a cluster the Job's controller writes its status in between.
    del given["metadata"]["resourceVersion"]
    new = await stage.client.update(JOBS, given, stage.namespace)
    assert new["metadata"]["generation"] == old["metadata"]["generation"]
    read["env"] = [{"name": "A", "value": "x"}]
    assert (await refusal(stage.client.update(JOBS, given, stage.namespace)))["code"] == 422


async def test_an_update_of_a_missing_object_is_not_found(stage: Stage) -> None:
    assert await refusal(stage.client.update(CONFIG_MAPS, make_config_map("zzz"), stage.namespace)) == {
        "code": 404,
        "reason": "NotFound",
        "message": 'configmaps "zzz" not found',
        "details": {"name": "zzz", "kind": "configmaps"},
    }


async def test_a_stale_revision_is_a_conflict(stage: Stage) -> None:
    old = await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace)
    await stage.client.update(CONFIG_MAPS, {**old, "data": {"k": "w"}}, stage.namespace)
    assert await refusal(stage.client.update(CONFIG_MAPS, {**old, "data": {"k": "x"}}, stage.namespace)) == {
        "code": 409,
        "reason": "Conflict",
        "message": f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}',
        "details": {"name": "a", "kind": "configmaps"},
    }


async def test_the_uid_of_a_predecessor_is_a_conflict(stage: Stage) -> None:
    old = await stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)
    assert await refusal(stage.client.update(CONFIG_MAPS, make_config_map(uid="other"), stage.namespace)) == {
        "code": 409,
        "reason": "Conflict",
        "message": 'Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: '
        f"/registry/configmaps/{stage.namespace}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID "
        f"in precondition: other, UID in object meta: {old['metadata']['uid']}",
        "details": {"name": "a", "kind": "configmaps"},
    }


async def test_an_update_that_changes_nothing_keeps_the_revision(stage: Stage) -> None:
    old = await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace)
    assert await stage.client.update(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace) == old


async def test_a_dry_run_changes_nothing(stage: Stage) -> None:
    old = await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace)
    options = WriteOptions(dry_run=True)
    new = await stage.client.update(CONFIG_MAPS, make_config_map("a", {"k": "w"}), stage.namespace, options=options)
    assert new["data"] == {"k": "w"}
    assert await stage.client.get(CONFIG_MAPS, "a", stage.namespace) == old


async def test_the_namespace_must_fit(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)
    status = await refusal(stage.client.update(CONFIG_MAPS, make_config_map(namespace="other"), stage.namespace))
    assert status == {
        "code": 400,
        "reason": "BadRequest",
        "message": "the namespace of the provided object does not match the namespace sent on the request",
    }


async def test_times_and_generation_in_the_body_are_ignored(stage: Stage) -> None:
    old = await stage.client.create(JOBS, make_job(), stage.namespace)
    changed = {"resourceVersion": "", "creationTimestamp": "2020-01-01T00:00:00+00:00", "generation": 77}
    given = {**old, "metadata": {**old["metadata"], **changed}}
    new = await stage.client.update(JOBS, given, stage.namespace)
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert new["metadata"]["generation"] == 1


async def test_nobody_can_mark_an_object_as_deleted(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)
    given = make_config_map(deletionTimestamp="2020-01-01T00:00:00Z")
    text = 'Invalid value: "2020-01-01T00:00:00Z": field is immutable'
    cause = {"reason": "FieldValueInvalid", "message": text, "field": "metadata.deletionTimestamp"}
    assert await refusal(stage.client.update(CONFIG_MAPS, given, stage.namespace)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'ConfigMap "a" is invalid: metadata.deletionTimestamp: {text}',
        "details": {"name": "a", "kind": "ConfigMap", "causes": [cause, cause]},
    }


async def test_generation_counts_changes_of_the_spec_only(stage: Stage) -> None:
    await stage.client.create(JOBS, make_job(), stage.namespace)
    labelled = await stage.client.patch(
        JOBS, "j", PatchType.MERGE, {"metadata": {"labels": {"a": "b"}}}, stage.namespace
    )
    assert labelled["metadata"]["generation"] == 1
    changed = await stage.client.patch(JOBS, "j", PatchType.MERGE, {"spec": {"backoffLimit": 2}}, stage.namespace)
    assert changed["metadata"]["generation"] == 2
    status = {"status": {"conditions": [{"type": "Mine", "status": "True"}]}}
    after = await stage.client.patch(JOBS, "j", PatchType.MERGE, status, stage.namespace, subresource="status")
    assert after["metadata"]["generation"] == 2


async def test_status_is_written_through_its_subresource_only(stage: Stage) -> None:
    await stage.client.create(PODS, make_pod(), stage.namespace)
    main = await stage.client.patch(PODS, "p", PatchType.MERGE, {"status": {"message": "m"}}, stage.namespace)
    assert "message" not in main["status"]
    patch = {"status": {"message": "m"}, "spec": {"nodeName": "n"}, "metadata": {"labels": {"a": "b"}}}
    through = await stage.client.patch(PODS, "p", PatchType.MERGE, patch, stage.namespace, subresource="status")
    assert through["status"]["message"] == "m"
    assert "nodeName" not in through["spec"]
    # Built-in kinds let labels through.
    assert through["metadata"]["labels"] == {"a": "b"}


async def test_immutable_data_stays(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAPS, {**make_config_map("a", {"k": "v"}), "immutable": True}, stage.namespace)
    given = {**make_config_map("a", {"k": "w"}), "immutable": True}
    text = "Forbidden: field is immutable when `immutable` is set"
    assert await refusal(stage.client.update(CONFIG_MAPS, given, stage.namespace)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'ConfigMap "a" is invalid: data: {text}',
        "details": {
            "name": "a",
            "kind": "ConfigMap",
            "causes": [{"reason": "FieldValueForbidden", "message": text, "field": "data"}],
        },
    }


async def test_some_built_in_kinds_are_created_by_put_and_then_need_a_revision(stage: Stage) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a"},
    }
    made = await stage.client.update(LEASES, lease, stage.namespace)
    assert made["spec"] == {"holderIdentity": "a"}
    text = "Invalid value: 0: must be specified for an update"
    assert await refusal(stage.client.update(LEASES, lease, stage.namespace)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: {text}',
        "details": {
            "name": "l",
            "group": "coordination.k8s.io",
            "kind": "leases",
            "causes": [{"reason": "FieldValueInvalid", "message": text, "field": "metadata.resourceVersion"}],
        },
    }


async def test_a_namespace_keeps_its_finalizer_and_its_name_label(stage: Stage) -> None:
    given = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace}, "spec": {}}
    new = await stage.client.update(NAMESPACES, given)
    assert new["spec"] == {"finalizers": ["kubernetes"]}
    assert new["status"] == {"phase": "Active"}
    assert new["metadata"]["labels"] == {"kubernetes.io/metadata.name": stage.namespace}
