"""Custom kinds. On the real server they come from the CRDs that we publish, so this also proves those."""

from __future__ import annotations

import pytest

from tests.contract.client.objects import (
    DEFINITIONS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    ensure_runtime,
    make_train_job,
    refusal,
)
from tests.contract.client.stage import Stage
from trainmaster.client.contract import DeleteOptions, PatchType, WriteOptions

pytestmark = pytest.mark.contract


async def test_a_train_job_is_stored_with_its_defaults(stage: Stage) -> None:
    await ensure_runtime(stage.client)
    obj = await stage.client.create(TRAIN_JOBS, make_train_job(), stage.namespace)
    assert obj["metadata"]["generation"] == 1
    assert obj["spec"]["suspend"] is False
    assert obj["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": "torch-distributed",
    }


async def test_a_runtime_may_have_no_spec_but_not_an_empty_one(stage: Stage) -> None:
    """So none can be filled in: what was read could not be written back."""
    bare = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "bare"}}
    made = await stage.client.create(TRAINING_RUNTIMES, bare, stage.namespace)
    assert "spec" not in made
    assert "spec" not in await stage.client.update(TRAINING_RUNTIMES, made, stage.namespace)
    status = await refusal(stage.client.update(TRAINING_RUNTIMES, {**made, "spec": {}}, stage.namespace))
    text = "spec: Invalid value: 0: spec in body should have at least 1 properties"
    assert status["message"] == f'TrainingRuntime.trainer.kubeflow.org "bare" is invalid: {text}'


