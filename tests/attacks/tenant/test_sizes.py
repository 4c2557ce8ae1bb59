"""Objects that grow: 1.5 MiB is the end, by whatever way they get there, and the way there costs little."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.cost import cheap
from tests.attacks.site import Site, unique

pytestmark = pytest.mark.attacks

MOST = 1536 * 1024
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
RUNTIMES = "trainer.kubeflow.org/v1alpha1"


def build_runtime(name: str, size: int = 10) -> dict[str, Any]:
    """A kind that takes any amount of text."""
    container = {"name": "node", "image": "plain", "args": ["x" * size]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    return {
        "apiVersion": RUNTIMES,
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


@pytest.fixture
def runtime(site: Site) -> Iterator[str]:
    name = unique("grows")
    path = site.ann.path("trainingruntimes", name, group=RUNTIMES)
    site.ann.kube.create(site.ann.path("trainingruntimes", group=RUNTIMES), build_runtime(name))
    yield path
    site.ann.kube.delete(path)


ARGS = "/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/args"


def test_an_object_does_not_grow_beyond_the_limit_by_patches(site: Site, runtime: str) -> None:
    step = [{"op": "add", "path": f"{ARGS}/-", "value": "y" * 400_000}]
    answers = [site.ann.kube.call("PATCH", runtime, step, Content_Type=JSON_PATCH) for _ in range(6)]
    assert [code for code, _ in answers] == [200, 200, 200, 413, 413, 413]
    refusal = answers[-1][1]
    assert refusal["reason"] == "RequestEntityTooLarge"
    assert "etcdserver: request is too large" in refusal["message"]
    assert "limits.object_bytes" in refusal["message"]
    assert len(json.dumps(site.ann.kube.get(runtime))) < MOST
    # What is there can still be made smaller.
    code, _ = site.ann.kube.call("PATCH", runtime, [{"op": "remove", "path": f"{ARGS}/1"}], Content_Type=JSON_PATCH)
    assert code == 200


def test_copies_that_double_end_early(site: Site, runtime: str) -> None:
    fill = [{"op": "add", "path": f"{ARGS}/-", "value": "y" * 1000}]
    double = [{"op": "copy", "from": ARGS, "path": f"{ARGS}/-"} for _ in range(40)]
    with cheap(site):
        code, answer = site.ann.kube.call("PATCH", runtime, fill + double, Content_Type=JSON_PATCH)
        assert code in (413, 422), answer


def test_ten_thousand_insertions_in_front_cost_little(site: Site, runtime: str) -> None:
    patch: list[Any] = [{"op": "add", "path": ARGS, "value": [""] * 29_000}]
    patch += [{"op": "add", "path": f"{ARGS}/0", "value": ""}, {"op": "remove", "path": f"{ARGS}/0"}] * 4_900
    with cheap(site):
        code, _ = site.ann.kube.call("PATCH", runtime, patch, Content_Type=JSON_PATCH)
        assert code in (200, 413, 422)


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, APPLY])
def test_no_other_patch_gets_further(site: Site, content_type: str) -> None:
    name = unique("map")
    path = site.ann.path("configmaps", name)
    empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    site.ann.kube.create(site.ann.path("configmaps"), empty)
    codes = []
    for number in range(5):
        body = {**empty, "data": {f"key-{number}": "z" * 400_000}}
        query = f"?fieldManager=m{number}" if content_type == APPLY else ""
        codes.append(site.ann.kube.call("PATCH", path + query, body, Content_Type=content_type)[0])
    # A ConfigMap holds 1 MiB of data, as upstream.
    assert codes == [200, 200, 422, 422, 422]
    site.ann.kube.delete(path)


@pytest.mark.parametrize("dry", ["", "?dryRun=All"])
def test_a_body_beyond_the_limit_is_refused(site: Site, dry: str) -> None:
    path = site.ann.path("trainingruntimes", group=RUNTIMES)
    code, answer = site.ann.kube.call("POST", path + dry, build_runtime("large", 1_700_000))
    assert code == 413
    assert "limits.object_bytes" in answer["message"]


def build_many(kind: str) -> dict[str, Any]:
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "many"}}
    if kind == "containers":
        return {**pod, "spec": {"containers": [{}] * 300_000}}
    if kind == "variables":
        return {**pod, "spec": {"containers": [{"name": "a", "image": "b", "env": [{"name": ""}] * 80_000}]}}
    if kind == "labels":
        return {**pod, "metadata": {"name": "many", "labels": {f"k {n}": " " for n in range(80_000)}}}
    if kind == "unknown fields":
        return {**pod, **{f"f{n}": 1 for n in range(80_000)}}
    return {**pod, "metadata": {"name": "many", "finalizers": [f"a.b/c{n}" for n in range(80_000)]}}


@pytest.mark.parametrize("kind", ["containers", "variables", "labels", "unknown fields", "finalizers"])
def test_many_small_values_are_refused_before_they_are_looked_at(site: Site, kind: str) -> None:
    with cheap(site):
        code, answer = site.ann.kube.call("POST", site.ann.path("pods"), build_many(kind))
        assert code == 413
        assert "limits.object_values" in answer["message"]


def test_many_mistakes_are_told_in_a_short_answer(site: Site) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}}
    body["data"] = {f"{'k' * 50} {number}": "" for number in range(20_000)}
    with cheap(site):
        code, answer = site.ann.kube.call("POST", site.ann.path("configmaps"), body)
        assert code == 422
        assert len(answer["details"]["causes"]) <= 101
        assert len(json.dumps(answer)) < 600_000


def test_many_unknown_fields_are_told_in_a_short_answer(site: Site) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unique("a")}}
    body |= {f"{'f' * 40}{number}": "" for number in range(20_000)}
    with cheap(site):
        code, answer = site.ann.kube.call("POST", site.ann.path("configmaps") + "?fieldValidation=Strict", body)
        assert code == 400
        assert len(answer["message"]) < 200_000
        code, answer = site.ann.kube.call("POST", site.ann.path("configmaps"), body)
        assert code == 201
    site.ann.kube.delete(site.ann.path("configmaps", answer["metadata"]["name"]))


def test_a_deep_secret_is_refused(site: Site) -> None:
    deep = base64.b64encode(b"[" * 100_000).decode()
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "deep"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": deep},
    }
    code, _ = site.ann.kube.call("POST", site.ann.path("secrets"), body)
    assert code == 422


def encode_field(number: int, content: bytes) -> bytes:
    size, length = len(content), b""
    while size >= 0x80:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


@pytest.mark.parametrize("kind", ["unknown fields", "empty containers", "deep ownership"])
def test_protobuf_is_counted_too(site: Site, kind: str) -> None:
    if kind == "unknown fields":
        message = b"\x78\x01" * 1_000_000
    elif kind == "empty containers":
        message = encode_field(2, encode_field(2, b"") * 1_000_000)
    else:
        raw = encode_field(1, b'{"a":' * 900 + b"1" + b"}" * 900)
        message = encode_field(1, encode_field(1, b"deep") + encode_field(17, encode_field(7, raw)))
    envelope = encode_field(1, encode_field(1, b"v1") + encode_field(2, b"Pod")) + encode_field(2, message)
    with cheap(site):
        code, answer = site.ann.kube.call(
            "POST", site.ann.path("pods"), b"k8s\0" + envelope, Content_Type="application/vnd.kubernetes.protobuf"
        )
        assert code in (400, 413, 422), answer


NUMBERS = ("9" * 500_000, "0." + "9" * 500_000, "1e999999999", "1e-999999999", "1E1000000", "1" + "0" * 5_000)


@pytest.mark.parametrize("number", NUMBERS, ids=[f"{number[:12]} of {len(number)}" for number in NUMBERS])
@pytest.mark.parametrize("resource", ["cpu", "nvidia.com/gpu"])
def test_quantities_are_never_dear(site: Site, number: str, resource: str) -> None:
    resources = {"limits": {resource: number}, "requests": {resource: number}}
    pod = site.ann.build_pod(unique("number"), "true", container={"resources": resources})
    job = {
        "apiVersion": RUNTIMES,
        "kind": "TrainJob",
        "metadata": {"name": unique("number")},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"resourcesPerNode": resources}},
    }
    with cheap(site):
        code, answer = site.ann.kube.call("POST", site.ann.path("pods") + "?dryRun=All", pod)
        assert code in (400, 403, 422), answer
        path = site.ann.path("trainjobs", group=RUNTIMES)
        code, answer = site.ann.kube.call("POST", path + "?dryRun=All", job)
        assert code in (400, 403, 422), answer
        assert len(json.dumps(answer)) < 600_000
