"""Creating objects."""

from __future__ import annotations

import re

import pytest

from tests.contract.client.objects import CONFIG_MAPS, JOBS, NAMESPACES, make_config_map, make_job, refusal
from tests.contract.client.stage import Stage
from trainmaster.api.status import NotFound
from trainmaster.client.contract import WriteOptions

pytestmark = pytest.mark.contract

NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


async def test_a_new_object_gets_uid_resource_version_time_and_namespace(stage: Stage) -> None:
    obj = await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace)
    metadata = obj["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"[1-9][0-9]*", metadata["resourceVersion"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["namespace"] == stage.namespace
    assert obj["data"] == {"k": "v"}
    assert (obj["apiVersion"], obj["kind"]) == ("v1", "ConfigMap")
    assert await stage.client.get(CONFIG_MAPS, "a", stage.namespace) == obj


async def test_what_only_the_server_decides_is_not_taken_from_the_body(stage: Stage) -> None:
    given = make_config_map(
        "a",
        uid="mine",
        creationTimestamp="2020-01-01T00:00:00Z",
        deletionTimestamp="2020-01-01T00:00:00Z",
        selfLink="/x",
    )
    metadata = (await stage.client.create(CONFIG_MAPS, given, stage.namespace))["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] > "2020-01-02"
    assert "deletionTimestamp" not in metadata
    assert "selfLink" not in metadata


async def test_generation_starts_at_one_for_kinds_that_count_it(stage: Stage) -> None:
    job = await stage.client.create(JOBS, make_job(), stage.namespace)
    assert job["metadata"]["generation"] == 1
    config_map = await stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)
    assert "generation" not in config_map["metadata"]


async def test_status_is_not_taken_from_the_body(stage: Stage) -> None:
    given = {**make_job(), "status": {"succeeded": 5}}
    job = await stage.client.create(JOBS, given, stage.namespace)
    assert "succeeded" not in job.get("status", {})


async def test_a_name_is_generated_from_a_prefix(stage: Stage) -> None:
    given = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "run-"}}
    names = {(await stage.client.create(CONFIG_MAPS, given, stage.namespace))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"run-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


async def test_a_long_prefix_is_cut_so_that_the_name_fits_a_label(stage: Stage) -> None:
    given = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x" * 70}}
    obj = await stage.client.create(CONFIG_MAPS, given, stage.namespace)
    assert len(obj["metadata"]["name"]) == 63


async def test_a_second_object_of_the_same_name_is_refused(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)
    assert await refusal(stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)) == {
        "code": 409,
        "reason": "AlreadyExists",
        "message": 'configmaps "a" already exists',
        "details": {"name": "a", "kind": "configmaps"},
    }


async def test_the_name_of_an_object_that_is_being_deleted_is_still_taken(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAPS, make_config_map(finalizers=["example.com/hold"]), stage.namespace)
    await stage.client.delete(CONFIG_MAPS, "a", stage.namespace)
    assert await refusal(stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)) == {
        "code": 409,
        "reason": "AlreadyExists",
        "message": 'object is being deleted: configmaps "a" already exists',
        "details": {"name": "a", "kind": "configmaps"},
    }
    await stage.client.update(CONFIG_MAPS, make_config_map(), stage.namespace)


async def test_a_body_without_a_name_is_refused(stage: Stage) -> None:
    given = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    text = "Required value: name or generateName is required"
    assert await refusal(stage.client.create(CONFIG_MAPS, given, stage.namespace)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'ConfigMap "" is invalid: metadata.name: {text}',
        "details": {
            "kind": "ConfigMap",
            "causes": [{"reason": "FieldValueRequired", "message": text, "field": "metadata.name"}],
        },
    }


async def test_a_malformed_name_is_refused(stage: Stage) -> None:
    text = f'Invalid value: "Bad_Name": {NAME_RULE}'
    assert await refusal(stage.client.create(CONFIG_MAPS, make_config_map("Bad_Name"), stage.namespace)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'ConfigMap "Bad_Name" is invalid: metadata.name: {text}',
        "details": {
            "name": "Bad_Name",
            "kind": "ConfigMap",
            "causes": [{"reason": "FieldValueInvalid", "message": text, "field": "metadata.name"}],
        },
    }


