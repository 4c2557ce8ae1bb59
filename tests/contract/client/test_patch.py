"""Patching: JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import CONFIG_MAPS, PODS, make_config_map, make_pod, refusal
from tests.contract.client.stage import Stage
from trainmaster.api.meta import Object
from trainmaster.client.contract import PatchType, WriteOptions

pytestmark = pytest.mark.contract

REJECTED = {
    "code": 422,
    "reason": "Invalid",
    "message": "the server rejected our request due to an error in our request",
}


async def begin(stage: Stage) -> Object:
    return await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v", "l": "w"}), stage.namespace)


async def patch(stage: Stage, kind: PatchType, body: object, options: WriteOptions | None = None) -> Object:
    return await stage.client.patch(CONFIG_MAPS, "a", kind, body, stage.namespace, options=options or WriteOptions())


async def test_a_merge_patch_sets_and_removes(stage: Stage) -> None:
    await begin(stage)
    new = await patch(stage, PatchType.MERGE, {"data": {"k": "x", "l": None, "m": "y"}})
    assert new["data"] == {"k": "x", "m": "y"}


async def test_a_json_patch_works_through_its_steps(stage: Stage) -> None:
    await begin(stage)
    steps = [
        {"op": "test", "path": "/data/k", "value": "v"},
        {"op": "add", "path": "/data/m", "value": "y"},
        {"op": "remove", "path": "/data/l"},
        {"op": "replace", "path": "/data/k", "value": "x"},
        {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
        {"op": "replace", "path": "/metadata/labels/a~1b", "value": "d"},
    ]
    new = await patch(stage, PatchType.JSON, steps)
    assert new["data"] == {"k": "x", "m": "y"}
    assert new["metadata"]["labels"] == {"a/b": "d"}


async def test_a_json_patch_can_test_the_revision(stage: Stage) -> None:
    old = await begin(stage)
    lock = {"op": "test", "path": "/metadata/resourceVersion", "value": old["metadata"]["resourceVersion"]}
    step = {"op": "replace", "path": "/data/k", "value": "x"}
    await patch(stage, PatchType.JSON, [lock, step])
    status = await refusal(patch(stage, PatchType.JSON, [lock, step]))
    assert {name: status[name] for name in REJECTED} == REJECTED


@pytest.mark.parametrize(
    "step",
    [
        pytest.param({"op": "test", "path": "/metadata/name", "value": "q"}, id="a test that fails"),
        pytest.param({"op": "remove", "path": "/data/nope"}, id="a path that is not there"),
        pytest.param({"op": "add", "path": "/nope/x/y", "value": 1}, id="a parent that is not there"),
        pytest.param({"op": "frob", "path": "/data/k"}, id="an operation that does not exist"),
    ],
)
async def test_a_json_patch_that_does_not_fit_is_refused(stage: Stage, step: Object) -> None:
    old = await begin(stage)
    status = await refusal(patch(stage, PatchType.JSON, [step]))
    assert {name: status[name] for name in REJECTED} == REJECTED
    assert await stage.client.get(CONFIG_MAPS, "a", stage.namespace) == old


async def test_a_strategic_patch_merges_lists_by_key(stage: Stage) -> None:
    await stage.client.create(PODS, make_pod(), stage.namespace)
    body = {"spec": {"containers": [{"name": "c", "image": "registry.example/image:2"}]}}
    new = await stage.client.patch(PODS, "p", PatchType.STRATEGIC, body, stage.namespace)
    [container] = new["spec"]["containers"]
    assert container["image"] == "registry.example/image:2"
    assert container["terminationMessagePath"] == "/dev/termination-log"


async def test_a_strategic_patch_removes_by_directive(stage: Stage) -> None:
    refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"uid-{name}"} for name in ("x", "y")]
    options = WriteOptions(dry_run=True)
    made = await stage.client.create(
        CONFIG_MAPS, make_config_map("b", ownerReferences=refs), stage.namespace, options=options
    )
    assert len(made["metadata"]["ownerReferences"]) == 2
    await stage.client.create(CONFIG_MAPS, make_config_map("a", finalizers=["x.io/a", "x.io/b"]), stage.namespace)
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}}
    assert (await patch(stage, PatchType.STRATEGIC, body))["metadata"]["finalizers"] == ["x.io/b"]
    await patch(stage, PatchType.MERGE, {"metadata": {"finalizers": None}})


async def test_a_patch_of_a_missing_object_is_not_found(stage: Stage) -> None:
    for kind, body in ((PatchType.MERGE, {}), (PatchType.JSON, []), (PatchType.STRATEGIC, {})):
        status = await refusal(patch(stage, kind, body))
        assert status == {
            "code": 404,
            "reason": "NotFound",
            "message": 'configmaps "a" not found',
            "details": {"name": "a", "kind": "configmaps"},
        }


async def test_a_stale_revision_in_a_patch_is_a_conflict(stage: Stage) -> None:
    await begin(stage)
    status = await refusal(patch(stage, PatchType.MERGE, {"metadata": {"resourceVersion": "1"}, "data": {"k": "x"}}))
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["message"].startswith('Operation cannot be fulfilled on configmaps "a": the object has been modified')


async def test_an_empty_revision_in_a_patch_is_no_lock(stage: Stage) -> None:
    await begin(stage)
    body = {"metadata": {"resourceVersion": ""}, "data": {"k": "x"}}
    assert (await patch(stage, PatchType.MERGE, body))["data"]["k"] == "x"


async def test_a_patch_that_changes_nothing_keeps_the_revision(stage: Stage) -> None:
    old = await begin(stage)
    assert await patch(stage, PatchType.MERGE, {"data": {"k": "v"}}) == old


async def test_a_patch_can_not_change_the_uid(stage: Stage) -> None:
    await begin(stage)
    text = 'Invalid value: "other": field is immutable'
    cause = {"reason": "FieldValueInvalid", "message": text, "field": "metadata.uid"}
    assert await refusal(patch(stage, PatchType.MERGE, {"metadata": {"uid": "other"}})) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'ConfigMap "a" is invalid: metadata.uid: {text}',
        "details": {"name": "a", "kind": "ConfigMap", "causes": [cause, cause]},
    }


async def test_a_patch_can_not_rename_or_move(stage: Stage) -> None:
    await begin(stage)
    assert await refusal(patch(stage, PatchType.MERGE, {"metadata": {"name": "b"}})) == {
        "code": 400,
        "reason": "BadRequest",
        "message": "the name of the object (b) does not match the name on the URL (a)",
    }
    assert await refusal(patch(stage, PatchType.MERGE, {"metadata": {"namespace": "b"}})) == {
        "code": 400,
        "reason": "BadRequest",
        "message": "the namespace of the provided object does not match the namespace sent on the request",
    }


async def test_unknown_fields_in_a_patch_are_dropped_or_refused(stage: Stage) -> None:
    await begin(stage)
    new = await patch(stage, PatchType.MERGE, {"bogus": 1, "data": {"k": "x"}})
    assert "bogus" not in new
    assert list(stage.client.warnings) == ['unknown field "bogus"']
    status = await refusal(patch(stage, PatchType.MERGE, {"bogus": 1}, WriteOptions(field_validation="Strict")))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(' "" is invalid: patch: Invalid value: ')
    assert status["message"].endswith('strict decoding error: unknown field "bogus"')
    assert [(cause["reason"], cause["field"]) for cause in status["details"]["causes"]] == [
        ("FieldValueInvalid", "patch")
    ]


async def test_a_wrong_type_in_a_patch_is_invalid(stage: Stage) -> None:
    await begin(stage)
    status = await refusal(patch(stage, PatchType.MERGE, {"data": {"k": 1}}))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].endswith(
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    )


async def test_patches_of_the_wrong_shape_are_bad_requests(stage: Stage) -> None:
    await begin(stage)
    for kind, body in ((PatchType.MERGE, [1]), (PatchType.JSON, {"a": 1}), (PatchType.STRATEGIC, [1])):
        status = await refusal(patch(stage, kind, body))
        assert (status["code"], status["reason"]) == (400, "BadRequest"), kind
        assert "json: cannot unmarshal " in status["message"], kind


async def test_a_dry_run_changes_nothing(stage: Stage) -> None:
    old = await begin(stage)
    new = await patch(stage, PatchType.MERGE, {"data": {"k": "x"}}, WriteOptions(dry_run=True))
    assert new["data"]["k"] == "x"
    assert await stage.client.get(CONFIG_MAPS, "a", stage.namespace) == old


async def test_managed_fields_can_be_replaced_by_json_patch(stage: Stage) -> None:
    old = await begin(stage)
    steps = [
        {"op": "replace", "path": "/metadata/managedFields", "value": [{}]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": old["metadata"]["resourceVersion"]},
    ]
    assert "managedFields" not in (await patch(stage, PatchType.JSON, steps))["metadata"]
