"""Defaults and rules of built-in kinds, as clients of a kube-apiserver 1.36 see them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.unit.api.decoding.test_decoding import (
    kind_of,
    make_config_map,
    make_container,
    make_job,
    make_lease,
    make_pod,
)
from tests.unit.api.validation.test_rules import SUBDOMAIN
from trainmaster.api.declaring.catalogue import build
from trainmaster.api.decoding import decode
from trainmaster.api.meta import Object
from trainmaster.api.validation import validate
from trainmaster.api.validation.names import LABEL_TEXT

pytestmark = pytest.mark.unit

UID = "66656df7-db87-4823-a387-af1d602b5cc3"


def create(obj: Object) -> Object:
    """The object as a server would store it, without what admission adds."""
    kind = kind_of(obj)
    new = decode(kind, copy.deepcopy(obj)).object
    new["metadata"]["uid"] = UID
    if kind.namespaced:
        new["metadata"].setdefault("namespace", "t1")
    if kind.status:
        new.pop("status", None)
    kind.default(new)
    kind.prepare(new)
    return new


def errors_of(obj: Object) -> list[str]:
    new = create(obj)
    return [str(error) for error in validate(kind_of(obj), new, None)]


def update_errors(obj: Object, **spec: Any) -> list[str]:
    """Of an update that changes these fields of the spec."""
    old = create(obj)
    new = copy.deepcopy(old)
    new["spec"] |= spec
    kind_of(obj).default(new)
    return [str(error) for error in validate(kind_of(obj), new, old)]


def make(api_version: str, kind: str, **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}} | fields


def make_service(**spec: Any) -> Object:
    return make("v1", "Service", spec=spec)


def make_secret(**fields: Any) -> Object:
    return make("v1", "Secret", **fields)


RBAC = "rbac.authorization.k8s.io/v1"


def test_a_pod_is_filled_in() -> None:
    pod = create(make_container(resources={"limits": {"cpu": "1"}}, ports=[{"containerPort": 80}]))
    assert pod["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "x",
                "imagePullPolicy": "Always",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("registry:5000/busybox", "Always"),
        ("busybox:1.2", "IfNotPresent"),
        ("registry:5000/a/busybox:1.2", "IfNotPresent"),
        ("busybox@sha256:abc", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, want: str) -> None:
    assert create(make_container(image=image))["spec"]["containers"][0]["imagePullPolicy"] == want


def test_probes_volumes_and_references_are_filled_in() -> None:
    pod = make_container(
        livenessProbe={"httpGet": {"port": 80}},
        readinessProbe={"grpc": {"port": 81}},
        env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    )
    pod["spec"]["volumes"] = [
        {"name": "a", "configMap": {"name": "cm"}},
        {"name": "b", "hostPath": {"path": "/tmp"}},
        {"name": "c"},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ]
    spec = create(pod)["spec"]
    container = spec["containers"][0]
    rest = {"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}
    assert container["livenessProbe"] == {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}} | rest
    assert container["readinessProbe"] == {"grpc": {"port": 81, "service": ""}} | rest
    assert container["env"][0]["valueFrom"]["fieldRef"] == {"fieldPath": "metadata.name", "apiVersion": "v1"}
    assert spec["volumes"] == [
        {"name": "a", "configMap": {"name": "cm", "defaultMode": 420}},
        {"name": "b", "hostPath": {"path": "/tmp", "type": ""}},
        {"name": "c", "emptyDir": {}},
        {
            "name": "d",
            "projected": {
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                "defaultMode": 420,
            },
        },
    ]


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({}, "BestEffort"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_the_quality_of_service_follows_the_resources(resources: Object, want: str) -> None:
    assert create(make_container(resources=resources))["status"]["qosClass"] == want


def test_a_job_is_filled_in_and_selects_its_pods_by_uid() -> None:
    job = create(make_job())
    labels = {
        "batch.kubernetes.io/controller-uid": UID,
        "batch.kubernetes.io/job-name": "x",
        "controller-uid": UID,
        "job-name": "x",
    }
    spec = job["spec"]
    assert job["metadata"]["labels"] == labels
    assert spec["template"]["metadata"]["labels"] == labels
    assert {name: value for name, value in spec.items() if name != "template"} == {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": False,
        "parallelism": 1,
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}},
        "suspend": False,
    }
    assert "enableServiceLinks" not in spec["template"]["spec"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 30


def test_other_kinds_are_filled_in() -> None:
    service = create(make_service(selector={"a": "b"}, ports=[{"port": 80}]))
    assert service["spec"] == {
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"a": "b"},
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    secret = create(make_secret(stringData={"a": "b"}))
    assert (secret["type"], secret["data"], "stringData" in secret) == ("Opaque", {"a": "Yg=="}, False)
    namespace = create(make("v1", "Namespace"))
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert (namespace["spec"], namespace["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    limits = create(make("v1", "LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": 4}}]}))
    want = {"type": "Container", "max": {"cpu": "4"}, "default": {"cpu": "4"}, "defaultRequest": {"cpu": "4"}}
    assert limits["spec"]["limits"] == [want]
    subjects = [{"kind": "ServiceAccount", "name": "sa"}, {"kind": "User", "name": "bob"}]
    binding = create(make(RBAC, "RoleBinding", roleRef={"kind": "Role", "name": "r"}, subjects=subjects))
    assert binding["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    assert [subject.get("apiGroup") for subject in binding["subjects"]] == [None, "rbac.authorization.k8s.io"]
    claim = create(make("v1", "PersistentVolumeClaim", spec={"accessModes": ["ReadWriteOnce"]}))
    assert (claim["spec"]["volumeMode"], claim["status"]) == ("Filesystem", {"phase": "Pending"})


def test_a_jobset_gets_the_defaults_of_upstreams_webhook() -> None:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}}
    obj = make("jobset.x-k8s.io/v1alpha2", "JobSet", spec={"replicatedJobs": [{"name": "w", "template": template}]})
    spec = create(obj)["spec"]
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert (spec["startupPolicy"], spec["successPolicy"]) == ({"startupPolicyOrder": "AnyOrder"}, {"operator": "All"})
    job = spec["replicatedJobs"][0]
    assert (job["groupName"], job["replicas"]) == ("default", 1)
    assert job["template"]["spec"]["completionMode"] == "Indexed"
    assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize("kind", build().kinds, ids=lambda kind: f"{kind.plural}.{kind.group}")
def test_defaulting_an_empty_object_does_not_fail_and_is_idempotent(kind: Any) -> None:
    obj: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x", "uid": UID}}
    once = decode(kind, obj).object
    kind.default(once)
    twice = copy.deepcopy(once)
    kind.default(twice)
    assert twice == once


CONTAINER = "spec.containers[0]"


FIELDS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields"


def require_fields(*entries: Object) -> Object:
    terms = {"nodeSelectorTerms": [{"matchFields": list(entries)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (make_pod(containers=[]), ["spec.containers: Required value"]),
        (make_pod(containers=[{}]), [f"{CONTAINER}.name: Required value", f"{CONTAINER}.image: Required value"]),
        (make_container(name="A_"), [f'{CONTAINER}.name: Invalid value: "A_": {LABEL_TEXT}']),
        (
            make_container(image=" x"),
            [f'{CONTAINER}.image: Invalid value: " x": must not have leading or trailing whitespace'],
        ),
        (
            make_pod(initContainers=[{"name": "c", "image": "x"}]),
            ['spec.initContainers[0].name: Duplicate value: "c"'],
        ),
        (
            make_container(imagePullPolicy="Foo"),
            [
                f'{CONTAINER}.imagePullPolicy: Unsupported value: "Foo": supported values: "Always", "IfNotPresent", '
                '"Never"'
            ],
        ),
        (make_container(ports=[{}]), [f"{CONTAINER}.ports[0].containerPort: Required value"]),
        (
            make_container(ports=[{"containerPort": 70000, "protocol": "X"}]),
            [
                f"{CONTAINER}.ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                f'{CONTAINER}.ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
            ],
        ),
        (
            make_container(ports=[{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]),
            [f'{CONTAINER}.ports[1].hostPort: Duplicate value: "TCP//5"'],
        ),
        (make_container(env=[{}]), [f"{CONTAINER}.env[0].name: Required value"]),
        (
            make_container(env=[{"name": "a=b"}]),
            [
                f'{CONTAINER}.env[0].name: Invalid value: "a=b": a valid environment variable name must consist only '
                "of printable ASCII characters other than '='"
            ],
        ),
        (
            make_container(env=[{"name": "a", "valueFrom": {}}]),
            [
                f'{CONTAINER}.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, '
                "`resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            ],
        ),
        (
            make_container(env=[{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.foo"}}}]),
            [
                f'{CONTAINER}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.foo": error converting '
                "fieldPath: field label not supported: metadata.foo"
            ],
        ),
        (
            make_container(volumeMounts=[{"name": "v", "mountPath": "/a"}]),
            [f'{CONTAINER}.volumeMounts[0].name: Not found: "v"'],
        ),
        (make_pod(volumes=[{"name": "v"}, {"name": "v"}]), ['spec.volumes[1].name: Duplicate value: "v"']),
        (
            make_pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/a"}}]),
            ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            make_pod(volumes=[{"name": "v", "hostPath": {}}, {"name": "w", "configMap": {}}]),
            ["spec.volumes[0].hostPath.path: Required value", "spec.volumes[1].configMap.name: Required value"],
        ),
        (make_pod(volumes=[{"name": "v", "csi": {}}]), ["spec.volumes[0].csi.driver: Required value"]),
        (
            make_container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            [f'{CONTAINER}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
        ),
        (
            make_container(resources={"requests": {"nvidia.com/gpu": "1"}}),
            [f"{CONTAINER}.resources.limits: Required value: Limit must be set for non overcommitable resources"],
        ),
        (
            make_container(resources={"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "2"}}),
            [f'{CONTAINER}.resources.requests: Invalid value: "2": must be equal to nvidia.com/gpu limit of 1'],
        ),
        (
            make_container(livenessProbe={}),
            [f"{CONTAINER}.livenessProbe: Required value: must specify a handler type"],
        ),
        (
            make_pod(restartPolicy="Foo"),
            ['spec.restartPolicy: Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"'],
        ),
        (
            make_pod(activeDeadlineSeconds=0),
            ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        ),
        (make_pod(nodeName="Bad_"), [f'spec.nodeName: Invalid value: "Bad_": {SUBDOMAIN}']),
        (make_pod(hostname="a.b"), ['spec.hostname: Invalid value: "a.b": must not contain dots']),
        (
            make_pod(tolerations=[{"key": "a", "operator": "Foo"}, {"operator": "Exists", "value": "x"}]),
            [
                'spec.tolerations[0].operator: Unsupported value: "Foo": supported values: "Equal", "Exists"',
                "spec.tolerations[1].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
            ],
        ),
        (
            make_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
            [
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required "
                "value: must have at least one node selector term"
            ],
        ),
        (
            make_pod(affinity=require_fields({}, {"key": "metadata.name", "operator": "In", "values": ["A", "b"]})),
            [
                f'{FIELDS}[0].operator: Invalid value: "": not a valid selector operator',
                f'{FIELDS}[0].key: Invalid value: "": not a valid field selector key',
                f"{FIELDS}[1].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for "
                "node field selector",
                f'{FIELDS}[1].values[0]: Invalid value: "A": {SUBDOMAIN}',
            ],
        ),
    ],
)
def test_a_pod_that_breaks_a_rule_is_refused(obj: Object, want: list[str]) -> None:
    assert errors_of(obj) == want


POD_IMMUTABLE = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"hostNetwork": True}, [POD_IMMUTABLE]),
        ({"nodeName": "z"}, []),
        ({"restartPolicy": "Never"}, [POD_IMMUTABLE]),
        ({"terminationGracePeriodSeconds": 1}, [POD_IMMUTABLE]),
        ({"activeDeadlineSeconds": 5}, []),
        ({"tolerations": [{"key": "x", "operator": "Exists"}]}, []),
        (
            {"containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "x"}]},
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
        ),
        (
            {"schedulingGates": [{"name": "a"}]},
            ["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a'"],
        ),
    ],
)
def test_of_a_pod_little_may_change(change: Object, want: list[str]) -> None:
    assert update_errors(make_pod(), **change) == want


def test_a_bound_pod_stays_bound() -> None:
    assert update_errors(make_pod(nodeName="a"), nodeName="b") == [POD_IMMUTABLE]


def test_the_image_of_a_pod_may_change() -> None:
    old = create(make_pod())
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["image"] = "y"
    assert validate(kind_of(new), new, old) == []


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (
            make_job(parallelism=-1, ttlSecondsAfterFinished=-1),
            [
                "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
                "spec.ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            make_job(completionMode="Foo"),
            ['spec.completionMode: Unsupported value: "Foo": supported values: "NonIndexed", "Indexed"'],
        ),
        (make_job(completionMode="Indexed"), []),
        (
            make_job(completionMode="Indexed", parallelism=2),
            ["spec.completions: Required value: when completion mode is Indexed"],
        ),
        (
            make_job(template={"spec": {"containers": [{"name": "c", "image": "x"}]}}),
            ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
        ),
        (
            make_job(
                template={
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "x"}],
                        "ephemeralContainers": [{"name": "debug", "image": "x"}],
                    }
                }
            ),
            ["spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"],
        ),
        (
            make_job(manualSelector=True),
            [
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
            ],
        ),
        (
            make_job(backoffLimitPerIndex=1),
            ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        ),
        (
            make_job(managedBy="x"),
            ['spec.managedBy: Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        (
            make_job(
                podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]}
            ),
            [
                "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In "
                "operator"
            ],
        ),
    ],
)
def test_a_job_that_breaks_a_rule_is_refused(obj: Object, want: list[str]) -> None:
    assert errors_of(obj) == want


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"completions": 3}, ["spec.completions: Invalid value: 3: field is immutable"]),
        ({"completionMode": "Indexed"}, ['spec.completionMode: Invalid value: "Indexed": field is immutable']),
        ({"managedBy": "a.b/c"}, ['spec.managedBy: Invalid value: "a.b/c": field is immutable']),
        ({"parallelism": 3}, []),
        ({"backoffLimit": 3}, []),
        ({"suspend": True}, []),
        ({"ttlSecondsAfterFinished": 5}, []),
        ({"activeDeadlineSeconds": 5}, []),
    ],
)
def test_of_a_job_only_the_pace_may_change(change: Object, want: list[str]) -> None:
    assert update_errors(make_job(), **change) == want


def test_the_template_of_a_job_may_move_only_while_suspended() -> None:
    running, suspended = create(make_job()), create(make_job(suspend=True))
    for old, moved, changed in ((running, ["spec.template"], "spec.template"), (suspended, [], "spec.template.spec")):
        new = copy.deepcopy(old)
        new["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
        assert [error.path for error in validate(kind_of(new), new, old)] == moved
        new["spec"]["template"]["spec"]["containers"][0]["image"] = "z"
        assert [error.path for error in validate(kind_of(new), new, old)] == [changed]


CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (make_config_map(data={"a/b": "c"}), [f'data[a/b]: Invalid value: "a/b": {CONFIG_KEY}']),
        (
            make_config_map(data={"a": "1"}, binaryData={"a": "MQ=="}),
            ['data[a]: Invalid value: "a": duplicate of key present in binaryData'],
        ),
        (make_config_map(data={"a": "x" * 1048577}), ["[]: Too long: may not be more than 1048576 bytes"]),
        (make_secret(type="kubernetes.io/tls"), ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        (
            make_secret(type="kubernetes.io/basic-auth"),
            ["data[username]: Required value", "data[password]: Required value"],
        ),
        (make_service(), ["spec.ports: Required value"]),
        (make_service(clusterIP="None"), []),
        (
            make_service(ports=[{"port": 80}, {"port": 81}]),
            ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
        ),
        (
            make_service(ports=[{"port": 80}], type="Foo"),
            [
                'spec.type: Unsupported value: "Foo": supported values: "ClusterIP", "ExternalName", "LoadBalancer", '
                '"NodePort"'
            ],
        ),
        (make_service(type="ExternalName"), ["spec.externalName: Required value"]),
        (
            make("v1", "PersistentVolumeClaim"),
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ],
        ),
        (
            make_lease(leaseDurationSeconds=0, leaseTransitions=-1),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            make("v1", "ResourceQuota", spec={"hard": {"cpu": "-1", "pods": "1.5"}}),
            [
                'spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0',
                'spec.hard[pods]: Invalid value: "1500m": must be an integer',
            ],
        ),
        (
            make(RBAC, "Role", rules=[{}]),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
        ),
        (
            make(RBAC, "RoleBinding"),
            [
                'roleRef.kind: Unsupported value: "": supported values: "Role", "ClusterRole"',
                "roleRef.name: Required value",
            ],
        ),
        (
            make("scheduling.k8s.io/v1", "PriorityClass", value=2000000001),
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
        (
            make("v1", "Event", involvedObject={"namespace": "zz"}),
            ['involvedObject.namespace: Invalid value: "zz": does not match event.namespace'],
        ),
        (
            make("v1", "Endpoints", subsets=[{}]),
            ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
        ),
        (
            make("v1", "Node", spec={"taints": [{"key": "a", "effect": "X"}]}),
            [
                'metadata.taints[0].effect: Unsupported value: "X": supported values: "NoSchedule", '
                '"PreferNoSchedule", "NoExecute"'
            ],
        ),
    ],
)
def test_other_objects_that_break_a_rule_are_refused(obj: Object, want: list[str]) -> None:
    assert errors_of(obj) == want


@pytest.mark.parametrize(
    ("obj", "change", "want"),
    [
        (make_config_map(data={"a": "b"}, immutable=True), {"data": {"a": "c"}}, "data"),
        (make_config_map(data={"a": "b"}, immutable=True), {"immutable": False}, "immutable"),
        (make_secret(stringData={"a": "b"}, immutable=True), {"data": {}}, "data"),
        (make_secret(stringData={"a": "b"}), {"type": "x"}, "type"),
        (make("scheduling.k8s.io/v1", "PriorityClass", value=1), {"value": 2}, "value"),
        (
            make(RBAC, "RoleBinding", roleRef={"kind": "Role", "name": "r"}),
            {"roleRef": {"kind": "Role", "name": "s", "apiGroup": "rbac.authorization.k8s.io"}},
            "roleRef",
        ),
    ],
)
def test_what_may_not_change_is_refused(obj: Object, change: Object, want: str) -> None:
    old = create(obj)
    assert [error.path for error in validate(kind_of(obj), old | change, old)] == [want]


def test_the_two_spellings_of_an_event_are_one_stored_object() -> None:
    newer = build().find_type("events.k8s.io/v1", "Event")
    assert newer is not None
    assert newer.to_storage is not None
    assert newer.from_storage is not None
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "t1"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "t1"},
        "note": "hello",
        "reason": "Testing",
        "type": "Normal",
        "action": "Doing",
        "reportingController": "example.com/x",
        "reportingInstance": "me",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "deprecatedCount": 2,
    }
    stored = newer.to_storage(event)
    assert stored["involvedObject"] == event["regarding"]
    assert (stored["apiVersion"], stored["message"], stored["count"]) == ("v1", "hello", 2)
    assert newer.from_storage(stored) == event
    assert newer.selectable["regarding.name"](event) == "p"
    assert validate(newer, event, None) == []