async def test_the_definition_of_a_kind_can_be_read(stage: Stage) -> None:
    obj = await stage.client.get(DEFINITIONS, "trainjobs.trainer.kubeflow.org")
    assert obj["spec"]["names"]["kind"] == "TrainJob"
    assert obj["spec"]["versions"][0]["subresources"] == {"status": {}}
    conditions = {condition["type"]: condition["status"] for condition in obj["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert obj["status"]["storedVersions"] == ["v1alpha1"]
    assert obj["metadata"]["uid"]


async def test_a_strategic_patch_is_not_for_custom_kinds(stage: Stage) -> None:
    await ensure_runtime(stage.client)
    await stage.client.create(TRAIN_JOBS, make_train_job(), stage.namespace)
    status = await refusal(stage.client.patch(TRAIN_JOBS, "t", PatchType.STRATEGIC, {"spec": {}}, stage.namespace))
    assert status == {
        "code": 415,
        "reason": "UnsupportedMediaType",
        "message": "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    }


async def test_an_update_needs_the_revision(stage: Stage) -> None:
    await ensure_runtime(stage.client)
    made = await stage.client.create(TRAIN_JOBS, make_train_job(), stage.namespace)
    del made["metadata"]["resourceVersion"]
    text = "Invalid value: 0: must be specified for an update"
    want = {
        "code": 422,
        "reason": "Invalid",
        "message": f'trainjobs.trainer.kubeflow.org "t" is invalid: metadata.resourceVersion: {text}',
        "details": {
            "name": "t",
            "group": "trainer.kubeflow.org",
            "kind": "trainjobs",
            "causes": [{"reason": "FieldValueInvalid", "message": text, "field": "metadata.resourceVersion"}],
        },
    }
    assert await refusal(stage.client.update(TRAIN_JOBS, made, stage.namespace)) == want
    patch = {"metadata": {"resourceVersion": ""}}
    assert await refusal(stage.client.patch(TRAIN_JOBS, "t", PatchType.MERGE, patch, stage.namespace)) == want


async def test_a_status_write_keeps_everything_else(stage: Stage) -> None:
    await ensure_runtime(stage.client)
    await stage.client.create(TRAIN_JOBS, make_train_job(), stage.namespace)
    patch = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"suspend": True},
        "status": {"jobsStatus": [
            {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
        ]},
    }  # fmt: skip
    obj = await stage.client.patch(TRAIN_JOBS, "t", PatchType.MERGE, patch, stage.namespace, subresource="status")
    assert obj["status"]["jobsStatus"][0]["name"] == "node"
    assert obj["spec"]["suspend"] is False
    assert "labels" not in obj["metadata"]
    assert obj["metadata"]["generation"] == 1
    main = await stage.client.patch(TRAIN_JOBS, "t", PatchType.MERGE, {"status": None}, stage.namespace)
    assert main["status"] == obj["status"]
    assert main["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]


async def test_a_change_of_the_spec_counts(stage: Stage) -> None:
    await ensure_runtime(stage.client)
    await stage.client.create(TRAIN_JOBS, make_train_job(), stage.namespace)
    obj = await stage.client.patch(TRAIN_JOBS, "t", PatchType.MERGE, {"spec": {"suspend": True}}, stage.namespace)
    assert obj["metadata"]["generation"] == 2


async def test_an_immutable_field_is_refused_with_the_rules_own_words(stage: Stage) -> None:
    await ensure_runtime(stage.client)
    await stage.client.create(TRAIN_JOBS, make_train_job(managedBy="kueue.x-k8s.io/multikueue"), stage.namespace)
    status = await refusal(
        stage.client.patch(
            TRAIN_JOBS,
            "t",
            PatchType.MERGE,
            {"spec": {"managedBy": "trainer.kubeflow.org/trainjob-controller"}},
            stage.namespace,
        )
    )
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert "spec.managedBy" in [cause["field"] for cause in status["details"]["causes"]]


async def test_a_wrong_type_is_named(stage: Stage) -> None:
    given = make_train_job(trainer={"numNodes": "two"})
    text = 'Invalid value: "string": spec.trainer.numNodes in body must be of type integer: "string"'
    status = await refusal(stage.client.create(TRAIN_JOBS, given, stage.namespace))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert {"reason": "FieldValueTypeInvalid", "message": text, "field": "spec.trainer.numNodes"} in status["details"][
        "causes"
    ]


async def test_a_required_field_is_named(stage: Stage) -> None:
    given = make_train_job()
    del given["spec"]["runtimeRef"]
    status = await refusal(stage.client.create(TRAIN_JOBS, given, stage.namespace))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.runtimeRef"} in status[
        "details"
    ]["causes"]


async def test_unknown_fields_are_refused_when_strict(stage: Stage) -> None:
    given = {**make_train_job(bogus=1), "foo": 2}
    options = WriteOptions(field_validation="Strict")
    assert await refusal(stage.client.create(TRAIN_JOBS, given, stage.namespace, options=options)) == {
        "code": 400,
        "reason": "BadRequest",
        "message": 'TrainJob in version "v1alpha1" cannot be handled as a TrainJob: strict decoding error: unknown '
        'field "foo", unknown field "spec.bogus"',
    }


async def test_another_kind_is_refused(stage: Stage) -> None:
    given = {**make_train_job(), "kind": "TrainJab"}
    text = 'Invalid value: "TrainJab": must be TrainJob'
    assert await refusal(stage.client.create(TRAIN_JOBS, given, stage.namespace)) == {
        "code": 422,
        "reason": "Invalid",
        "message": f'TrainJab.trainer.kubeflow.org "t" is invalid: kind: {text}',
        "details": {
            "name": "t",
            "group": "trainer.kubeflow.org",
            "kind": "TrainJab",
            "causes": [{"reason": "FieldValueInvalid", "message": text, "field": "kind"}],
        },
    }


async def test_defaults_are_not_owned_by_who_applies(stage: Stage) -> None:
    options = WriteOptions(field_manager="m")
    await ensure_runtime(stage.client)
    obj = await stage.client.patch(TRAIN_JOBS, "t", PatchType.APPLY, make_train_job(), stage.namespace, options=options)
    assert obj["spec"]["suspend"] is False
    [entry] = obj["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {"f:runtimeRef": {"f:name": {}}}}
    assert (
        await stage.client.patch(TRAIN_JOBS, "t", PatchType.APPLY, make_train_job(), stage.namespace, options=options)
        == obj
    )


async def test_deleting_answers_with_the_group(stage: Stage) -> None:
    await ensure_runtime(stage.client)
    made = await stage.client.create(TRAIN_JOBS, make_train_job(), stage.namespace)
    answer = await stage.client.delete(TRAIN_JOBS, "t", stage.namespace, DeleteOptions("Background"))
    assert answer["details"] == {
        "name": "t",
        "group": "trainer.kubeflow.org",
        "kind": "trainjobs",
        "uid": made["metadata"]["uid"],
    }
