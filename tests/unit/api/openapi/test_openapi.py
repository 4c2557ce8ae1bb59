"""OpenAPI documents: complete, consistent, lazy, and with what each kubectl looks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from trainmaster.api import openapi
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.openapi import gnostic, v2

pytestmark = pytest.mark.unit

DOCUMENTS = openapi.Documents(catalogue.build())
V3 = {path: orjson.loads(DOCUMENTS.find(path) or b"") for path in DOCUMENTS.paths()}


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def document_of(kind: Kind) -> dict[str, Any]:
    path = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
    found: dict[str, Any] = V3[path]
    return found


@pytest.mark.parametrize("path", V3)
def test_every_reference_leads_somewhere(path: str) -> None:
    document = V3[path]
    for node in walk(document):
        if "$ref" in node:
            assert node["$ref"].removeprefix("#/components/schemas/") in document["components"]["schemas"]


@pytest.mark.parametrize("path", V3)
def test_every_operation_has_an_id_of_its_own(path: str) -> None:
    ids = [node["operationId"] for node in walk(V3[path]["paths"]) if "operationId" in node]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", catalogue.build().kinds, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_kubectl_finds_every_kind(kind: Kind) -> None:
    """`explain` asks for the path, its type, and the schema of that type; every write asks the PATCH operation."""
    document = document_of(kind)
    prefix = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = document["paths"][f"{prefix}{scope}/{kind.plural}"]
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    assert all(
        operation["x-kubernetes-group-version-kind"] == gvk
        for method, operation in collection.items()
        if method != "parameters"
    )
    schema = document["components"]["schemas"][kind.definition]
    assert schema["x-kubernetes-group-version-kind"] == [gvk]
    assert set(schema["properties"]) == set(kind.load().properties)
    if "patch" in kind.verbs:
        patch = document["paths"][f"{prefix}{scope}/{kind.plural}/{{name}}"]["patch"]
        names = [parameter["name"] for parameter in patch["parameters"]]
        assert names == ["dryRun", "fieldManager", "fieldValidation", "force"]
        strategic = "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
        assert strategic is not kind.custom


def test_object_metadata_is_complete() -> None:
    """kubectl 1.20 refuses an object with a metadata field that the document does not know."""
    name = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    fields = V3["api/v1"]["components"]["schemas"][name]["properties"]
    assert {"name", "generateName", "namespace", "labels", "annotations", "managedFields", "ownerReferences"} <= set(
        fields
    )


def test_schemas_carry_what_patches_need() -> None:
    schemas = V3["api/v1"]["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]


def test_the_index_names_each_document_by_its_content() -> None:
    index = orjson.loads(DOCUMENTS.index())["paths"]
    assert set(index) == set(V3)
    for path, entry in index.items():
        assert entry["serverRelativeURL"] == f"/openapi/v3/{path}?hash={DOCUMENTS.hash_of(path)}"


def test_another_content_has_another_hash() -> None:
    kinds = list(catalogue.build().kinds)
    changed = openapi.Documents(Catalogue([replace(kinds[0], verbs=("get",)), *kinds[1:]]))
    path = DOCUMENTS.paths()[0]
    assert changed.hash_of(path) != DOCUMENTS.hash_of(path)
    assert changed.hash_of("apis/batch/v1") == DOCUMENTS.hash_of("apis/batch/v1")


def test_the_same_catalogue_gives_the_same_bytes() -> None:
    again = openapi.Documents(catalogue.build())
    assert again.index() == DOCUMENTS.index()
    assert again.v2_protobuf() == DOCUMENTS.v2_protobuf()


@pytest.mark.parametrize("path", ["api/v2", "apis/nothing/v1", "", "api", "apis/batch"])
def test_there_is_no_document_of_what_is_not_served(path: str) -> None:
    assert DOCUMENTS.find(path) is None


def test_nothing_is_built_before_it_is_asked_for() -> None:
    loaded: list[str] = []

    def load() -> SchemaNode:
        loaded.append("x")
        return SchemaNode(type="object")

    kinds = [Kind("g", "v1", "Thing", "things", "thing", True, "Thing", load)]
    documents = openapi.Documents(Catalogue(kinds))
    assert documents.paths() == ["apis/g/v1"]
    assert loaded == []
    documents.find("apis/g/v1")
    assert loaded


# Version 2 as protobuf, read back with a reader that knows nothing of the writer.


def fields(raw: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(raw):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, raw[at : at + 8]
            at += 8
        else:
            assert key & 7 == 2
            length = varint()
            yield key >> 3, raw[at : at + length]
            at += length


def messages(raw: bytes, *path: int) -> list[bytes]:
    found = [raw]
    for number in path:
        found = [
            value for part in found for field, value in fields(part) if field == number and isinstance(value, bytes)
        ]
    return found


PROTOBUF = DOCUMENTS.v2_protobuf()
JSON_V2 = orjson.loads(DOCUMENTS.v2_json())


def test_version_2_begins_as_swagger_2() -> None:
    assert messages(PROTOBUF, 1) == [b"2.0"]
    assert messages(PROTOBUF, 2, 1) == [b"Trainmaster"]


def test_version_2_holds_every_definition_and_path_in_both_encodings() -> None:
    assert {name.decode() for name in messages(PROTOBUF, 9, 1, 1)} == set(JSON_V2["definitions"])
    assert {name.decode() for name in messages(PROTOBUF, 8, 2, 1)} == set(JSON_V2["paths"])


def test_every_version_2_reference_leads_somewhere() -> None:
    for node in walk(JSON_V2):
        if "$ref" in node:
            assert node["$ref"].removeprefix("#/definitions/") in JSON_V2["definitions"]


def test_version_2_advertises_dry_run_on_every_patch() -> None:
    """Operation 8 of a path is PATCH, 8.1.2.3 its query parameters, 4 their names; 13 are the extensions."""
    patches = messages(PROTOBUF, 8, 2, 2, 8)
    kinds = {kind.kind for kind in catalogue.build().kinds if "patch" in kind.verbs}
    told = set()
    for patch in patches:
        assert b"dryRun" in messages(patch, 8, 1, 2, 3, 4)
        extensions = {
            messages(extension, 1)[0].decode(): orjson.loads(messages(extension, 2, 2)[0])
            for extension in messages(patch, 13)
        }
        told.add(extensions["x-kubernetes-group-version-kind"]["kind"])
    assert told == kinds | {"Scale"}


def test_version_2_properties_keep_their_types() -> None:
    (job,) = [entry for entry in messages(PROTOBUF, 9, 1) if messages(entry, 1) == [b"io.k8s.api.batch.v1.JobSpec"]]
    properties = {messages(entry, 1)[0].decode(): messages(entry, 2)[0] for entry in messages(job, 2, 25, 1)}
    assert messages(properties["parallelism"], 22, 1) == [b"integer"]
    assert messages(properties["parallelism"], 2) == [b"int32"]
    assert messages(properties["template"], 1) == [b"#/definitions/io.k8s.api.core.v1.PodTemplateSpec"]


def test_all_keywords_of_a_schema_are_encoded() -> None:
    node = SchemaNode(
        type="object",
        description="d",
        properties={
            "n": SchemaNode(type="integer", minimum=1, maximum=2.5, has_default=True, default=1, enum=(1, 2)),
            "s": SchemaNode(type="string", min_length=1, max_length=300, pattern="a"),
            "l": SchemaNode(type="array", items=SchemaNode(type="string"), min_items=1, max_items=3),
            "m": SchemaNode(type="object", additional=SchemaNode(type="string"), min_properties=1, max_properties=2),
        },
        required=("n",),
    )
    kind = Kind("g", "v1", "Thing", "things", "thing", False, "Thing", lambda: node, verbs=("get",))
    raw = gnostic.encode(v2.build(Catalogue([kind])))
    (thing,) = [entry for entry in messages(raw, 9, 1) if messages(entry, 1) == [b"Thing"]]
    schema = messages(thing, 2)[0]
    assert messages(schema, 19) == [b"n"]
    parts = {messages(entry, 1)[0]: dict(fields(messages(entry, 2)[0])) for entry in messages(schema, 25, 1)}
    assert set(parts[b"n"]) == {22, 20, 5, 9, 7}
    assert (parts[b"s"][11], parts[b"s"][12], parts[b"s"][13]) == (300, 1, b"a")
    assert (parts[b"l"][14], parts[b"l"][15]) == (3, 1)
    assert (parts[b"m"][17], parts[b"m"][18]) == (2, 1)
