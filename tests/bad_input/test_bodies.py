"""Bodies that are broken, too large, too deep or of the wrong kind: the right 4xx, and nothing is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bad_input.raw import Hostile

pytestmark = pytest.mark.bad_input

MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"


def config_map(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostile"}, **more}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half an object"),
        pytest.param(b"not json", id="no JSON"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'"text"', id="a string"),
        pytest.param(b"null", id="null"),
        pytest.param(b"123", id="a number"),
        pytest.param(b'{"metadata":{"name":"\xff\xfe"}}', id="bytes that are not UTF-8"),
        pytest.param(b'{"metadata":{"name":"a"}} trailing', id="something behind the object"),
        pytest.param(b'{"metadata":{"name":NaN}}', id="NaN"),
        pytest.param(b'{"metadata":{"name":"a","generation":1e999}}', id="a number beyond a float"),
        pytest.param(b"\x00" * 100, id="zeros"),
    ],
)
def test_what_is_not_an_object_is_refused(hostile: Hostile, body: bytes) -> None:
    before = hostile.count(MAPS)
    hostile.request("POST", MAPS, body).check_refused(400, 422)
    assert hostile.count(MAPS) == before


@pytest.mark.parametrize(
    ("obj", "codes"),
    [
        pytest.param({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}, (400,), id="another kind"),
        pytest.param(
            {"apiVersion": "v9", "kind": "ConfigMap", "metadata": {"name": "x"}}, (400,), id="another version"
        ),
        pytest.param(config_map(metadata="text"), (400,), id="metadata that is a string"),
        pytest.param(config_map(metadata=[]), (400,), id="metadata that is a list"),
        pytest.param(config_map(metadata={"name": 5}), (400,), id="a name that is a number"),
        pytest.param(config_map(metadata={"name": {"a": 1}}), (400,), id="a name that is an object"),
        pytest.param(config_map(metadata={}), (422,), id="no name"),
        pytest.param(config_map(data={"k": 1}), (400,), id="a number where text belongs"),
        pytest.param(config_map(data=["a"]), (400,), id="a list where a map belongs"),
        pytest.param(config_map(data={"k": None, "l": {}}), (400,), id="an object where text belongs"),
        pytest.param(config_map(binaryData={"k": "%%%"}), (400, 422), id="broken base64"),
        pytest.param(config_map(metadata={"name": "x", "labels": {"a": 1}}), (400,), id="a label that is a number"),
        pytest.param(config_map(metadata={"name": "x", "labels": {"-bad-": "v"}}), (422,), id="a bad label key"),
        pytest.param(config_map(metadata={"name": "x", "finalizers": "f"}), (400,), id="finalizers that are text"),
        pytest.param(
            config_map(metadata={"name": "x", "ownerReferences": [{"uid": 1}]}), (400, 422), id="a broken owner"
        ),
        pytest.param(config_map(metadata={"name": "x", "creationTimestamp": "yesterday"}), (400,), id="a broken time"),
        pytest.param(config_map(metadata={"name": "x", "managedFields": [1, 2]}), (400, 422), id="broken ownership"),
        pytest.param(config_map(metadata={"name": "x", "resourceVersion": "5"}), (400, 422), id="a version on create"),
        pytest.param(config_map(metadata={"name": "x", "namespace": "other"}), (400,), id="another namespace"),
    ],
)
def test_wrong_types_are_refused_with_a_reason(hostile: Hostile, obj: Any, codes: tuple[int, ...]) -> None:
    before = hostile.count(MAPS)
    hostile.post(MAPS, obj).check_refused(*codes)
    assert hostile.count(MAPS) == before


@pytest.mark.parametrize(
    "name",
    [
        "UPPER", "with space", "a/b", "..", ".", "a..b", "-a", "a-", "ä", "a" * 254, "\u0000", "a\nb", "%2e%2e", "",
        "a;b", "$(id)", "<script>", "../../etc/passwd", "\u202eevil",
    ],
)  # fmt: skip
def test_hostile_names_are_refused_in_bodies(hostile: Hostile, name: str) -> None:
    before = hostile.count(MAPS)
    hostile.post(MAPS, config_map(metadata={"name": name})).check_refused(400, 422)
    assert hostile.count(MAPS) == before


def test_ten_megabytes_are_refused_and_the_answer_arrives(hostile: Hostile) -> None:
    body = json.dumps(config_map(data={"k": "x" * 10_000_000})).encode()
    answer = hostile.request("POST", MAPS, body).check_refused(413)
    assert answer["reason"] == "RequestEntityTooLarge"


def test_ten_megabytes_in_chunks_are_refused(hostile: Hostile) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = hostile.head("POST", MAPS, "Transfer-Encoding: chunked", "Content-Type: application/json")
    hostile.send(head + chunk * 160 + b"0\r\n\r\n").check_refused(413)


@pytest.mark.parametrize("depth", [201, 1_000, 100_000, 1_000_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_deep_nesting_is_refused(hostile: Hostile, depth: int, opening: str, closing: str) -> None:
    nested = opening * depth + "1" + closing * depth
    if len(nested) > 2_900_000:
        nested = opening * (2_900_000 // len(opening))
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"data":%s}' % nested.encode()
    hostile.request("POST", MAPS, body).check_refused(400)


def test_deep_nesting_where_any_value_is_allowed_is_refused(hostile: Hostile) -> None:
    nested: Any = 1
    for _ in range(250):
        nested = {"a": nested}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "deep"},
        "spec": {"runtimeRef": {"name": "r"}, "podTemplateOverrides": [{"spec": nested}]},
    }
    hostile.request("POST", TRAINJOBS, json.dumps(job).encode()).check_refused(400, 422)


def test_a_hundred_thousand_keys_are_answered(hostile: Hostile) -> None:
    labels = {f"k{number}": "v" for number in range(100_000)}
    reply = hostile.post(MAPS, config_map(metadata={"name": "wide", "annotations": labels}))
    reply.check_refused(413)


@pytest.mark.parametrize(
    ("content_type", "body", "codes"),
    [
        pytest.param("application/xml", b"<a/>", (415,), id="XML"),
        pytest.param("text/plain", b"{}", (415,), id="plain text"),
        pytest.param("application/vnd.kubernetes.protobuf", b"{}", (400,), id="JSON called protobuf"),
        pytest.param("application/vnd.kubernetes.protobuf", b"k8s\x00", (400, 415, 422), id="an empty envelope"),
        pytest.param("application/vnd.kubernetes.protobuf", b"k8s\x00" + b"\xff" * 500, (400,), id="protobuf noise"),
        pytest.param(
            "application/vnd.kubernetes.protobuf",
            b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\xff\xff\xff\xff\x0f",
            (400,),
            id="a length beyond the end",
        ),
        pytest.param(
            "application/vnd.kubernetes.protobuf",
            b"k8s\x00\x0a\x0a\x0a\x02v1\x12\x04Nope\x12\x00",
            (415,),
            id="a strange kind",
        ),
        pytest.param("application/yaml", b"a: [", (400,), id="broken YAML"),
        pytest.param("application/yaml", b"a: &x [1]\nb: [*x,*x]", (400,), id="YAML with aliases"),
        pytest.param("application/yaml", b"!!python/object/apply:os.system ['id']", (400,), id="YAML that runs code"),
        pytest.param("application/yaml", b"- " * 5000 + b"a", (400,), id="deep YAML"),
    ],
)
def test_bodies_of_other_types(hostile: Hostile, content_type: str, body: bytes, codes: tuple[int, ...]) -> None:
    before = hostile.count(MAPS)
    hostile.request("POST", MAPS, body, content_type).check_refused(*codes)
    assert hostile.count(MAPS) == before


class TestPatches:
    TARGET = f"{MAPS}/patched"

    @pytest.fixture(autouse=True)
    def _target(self, hostile: Hostile) -> None:
        hostile.post(MAPS, config_map(metadata={"name": "patched"}, data={"k": "v"}))

    @pytest.mark.parametrize(
        ("content_type", "patch", "codes"),
        [
            pytest.param("application/json-patch+json", b"{}", (400,), id="a JSON patch that is an object"),
            pytest.param("application/json-patch+json", b"[1,2]", (400, 422), id="operations that are numbers"),
            pytest.param(
                "application/json-patch+json", b'[{"op":"explode","path":"/"}]', (400, 422), id="a strange op"
            ),
            pytest.param(
                "application/json-patch+json", b'[{"op":"remove","path":"/nope"}]', (400, 422), id="a missing path"
            ),
            pytest.param(
                "application/json-patch+json",
                b'[{"op":"test","path":"/data/k","value":"x"}]',
                (422,),
                id="a failed test",
            ),
            pytest.param(
                "application/json-patch+json",
                b'[{"op":"add","path":"no-slash","value":1}]',
                (400, 422),
                id="no pointer",
            ),
            pytest.param(
                "application/json-patch+json",
                b'[{"op":"replace","path":"","value":5}]',
                (400, 422),
                id="a root that is a number",
            ),
            pytest.param(
                "application/json-patch+json",
                b'[{"op":"move","from":"/data","path":"/data/k/x"}]',
                (400, 422),
                id="a move into itself",
            ),
            pytest.param(
                "application/json-patch+json",
                b"["
                + b'{"op":"test","path":"/kind","value":"ConfigMap"},' * 10_000
                + b'{"op":"test","path":"/kind","value":"x"}]',
                (413,),
                id="too many operations",
            ),
            pytest.param(
                "application/json-patch+json",
                b'[{"op":"copy","from":"/metadata","path":"/metadata/annotations"}]',
                (400, 422),
                id="a copy that breaks types",
            ),
            pytest.param("application/merge-patch+json", b"[]", (400,), id="a merge patch that is a list"),
            pytest.param("application/merge-patch+json", b'{"data":5}', (400, 422), id="a merge that breaks types"),
            pytest.param("application/merge-patch+json", b'{"metadata":{"name":"other"}}', (400, 422), id="a new name"),
            pytest.param("application/merge-patch+json", b'{"kind":"Pod"}', (400, 422), id="a new kind"),
            pytest.param(
                "application/merge-patch+json", b'{"metadata":{"resourceVersion":"1"}}', (409,), id="a stale version"
            ),
            pytest.param("application/merge-patch+json", b'{"metadata":{"uid":"nope"}}', (409, 422), id="another uid"),
            pytest.param(
                "application/strategic-merge-patch+json",
                b'{"data":{"$patch":"explode"}}',
                (400, 422),
                id="a strange directive",
            ),
            pytest.param(
                "application/strategic-merge-patch+json",
                b'{"metadata":{"ownerReferences":[{"nope":1}]}}',
                (400, 422),
                id="no merge key",
            ),
            pytest.param("application/apply-patch+yaml", b"{}", (400, 422), id="an apply without a type"),
            pytest.param("application/apply-patch+yaml", b"a: [", (400, 422), id="an apply that is broken YAML"),
            pytest.param("application/json", b"{}", (415,), id="no patch type"),
            pytest.param("application/nonsense", b"{}", (415,), id="a strange patch type"),
        ],
    )
    def test_broken_patches_change_nothing(
        self, hostile: Hostile, content_type: str, patch: bytes, codes: tuple[int, ...]
    ) -> None:
        before = hostile.request("GET", self.TARGET).json()
        query = "?fieldManager=hostile" if "apply" in content_type else ""
        hostile.request("PATCH", self.TARGET + query, patch, content_type).check_refused(*codes)
        assert hostile.request("GET", self.TARGET).json() == before

    def test_a_strategic_patch_on_a_custom_kind_is_415(self, hostile: Hostile) -> None:
        path = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"
        hostile.request("PATCH", path, b"{}", "application/strategic-merge-patch+json").check_refused(404, 415)


@pytest.mark.parametrize(
    "body",
    [
        b'{"propagationPolicy":"Sideways"}', b'{"gracePeriodSeconds":"soon"}', b'{"preconditions":"x"}', b"[]", b"{",
        b'{"dryRun":["Some"]}', b'{"propagationPolicy":5}', b'{"preconditions":{"uid":"nope"}}',
    ],
)  # fmt: skip
def test_broken_delete_options_delete_nothing(hostile: Hostile, body: bytes) -> None:
    hostile.post(MAPS, config_map(metadata={"name": "kept"}))
    hostile.request("DELETE", f"{MAPS}/kept", body).check_refused(400, 409, 422)
    assert hostile.request("GET", f"{MAPS}/kept").status == 200


def test_unknown_fields_are_refused_when_strict_and_warned_of_otherwise(hostile: Hostile) -> None:
    strict = hostile.post(f"{MAPS}?fieldValidation=Strict", config_map(metadata={"name": "strict"}, bogus=1))
    assert 'unknown field "bogus"' in strict.check_refused(400)["message"]
    warned = hostile.post(MAPS, config_map(metadata={"name": "warned"}, bogus=1))
    assert warned.status == 201 and "unknown field" in warned.headers["warning"] and "bogus" not in warned.json()


DOUBLED = (
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"doubled","labels":{"a":"1","a":"2"}},'
    b'"data":{"k":"v"},"data":{"k":"w"},"bogus":1}'
)


def test_fields_given_twice_are_refused_by_name_in_strict_mode(hostile: Hostile) -> None:
    before = hostile.count(MAPS)
    answer = hostile.request("POST", f"{MAPS}?fieldValidation=Strict", DOUBLED).check_refused(400)
    assert answer["message"] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'duplicate field "metadata.labels.a", duplicate field "data", unknown field "bogus"'
    )
    assert hostile.count(MAPS) == before


def test_fields_given_twice_are_warned_about_when_asked(hostile: Hostile) -> None:
    reply = hostile.request("POST", f"{MAPS}?fieldValidation=Warn&dryRun=All", DOUBLED.replace(b',"bogus":1', b""))
    assert reply.status == 201, reply.body
    assert 'duplicate field \\"data\\"' in reply.headers["warning"], reply.headers
