"""Schema data: read lazily, shared, with our additions and our descriptions on top."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainmaster.api import schemas
from trainmaster.api.declaring.catalogue import build
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.schemas import load, names
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS, V1Framework

pytestmark = pytest.mark.unit

TRAINER = "org.kubeflow.trainer.v1alpha1."
DESCRIPTIONS: dict[str, Any] = json.loads(Path(schemas.__file__).with_name("descriptions.json").read_text())


def at(node: SchemaNode, path: str) -> SchemaNode:
    for step in path.split("."):
        node = node.properties[step]
        while node.items is not None:
            node = node.items
    return node


def test_every_definition_can_be_built() -> None:
    assert len(names()) > 250
    assert all(load(name).definition == name for name in names())


def test_a_definition_is_built_once_and_shared() -> None:
    pod, job = load("io.k8s.api.core.v1.Pod"), load("io.k8s.api.batch.v1.Job")
    assert load("io.k8s.api.core.v1.Pod") is pod
    inner, outer = at(job, "spec.template.spec"), at(pod, "spec")
    assert inner.properties is outer.properties


def test_an_unknown_definition_is_an_error() -> None:
    with pytest.raises(KeyError, match="no schema data"):
        load("io.k8s.api.core.v1.Nonsense")
    with pytest.raises(KeyError, match="no schema data"):
        load("com.example.Nonsense")


def test_a_schema_inside_a_schema_is_free_form() -> None:
    crd = load("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition")
    assert at(crd, "spec.versions.schema.openAPIV3Schema").preserve_unknown


def test_merge_keys_and_list_types_survive() -> None:
    containers = load("io.k8s.api.core.v1.PodSpec").properties["containers"]
    assert (containers.patch_strategies, containers.patch_merge_key) == (("merge",), "name")
    assert (containers.list_type, containers.list_map_keys) == ("map", ("name",))
    volumes = load("io.k8s.api.core.v1.PodSpec").properties["volumes"]
    assert volumes.patch_strategies == ("merge", "retainKeys")


def test_a_limit_of_zero_is_a_limit() -> None:
    assert at(load(TRAINER + "TrainJob"), "status.jobsStatus.active").minimum == 0


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("TrainJob", "spec.ttlSecondsAfterFinished"),
        ("TrainJob", "spec.cleanupPolicy.ttlSecondsAfterFinished"),
        ("TrainJob", "spec.podTemplateOverrides.spec.imagePullSecrets.name"),
        ("TrainJob", "spec.podSpecOverrides.nodeSelector"),
        ("TrainJob", "spec.runtimePatches.trainingRuntimeSpec"),
        ("TrainJob", "status.waiting.reason"),
        ("TrainingRuntime", "spec.runPolicy.ttlSecondsAfterFinished"),
        ("ClusterTrainingRuntime", "spec.mlPolicy.torch.numProcPerNode"),
    ],
)
def test_our_fields_stand_beside_upstreams(kind: str, path: str) -> None:
    assert at(load(TRAINER + kind), path) is not None


def test_older_overrides_have_only_what_their_version_had() -> None:
    job = load(TRAINER + "TrainJob")
    assert set(at(job, "spec.podTemplateOverrides.spec.containers").properties) == {"env", "name", "volumeMounts"}
    assert {"affinity", "imagePullSecrets"} & set(at(job, "spec.podSpecOverrides").properties) == set()
    assert (
        "securityContext"
        in at(
            job,
            "spec.runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec.containers",
        ).properties
    )


@pytest.mark.parametrize("definition", [name for name in DESCRIPTIONS if not name.startswith("_")])
def test_every_description_is_about_a_field_that_exists(definition: str) -> None:
    def compare(node: SchemaNode, told: Any) -> None:
        while (inner := node.items or node.additional) is not None:
            node = inner
        if isinstance(told, str):
            return
        for name, entry in told.items():
            if name == "@":
                assert entry in DESCRIPTIONS
            elif name:
                assert name in node.properties, name
                compare(node.properties[name], entry)

    compare(load(definition), DESCRIPTIONS[definition])


@pytest.mark.parametrize(
    ("definition", "path"),
    [
        (TRAINER + "TrainJob", "spec.trainer.numNodes"),
        (TRAINER + "ClusterTrainingRuntime", "spec.template.spec.replicatedJobs.template.spec.backoffLimit"),
        (TRAINER + "TrainingRuntime", "spec.template.spec.replicatedJobs.template.spec.template.spec.containers.image"),
        ("io.k8s.api.core.v1.Pod", "spec.containers.image"),
        ("io.k8s.api.batch.v1.Job", "spec.template.spec.restartPolicy"),
    ],
)
def test_what_users_touch_is_described_wherever_it_occurs(definition: str, path: str) -> None:
    assert at(load(definition), path).description


def test_every_field_of_a_trainjobs_spec_is_described() -> None:
    spec = at(load(TRAINER + "TrainJob"), "spec")
    assert [name for name, child in spec.properties.items() if not child.description] == []


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=[framework.kind for framework in FRAMEWORKS])
def test_every_field_of_a_v1_job_is_described_down_to_its_pod_template(framework: V1Framework) -> None:
    def list_silent(node: SchemaNode, path: str) -> Iterator[str]:
        if not node.description:
            yield path
        while (inner := node.items or node.additional) is not None:
            node = inner
        for name, child in node.properties.items():
            # Types of Kubernetes, which are described as a whole.
            if name not in ("apiVersion", "kind", "metadata", "template", "minResources", "labelSelector", "metrics"):
                yield from list_silent(child, f"{path}.{name}")

    job = load(f"org.kubeflow.v1.{framework.kind}")
    assert list(list_silent(job, framework.kind)) == []
    template = at(job, f"spec.{framework.replicas_field}").additional
    assert template is not None
    assert at(template, "template.spec.containers.image").description


def test_every_kind_is_found_by_path_and_by_type() -> None:
    catalogue = build()
    for kind in catalogue.kinds:
        assert catalogue.find(kind.gvr) is kind
        assert catalogue.find_type(kind.api_version, kind.kind) is kind
        assert kind.singular == kind.kind.lower()
        assert kind.columns or kind.review
