"""What a request body becomes. Expected texts are those of a kube-apiserver 1.36."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trainmaster.api.declaring.catalogue import build
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.decoding import FieldValidation, decode
from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.unit


def kind_of(obj: Object) -> Kind:
    kind = build().find_type(obj["apiVersion"], obj["kind"])
    assert kind is not None
    return kind


def make_pod(**spec: Any) -> Object:
    spec = {"containers": [{"name": "c", "image": "x"}]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


def make_container(**container: Any) -> Object:
    return make_pod(containers=[{"name": "c", "image": "x"} | container])


def make_job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": template} | spec}


def make_config_map(**fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}} | fields


def make_trainjob(**spec: Any) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "x"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}} | spec,
    }


def make_lease(**spec: Any) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}, "spec": spec}


def refusal(obj: Object, mode: FieldValidation = FieldValidation.WARN) -> str:
    with pytest.raises(StatusError) as caught:
        decode(kind_of(obj), obj, mode)
    assert caught.value.code == 400
    assert caught.value.reason == "BadRequest"
    begin = f'{obj["kind"]} in version "{obj["apiVersion"].rpartition("/")[2]}" cannot be handled as a {obj["kind"]}: '
    assert caught.value.message.startswith(begin)
    return caught.value.message.removeprefix(begin)


@pytest.mark.parametrize(
    ("obj", "want_text"),
    [
        (make_job(parallelism="a"), "string into Go struct field JobSpec.spec.parallelism of type int32"),
        (make_job(parallelism=1.5), "number 1.5 into Go struct field JobSpec.spec.parallelism of type int32"),
        (
            make_job(parallelism=3000000000),
            "number 3000000000 into Go struct field JobSpec.spec.parallelism of type int32",
        ),
        (make_job(parallelism=True), "bool into Go struct field JobSpec.spec.parallelism of type int32"),
        (make_job(parallelism=[1]), "array into Go struct field JobSpec.spec.parallelism of type int32"),
        (make_job(parallelism={}), "object into Go struct field JobSpec.spec.parallelism of type int32"),
        (make_job(suspend="a"), "string into Go struct field JobSpec.spec.suspend of type bool"),
        (make_job(suspend=1), "number into Go struct field JobSpec.spec.suspend of type bool"),
        (make_job(selector="a"), "string into Go struct field JobSpec.spec.selector of type v1.LabelSelector"),
        (make_job(selector=[]), "array into Go struct field JobSpec.spec.selector of type v1.LabelSelector"),
        (make_job(template=5), "number into Go struct field JobSpec.spec.template of type v1.PodTemplateSpec"),
        (make_job() | {"spec": "x"}, "string into Go struct field Job.spec of type v1.JobSpec"),
        (make_job() | {"metadata": []}, "array into Go struct field Job.metadata of type v1.ObjectMeta"),
        (make_pod(containers={}), "object into Go struct field PodSpec.spec.containers of type []v1.Container"),
        (make_pod(containers=["x"]), "string into Go struct field PodSpec.spec.containers of type v1.Container"),
        (
            make_pod(containers=[{"name": 5}]),
            "number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            make_container(ports=[{"containerPort": "80"}]),
            "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            make_container(livenessProbe={"httpGet": {"port": True}}),
            "bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port"
            " of type int32",
        ),
        (make_container(command="a"), "string into Go struct field Container.spec.containers.command of type []string"),
        (make_container(command=[1]), "number into Go struct field Container.spec.containers.command of type string"),
        (
            make_pod(nodeSelector=["a"]),
            "array into Go struct field PodSpec.spec.nodeSelector of type map[string]string",
        ),
        (make_pod(nodeSelector={"a": 1}), "number into Go struct field PodSpec.spec.nodeSelector of type string"),
        (make_pod() | {"metadata": {"name": 5}}, "number into Go struct field ObjectMeta.metadata.name of type string"),
        (
            make_pod() | {"metadata": {"name": "x", "labels": {"a": 1}}},
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            make_pod() | {"metadata": {"name": "x", "creationTimestamp": 5}},
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (make_config_map(data={"a": 1}), "number into Go struct field ConfigMap.data of type string"),
        (make_config_map(data=[1]), "array into Go struct field ConfigMap.data of type map[string]string"),
        (make_config_map(binaryData={"a": 5}), "number into Go struct field ConfigMap.binaryData of type []uint8"),
    ],
)
def test_a_wrong_type_in_a_built_in_kind_is_refused_in_gos_words(obj: Object, want_text: str) -> None:
    assert refusal(obj) == f"json: cannot unmarshal {want_text}"


QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@pytest.mark.parametrize(
    ("obj", "want_text"),
    [
        (make_container(resources={"limits": {"cpu": "abc"}}), QUANTITY),
        (make_container(resources={"limits": {"cpu": True}}), QUANTITY),
        (make_container(resources={"limits": {"cpu": []}}), QUANTITY),
        (
            make_pod() | {"metadata": {"name": "x", "creationTimestamp": "nope"}},
            'parsing time "nope" as "2006-01-02T15:04:05Z07:00": cannot parse "nope" as "2006"',
        ),
        (make_config_map(binaryData={"a": "!!"}), "illegal base64 data at input byte 0"),
        (
            make_lease(renewTime="2026-01-01T00:00:00Z"),
            'parsing time "2026-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"',
        ),
    ],
)
def test_a_malformed_scalar_in_a_built_in_kind_is_refused(obj: Object, want_text: str) -> None:
    assert refusal(obj) == want_text


@pytest.mark.parametrize(
    ("obj", "want_paths"),
    [
        (make_pod(bogus=1, zogus={"a": 1}), ["spec.bogus", "spec.zogus"]),
        (make_container(foo=1), ["spec.containers[0].foo"]),
        (make_pod(volumes=[{"name": "x", "emptyDir": {"foo": 1}}]), ["spec.volumes[0].emptyDir.foo"]),
        (make_pod() | {"metadata": {"name": "x", "foo": 1}}, ["metadata.foo"]),
        (make_pod() | {"Metadata": {"name": "x"}}, ["Metadata"]),
        (
            make_trainjob(trainer={"xogus": 2, "env": [{"name": "a", "z": 1}]}, bogus=1),
            ["spec.bogus", "spec.trainer.env[0].z", "spec.trainer.xogus"],
        ),
        (
            make_trainjob() | {"zork": 1, "abc": 1, "metadata": {"name": "x", "foo": 1}},
            ["metadata.foo", "abc", "zork"],
        ),
    ],
)
def test_unknown_fields_are_named_dropped_and_refused_when_strict(obj: Object, want_paths: list[str]) -> None:
    want_texts = [f'unknown field "{path}"' for path in want_paths]
    assert refusal(copy.deepcopy(obj), FieldValidation.STRICT) == "strict decoding error: " + ", ".join(want_texts)
    assert list(decode(kind_of(obj), copy.deepcopy(obj)).warnings) == want_texts
    assert decode(kind_of(obj), copy.deepcopy(obj), FieldValidation.IGNORE).warnings == ()
    first = decode(kind_of(obj), obj).object
    assert decode(kind_of(obj), first, FieldValidation.STRICT).warnings == ()


def test_a_built_in_kind_is_stored_in_upstreams_spelling() -> None:
    pod = make_container(
        env=None,
        args=[],
        resources={"limits": {"cpu": 0.5, "memory": "1.5Gi", "nvidia.com/gpu": 2}},
        ports=[{"containerPort": 80}],
    )
    pod["metadata"] |= {"labels": {}, "creationTimestamp": "2026-01-01T01:00:00+01:00"}
    pod["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    decoded = decode(kind_of(pod), pod).object
    assert decoded["metadata"] == {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}
    assert decoded["spec"]["containers"] == [
        {
            "name": "c",
            "image": "x",
            "resources": {"limits": {"cpu": "500m", "memory": "1536Mi", "nvidia.com/gpu": "2"}},
            "ports": [{"containerPort": 80}],
        }
    ]
    assert decoded["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_a_custom_kind_gets_its_defaults_and_loses_nulls() -> None:
    job = make_trainjob(
        trainer={"numNodes": 2.0, "env": None, "resourcesPerNode": {"limits": {"cpu": 1, "memory": None}}}
    )
    job["spec"]["suspend"] = None
    assert decode(kind_of(job), job).object["spec"] == {
        "runtimeRef": {
            "name": "torch-distributed",
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
        },
        "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"cpu": 1}}},
        "suspend": False,
        "managedBy": "trainer.kubeflow.org/trainjob-controller",
    }


def test_a_wrong_type_in_a_custom_kind_is_left_for_validation() -> None:
    job = make_trainjob(trainer={"numNodes": "two"})
    assert decode(kind_of(job), job).object["spec"]["trainer"] == {"numNodes": "two"}


@pytest.mark.parametrize(
    ("metadata", "want_text"),
    [
        ({"name": 5}, "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"),
        ({"labels": {"a": 1}}, "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"),
        ([], "json: cannot unmarshal array into Go value of type v1.ObjectMeta"),
    ],
)
def test_metadata_of_a_custom_kind_is_decoded_like_a_built_in(metadata: Any, want_text: str) -> None:
    assert refusal(make_trainjob() | {"metadata": metadata}) == want_text


@pytest.mark.parametrize(
    ("changes", "want_text"),
    [
        (
            {"apiVersion": "v1", "kind": "Pod"},
            "the API version in the data (v1) does not match the expected API version (trainer.kubeflow.org/v1alpha1)",
        ),
        ({"kind": "Foo"}, 'Foo.trainer.kubeflow.org "x" is invalid: kind: Invalid value: "Foo": must be TrainJob'),
    ],
)
def test_a_custom_object_of_another_kind_is_refused(changes: Object, want_text: str) -> None:
    job = make_trainjob()
    kind = kind_of(job)
    with pytest.raises(StatusError) as caught:
        decode(kind, job | changes)
    assert caught.value.message == want_text


def test_a_built_in_object_may_leave_out_its_type() -> None:
    pod = make_pod()
    kind = kind_of(pod)
    del pod["apiVersion"], pod["kind"]
    decoded = decode(kind, pod).object
    assert (decoded["apiVersion"], decoded["kind"]) == ("v1", "Pod")


def test_a_built_in_object_of_another_kind_is_refused() -> None:
    pod = make_pod()
    with pytest.raises(StatusError) as caught:
        decode(kind_of(pod), pod | {"kind": "Poda"})
    want = 'Poda in version "v1" cannot be handled as a Pod: no kind "Poda" is registered for version "v1"'
    assert caught.value.message == want + ' in scheme "pkg/runtime/scheme.go:111"'
