"""What is refused, and in which words. The texts were recorded from upstream's API server and controllers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.api.decoding.test_decoding import kind_of, make_config_map, make_trainjob
from trainmaster.api.declaring.catalogue import build
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.decoding import decode
from trainmaster.api.meta import Object
from trainmaster.api.validation import quick, rules, structural, validate

pytestmark = pytest.mark.unit

UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUANTITY = (
    r"'^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'"
)


def errors_of(obj: Object, old: Object | None = None) -> list[str]:
    kind = kind_of(obj)
    decoded = decode(kind, copy.deepcopy(obj)).object
    stored = decode(kind, copy.deepcopy(old)).object if old else None
    return [str(error) for error in validate(kind, decoded, stored)]


def status_errors(status: Any) -> list[str]:
    job = make_trainjob() | {"status": status}
    return [str(error) for error in validate(kind_of(job), job, None, subresource="status")]


def make_runtime(**spec: Any) -> Object:
    metadata = {"name": "x"}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": spec,
    }


def override(**spec: Any) -> Object:
    return make_trainjob(podTemplateOverrides=[{"targetJobs": [{"name": "node"}], "spec": spec}])


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (make_trainjob() | {"spec": {}}, ["spec.runtimeRef: Required value", UNCHECKED]),
        (
            make_trainjob(runtimeRef={"name": ""}),
            ['spec.runtimeRef.name: Invalid value: "": spec.runtimeRef.name in body should be at least 1 chars long'],
        ),
        (
            make_trainjob(trainer={"numNodes": "two"}),
            [
                'spec.trainer.numNodes: Invalid value: "string": spec.trainer.numNodes in body must be of type '
                'integer: "string"',
                UNCHECKED,
            ],
        ),
        (
            make_trainjob(trainer={"numNodes": 1.5}),
            [
                'spec.trainer.numNodes: Invalid value: "float64": spec.trainer.numNodes in body must be of type int32: '
                '"float64"',
                '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in '
                "spec.trainer.numNodes",
                UNCHECKED,
            ],
        ),
        (
            make_trainjob(trainer={"numNodes": 3000000000}),
            [
                '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in '
                "spec.trainer.numNodes"
            ],
        ),
        (
            make_trainjob(trainer={"numProcPerNode": 1.5}),
            [
                'spec.trainer.numProcPerNode: Invalid value: "number": spec.trainer.numProcPerNode in body must be of '
                'type integer,string: "number"',
                '<nil>: Invalid value: "": "spec.trainer.numProcPerNode" must validate at least one schema (anyOf)',
                'spec.trainer.numProcPerNode: Invalid value: "number": spec.trainer.numProcPerNode in body must be of '
                'type integer: "number"',
                '<nil>: Invalid value: "": Checked value must be of type integer (default format) in '
                "spec.trainer.numProcPerNode",
                UNCHECKED,
            ],
        ),
        (
            make_trainjob(trainer={"image": "x" * 501}),
            ["spec.trainer.image: Too long: may not be more than 500 bytes", UNCHECKED],
        ),
        (
            make_trainjob(trainer={"command": ["x"] * 129}),
            ["spec.trainer.command: Too many: 129: must have at most 128 items", UNCHECKED],
        ),
        (
            make_trainjob(trainer={"env": [{"name": "A"}, {"name": "A"}]}),
            ['spec.trainer.env[1]: Duplicate value: {"name":"A"}'],
        ),
        (
            make_trainjob(trainer={"resourcesPerNode": {"limits": {"nvidia.com/gpu": "eight"}}}),
            [
                'spec.trainer.resourcesPerNode.limits.nvidia.com/gpu: Invalid value: "eight": '
                f"spec.trainer.resourcesPerNode.limits.nvidia.com/gpu in body should match {QUANTITY}"
            ],
        ),
        (
            make_trainjob(activeDeadlineSeconds=-1),
            [
                "spec.activeDeadlineSeconds: Invalid value: -1: spec.activeDeadlineSeconds in body should be greater "
                "than or equal to 1"
            ],
        ),
        (
            make_trainjob(ttlSecondsAfterFinished=-1),
            [
                "spec.ttlSecondsAfterFinished: Invalid value: -1: spec.ttlSecondsAfterFinished in body should be "
                "greater than or equal to 0"
            ],
        ),
        (
            make_trainjob(managedBy="someone"),
            [
                'spec.managedBy: Invalid value: "someone": ManagedBy must be trainer.kubeflow.org/trainjob-controller '
                "or kueue.x-k8s.io/multikueue if set"
            ],
        ),
        (
            make_trainjob(initializer={"dataset": {"storageUri": "nope"}}),
            [
                'spec.initializer.dataset.storageUri: Invalid value: "nope": storageUri may be empty, or it must be a '
                "valid URI (scheme://...)"
            ],
        ),
        (
            make_trainjob(podTemplateOverrides=[{"spec": {}}]),
            ["spec.podTemplateOverrides[0].targetJobs: Required value", UNCHECKED],
        ),
        (
            override(containers=[{"name": "node"}, {"name": "node"}]),
            ['spec.podTemplateOverrides[0].spec.containers[1]: Duplicate value: {"name":"node"}'],
        ),
        (
            make_runtime(mlPolicy={"torch": {}, "mpi": {}}),
            ["spec.mlPolicy: Invalid value: Only one of the policy can be configured"],
        ),
        (
            make_runtime(mlPolicy={"mpi": {"mpiImplementation": "Intel"}}),
            [
                'spec.mlPolicy.mpi.mpiImplementation: Unsupported value: "Intel": supported values: "OpenMPI", ""',
                UNCHECKED,
            ],
        ),
        (
            make_runtime(mlPolicy={"torch": {"numProcPerNode": 0}}),
            [
                "spec.mlPolicy.torch.numProcPerNode: Invalid value: 0: NumProcPerNode must be equal to auto, cpu, gpu, "
                "or int value"
            ],
        ),
        (make_runtime(), ["spec: Invalid value: 0: spec in body should have at least 1 properties"]),
        (
            make_trainjob() | {"metadata": {"name": "Bad_Name"}},
            [
                f'metadata.name: Invalid value: "Bad_Name": {SUBDOMAIN}',
                "<nil>: Invalid value: metadata.name must match RFC 1035 DNS label format",
            ],
        ),
        (
            make_trainjob() | {"metadata": {"name": "a" * 64}},
            ["<nil>: Invalid value: metadata.name must be no more than 63 characters"],
        ),
        (
            make_trainjob() | {"metadata": {}},
            ["metadata.name: Required value: name or generateName is required", UNCHECKED],
        ),
    ],
)
def test_a_custom_object_that_breaks_its_schema_is_refused(obj: Object, want: list[str]) -> None:
    assert errors_of(obj) == want


@pytest.mark.parametrize(
    "obj",
    [
        make_trainjob(trainer={"numProcPerNode": "auto"}),
        make_trainjob(trainer={"numProcPerNode": 4}),
        make_trainjob(ttlSecondsAfterFinished=60, cleanupPolicy={"ttlSecondsAfterFinished": 60}),
        make_trainjob(podSpecOverrides=[{"targetJobs": [{"name": "node"}], "nodeSelector": {"a": "b"}}]),
        make_trainjob(labels={"a": "b"}, annotations={"c": "d"}),
        override(affinity={}, imagePullSecrets=[{"name": "a"}]),
        make_runtime(ttlSecondsAfterFinished=1, activeDeadlineSeconds=1, runPolicy={"ttlSecondsAfterFinished": 1}),
        make_runtime(mlPolicy={"numNodes": 2, "torch": {"numProcPerNode": "auto"}}),
    ],
)
def test_our_fields_and_the_older_shapes_are_accepted(obj: Object) -> None:
    assert errors_of(obj) == []


def test_what_is_immutable_may_be_neither_changed_nor_added_nor_removed() -> None:
    one, two, none = make_trainjob(trainer={"numNodes": 1}), make_trainjob(trainer={"numNodes": 2}), make_trainjob()
    for new, old in ((two, one), (none, one), (one, none)):
        assert errors_of(new, old) == ["spec.trainer: Invalid value: field is immutable"]
    changed = make_trainjob(managedBy="kueue.x-k8s.io/multikueue")
    want = ['spec.managedBy: Invalid value: "kueue.x-k8s.io/multikueue": field is immutable']
    assert errors_of(changed, none) == want


def patch_with_volumes(*names: str) -> Object:
    pod = {"spec": {"volumes": [{"name": name, "emptyDir": {}} for name in names]}}
    job = {"name": "node", "template": {"spec": {"template": pod}}}
    spec = {"template": {"spec": {"replicatedJobs": [job]}}}
    return make_trainjob(runtimePatches=[{"manager": "example.com/a", "trainingRuntimeSpec": spec}])


def test_a_keyed_list_that_is_immutable_may_change_its_order() -> None:
    path = (
        "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.volumes"
    )
    assert errors_of(patch_with_volumes("b", "a"), patch_with_volumes("a", "b")) == []
    want = [f"{path}: Invalid value: field is immutable"]
    assert errors_of(patch_with_volumes("a"), patch_with_volumes("a", "b")) == want


@pytest.mark.parametrize("field", ["failurePolicy", "successPolicy", "startupPolicy", "network"])
def test_a_runtime_may_change_what_a_jobset_may_not(field: str) -> None:
    values = {
        "failurePolicy": ({"maxRestarts": 6}, {"maxRestarts": 10}),
        "successPolicy": ({"operator": "All"}, {"operator": "Any"}),
        "startupPolicy": ({"startupPolicyOrder": "AnyOrder"}, {"startupPolicyOrder": "InOrder"}),
        "network": ({"subdomain": "a"}, {"subdomain": "b"}),
    }
    old, new = ({field: value} for value in values[field])
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "x"}}
    want = [f"spec.{field}: Invalid value: Value is immutable"]
    assert errors_of(job_set | {"spec": new}, job_set | {"spec": old}) == want
    assert errors_of(make_runtime(template={"spec": new}), make_runtime(template={"spec": old})) == []


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, ["status: Invalid value: 0:  in body should have at least 1 properties"]),
        (
            {"trainerStatus": {}},
            ["status.trainerStatus: Invalid value: lastUpdatedTime is required when trainerStatus is present"],
        ),
        (
            {"trainerStatus": {"progressPercentage": 101, "lastUpdatedTime": "2026-01-01T00:00:00Z"}},
            [
                "status.trainerStatus.progressPercentage: Invalid value: 101: trainerStatus.progressPercentage in body "
                "should be less than or equal to 100"
            ],
        ),
        ({"waiting": {"reason": "Queued", "message": "2 of 4 GPUs are free", "since": "2026-01-01T00:00:00Z"}}, []),
    ],
)
def test_status_is_checked_on_its_own(status: Any, want: list[str]) -> None:
    assert status_errors(status) == want


def test_every_rule_in_the_schema_data_is_implemented() -> None:
    missing: set[str] = set()
    seen: set[int] = set()

    def visit(node: SchemaNode) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        missing.update(
            rule.rule for rule in node.rules if rule.rule not in rules.RULES and rule.rule != rules.IMMUTABLE
        )
        for child in (*node.properties.values(), node.items, node.additional):
            if child is not None:
                visit(child)

    for kind in build().kinds:
        visit(kind.load())
    assert len(seen) > 1000
    assert missing == set()


LABEL_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        ({"name": "Bad"}, [f'metadata.name: Invalid value: "Bad": {SUBDOMAIN}']),
        ({"name": "a" * 254}, [f'metadata.name: Invalid value: "{"a" * 254}": must be no more than 253 characters']),
        ({"name": "x", "generateName": "ok-"}, []),
        ({"name": "a.x", "generateName": "a."}, [f'metadata.generateName: Invalid value: "a.": {SUBDOMAIN}']),
        ({"name": "x", "labels": {"-a": "b"}}, [f'metadata.labels: Invalid value: "-a": {LABEL_KEY}']),
        ({"name": "x", "labels": {"/a": "b"}}, ['metadata.labels: Invalid value: "/a": prefix part must be non-empty']),
        (
            {"name": "x", "labels": {"y": "a" * 64}},
            [f'metadata.labels: Invalid value: "{"a" * 64}": must be no more than 63 bytes'],
        ),
        ({"name": "x", "annotations": {"A/B": "anything at all"}}, []),
        (
            {"name": "x", "annotations": {"big": "x" * 262145}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
        (
            {"name": "x", "finalizers": ["foo"]},
            [
                'metadata.finalizers[0]: Invalid value: "foo": name is neither a standard finalizer name nor is it '
                "fully qualified"
            ],
        ),
        (
            {"name": "x", "finalizers": ["foregroundDeletion", "orphan"]},
            [
                'metadata.finalizers: Invalid value: ["foregroundDeletion","orphan"]: finalizer orphan and '
                "foregroundDeletion cannot be both set"
            ],
        ),
        (
            {"name": "x", "ownerReferences": [{}]},
            [
                'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty',
                'metadata.ownerReferences.kind: Invalid value: "": must not be empty',
                'metadata.ownerReferences.name: Invalid value: "": must not be empty',
                'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
            ],
        ),
    ],
)
def test_metadata_must_be_well_formed(metadata: Object, want: list[str]) -> None:
    assert errors_of(make_config_map() | {"metadata": metadata}) == want


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "want"),
    [
        ("v1", "Namespace", "a.b", "must not contain dots"),
        ("rbac.authorization.k8s.io/v1", "Role", "a/b", "may not contain '/'"),
        ("rbac.authorization.k8s.io/v1", "Role", "..", "may not be '..'"),
        ("rbac.authorization.k8s.io/v1", "Role", "system:anything", ""),
    ],
)
def test_the_form_of_a_name_depends_on_the_kind(api_version: str, kind: str, name: str, want: str) -> None:
    obj: Object = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
    if kind == "Role":
        obj["rules"] = []
    assert errors_of(obj) == ([f'metadata.name: Invalid value: "{name}": {want}'] if want else [])


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.sampled_from(["", "a", "1Gi"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "env", "value"]), inner),
    max_leaves=6,
)
_trainers = st.dictionaries(
    st.sampled_from(["image", "command", "env", "numNodes", "numProcPerNode", "resourcesPerNode"]), _values
)


@given(_trainers)
def test_the_quick_answer_and_the_explained_one_agree(trainer: Object) -> None:
    node = kind_of(make_trainjob()).load().properties["spec"].properties["trainer"]
    assert quick.satisfies(node, trainer) == (
        structural.check(node, trainer, "spec.trainer", body="spec.trainer") == []
    )
