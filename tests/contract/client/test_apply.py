"""Server-side apply."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import CONFIG_MAPS, make_config_map, refusal
from tests.contract.client.stage import Stage
from trainmaster.api.meta import Object
from trainmaster.client.contract import PatchType, WriteOptions

pytestmark = pytest.mark.contract


async def apply(
    stage: Stage, data: dict[str, str], manager: str = "m", *, force: bool = False, name: str = "a", **metadata: object
) -> Object:
    options = WriteOptions(field_manager=manager, force=force)
    body = make_config_map(name, data, **metadata)
    return await stage.client.patch(CONFIG_MAPS, "a", PatchType.APPLY, body, stage.namespace, options=options)


def managers(obj: Object) -> list[tuple[str, str, Object]]:
    return [(entry["manager"], entry["operation"], entry["fieldsV1"]) for entry in obj["metadata"]["managedFields"]]


async def test_apply_creates_what_is_missing(stage: Stage) -> None:
    obj = await apply(stage, {"x": "1"})
    assert obj["data"] == {"x": "1"}
    assert managers(obj) == [("m", "Apply", {"f:data": {"f:x": {}}})]


async def test_the_same_apply_again_changes_nothing(stage: Stage) -> None:
    assert await apply(stage, {"x": "1"}) == await apply(stage, {"x": "1"})


async def test_what_a_manager_no_longer_applies_goes_away(stage: Stage) -> None:
    await apply(stage, {"x": "1", "y": "2"})
    assert (await apply(stage, {"x": "1"}))["data"] == {"x": "1"}


async def test_fields_of_others_stay(stage: Stage) -> None:
    await apply(stage, {"x": "1"})
    both = await apply(stage, {"y": "2"}, "n")
    assert both["data"] == {"x": "1", "y": "2"}
    assert (await apply(stage, {}))["data"] == {"y": "2"}


async def test_another_managers_field_is_a_conflict(stage: Stage) -> None:
    await apply(stage, {"x": "1"})
    assert await refusal(apply(stage, {"x": "2"}, "n")) == {
        "code": 409,
        "reason": "Conflict",
        "message": 'Apply failed with 1 conflict: conflict with "m": .data.x',
        "details": {"causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "m"', "field": ".data.x"}]},
    }


async def test_force_takes_the_field_over(stage: Stage) -> None:
    await apply(stage, {"x": "1"})
    obj = await apply(stage, {"x": "2"}, "n", force=True)
    assert obj["data"] == {"x": "2"}
    assert managers(obj) == [("n", "Apply", {"f:data": {"f:x": {}}})]


async def test_a_manager_can_give_up_its_fields(stage: Stage) -> None:
    """Our installer does it, so that others can apply without a conflict."""
    made = make_config_map("a", {"k": "v"})
    made["metadata"]["annotations"] = {"kept": "1"}
    options = WriteOptions(field_manager="installer")
    old = await stage.client.create(CONFIG_MAPS, made, stage.namespace, options=options)
    (entry,) = old["metadata"]["managedFields"]
    annotations = entry["fieldsV1"]["f:metadata"]["f:annotations"]
    given = [{**entry, "fieldsV1": {"f:metadata": {"f:annotations": annotations}}}]
    patch = {"metadata": {"managedFields": given, "annotations": {"sealed": "2"}}}
    new = await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, patch, stage.namespace, options=options)
    (entry,) = new["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:metadata": {"f:annotations": {".": {}, "f:kept": {}, "f:sealed": {}}}}
    assert (await apply(stage, {"k": "w"}, "one"))["data"] == {"k": "w"}


async def test_equal_values_are_owned_together(stage: Stage) -> None:
    await apply(stage, {"x": "1"})
    obj = await apply(stage, {"x": "1"}, "n")
    assert sorted(manager for manager, _, _ in managers(obj)) == ["m", "n"]


async def test_an_update_owns_what_it_changes(stage: Stage) -> None:
    await apply(stage, {"x": "1"})
    options = WriteOptions(field_manager="u")
    await stage.client.patch(CONFIG_MAPS, "a", PatchType.MERGE, {"data": {"x": "2"}}, stage.namespace, options=options)
    status = await refusal(apply(stage, {"x": "3"}))
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "u" using v1: .data.x'


async def test_a_manager_is_required(stage: Stage) -> None:
    text = "Required value: is required for apply patch"
    assert await refusal(apply(stage, {}, "")) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {text}',
        "details": {
            "group": "meta.k8s.io",
            "kind": "PatchOptions",
            "causes": [{"reason": "FieldValueRequired", "message": text, "field": "fieldManager"}],
        },
    }


async def test_the_body_may_not_carry_managed_fields(stage: Stage) -> None:
    assert await refusal(apply(stage, {}, managedFields=[{"manager": "x"}])) == {
        "code": 400,
        "reason": "BadRequest",
        "message": "metadata.managedFields must be nil",
    }


async def test_the_body_must_name_the_object(stage: Stage) -> None:
    assert await refusal(apply(stage, {}, name="b")) == {
        "code": 400,
        "reason": "BadRequest",
        "message": "the name of the object (b) does not match the name on the URL (a)",
    }


async def test_the_body_must_be_of_the_kind(stage: Stage) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    options = WriteOptions(field_manager="m")
    assert await refusal(
        stage.client.patch(CONFIG_MAPS, "a", PatchType.APPLY, body, stage.namespace, options=options)
    ) == {"code": 400, "reason": "BadRequest", "message": "invalid object type: /v1, Kind=Secret"}


async def test_a_stale_revision_is_a_conflict(stage: Stage) -> None:
    await apply(stage, {"x": "1"})
    status = await refusal(apply(stage, {"x": "2"}, resourceVersion="1"))
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["message"].startswith('Operation cannot be fulfilled on configmaps "a": the object has been modified')


async def test_a_uid_means_an_object_that_exists(stage: Stage) -> None:
    assert await refusal(apply(stage, {"x": "2"}, uid="other")) == {
        "code": 409,
        "reason": "Conflict",
        "message": 'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object specified uid '
        "other, and no existing object was found",
        "details": {"name": "a", "kind": "configmaps"},
    }


async def test_a_dry_run_stores_nothing(stage: Stage) -> None:
    old = await apply(stage, {"x": "1"})
    options = WriteOptions(field_manager="m", dry_run=True)
    body = make_config_map("a", {"x": "2"})
    new = await stage.client.patch(CONFIG_MAPS, "a", PatchType.APPLY, body, stage.namespace, options=options)
    assert new["data"] == {"x": "2"}
    assert await stage.client.get(CONFIG_MAPS, "a", stage.namespace) == old