async def test_the_body_may_not_name_another_namespace(stage: Stage) -> None:
    given = make_config_map(namespace="other")
    assert await refusal(stage.client.create(CONFIG_MAPS, given, stage.namespace)) == {
        "code": 400,
        "reason": "BadRequest",
        "message": "the namespace of the provided object does not match the namespace sent on the request",
    }


async def test_the_namespace_of_a_cluster_scoped_body_is_dropped(stage: Stage) -> None:
    name = f"{stage.namespace}-x"
    given = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "namespace": "foo"}}
    obj = await stage.client.create(NAMESPACES, given, options=WriteOptions(dry_run=True))
    assert "namespace" not in obj["metadata"]


async def test_a_namespace_that_does_not_exist_takes_nothing(stage: Stage) -> None:
    assert await refusal(stage.client.create(CONFIG_MAPS, make_config_map(), "no-such")) == {
        "code": 404,
        "reason": "NotFound",
        "message": 'namespaces "no-such" not found',
        "details": {"name": "no-such", "kind": "namespaces"},
    }


async def test_a_dry_run_answers_and_stores_nothing(stage: Stage) -> None:
    options = WriteOptions(dry_run=True)
    obj = await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace, options=options)
    assert obj["data"] == {"k": "v"}
    assert "resourceVersion" not in obj["metadata"]
    assert obj["metadata"]["uid"]
    with pytest.raises(NotFound):
        await stage.client.get(CONFIG_MAPS, "a", stage.namespace)


async def test_a_dry_run_refuses_what_would_be_refused(stage: Stage) -> None:
    await stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)
    options = WriteOptions(dry_run=True)
    status = await refusal(stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace, options=options))
    assert status["reason"] == "AlreadyExists"


async def test_unknown_fields_are_refused_when_strict(stage: Stage) -> None:
    given = {**make_config_map(), "bogus": 1}
    options = WriteOptions(field_validation="Strict")
    assert await refusal(stage.client.create(CONFIG_MAPS, given, stage.namespace, options=options)) == {
        "code": 400,
        "reason": "BadRequest",
        "message": 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field '
        '"bogus"',
    }


async def test_unknown_fields_are_dropped_with_a_warning_by_default(stage: Stage) -> None:
    given = {**make_config_map(), "bogus": 1}
    obj = await stage.client.create(CONFIG_MAPS, given, stage.namespace)
    assert "bogus" not in obj
    assert list(stage.client.warnings) == ['unknown field "bogus"']


async def test_unknown_fields_are_dropped_silently_when_ignored(stage: Stage) -> None:
    given = {**make_config_map(), "bogus": 1}
    options = WriteOptions(field_validation="Ignore")
    obj = await stage.client.create(CONFIG_MAPS, given, stage.namespace, options=options)
    assert "bogus" not in obj
    assert not stage.client.warnings


async def test_an_unknown_mode_of_field_validation_is_refused(stage: Stage) -> None:
    options = WriteOptions(field_validation="Foo")
    text = 'Unsupported value: "Foo": supported values: "", "Ignore", "Strict", "Warn"'
    assert await refusal(stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace, options=options)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: {text}',
        "details": {
            "group": "meta.k8s.io",
            "kind": "CreateOptions",
            "causes": [{"reason": "FieldValueNotSupported", "message": text, "field": "fieldValidation"}],
        },
    }


async def test_a_wrong_type_is_refused(stage: Stage) -> None:
    given = {**make_config_map(), "data": {"a": 1}}
    assert await refusal(stage.client.create(CONFIG_MAPS, given, stage.namespace)) == {
        "code": 400,
        "reason": "BadRequest",
        "message": 'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go '
        "struct field ConfigMap.data of type string",
    }


async def test_the_writer_is_recorded_as_the_manager_of_its_fields(stage: Stage) -> None:
    options = WriteOptions(field_manager="me")
    obj = await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace, options=options)
    [entry] = obj["metadata"]["managedFields"]
    assert entry == {
        "manager": "me",
        "operation": "Update",
        "apiVersion": "v1",
        "time": obj["metadata"]["creationTimestamp"],
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {".": {}, "f:k": {}}},
    }
