"""Schema nodes as OpenAPI schemas, in the dialect of version 3 or version 2 (Swagger).

A node that stands for a named definition becomes a reference, and the definition is collected, so that a document holds
exactly what it refers to. Extensions tell clients what they need for patches: list types, merge keys, map types.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api import schemas
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.meta import Object
from trainmaster.api.openapi.operations import META, list_of

_LIMITS = (
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
    ("min_properties", "minProperties"),
    ("max_properties", "maxProperties"),
)
_GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"


class Definitions:
    """The definitions of one document, collected while its schemas are written."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._prefix = "#/components/schemas/" if version == 3 else "#/definitions/"
        self._waiting: list[tuple[str, SchemaNode]] = []
        self._written: dict[int, Object] = {}
        self.schemas: dict[str, Object] = {}

    def ref(self, name: str) -> Object:
        """A reference to a shipped definition."""
        self._want(name, None)
        self._drain()
        return {"$ref": self._prefix + name}

    def add_kind(self, kind: Kind) -> None:
        """The definitions of a kind and of its list, marked with their type."""
        self._want(kind.definition, kind.load())
        self._drain()
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        self.schemas[kind.definition][_GROUP_VERSION_KIND] = [gvk]
        if "list" in kind.verbs:
            self.schemas[list_of(kind.definition)] = {
                "description": f"A list of {kind.kind} objects.",
                "type": "object",
                "required": ["items"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "items": {"type": "array", "items": self.ref(kind.definition)},
                    "kind": {"type": "string"},
                    "metadata": self.ref(META + "ListMeta"),
                },
                _GROUP_VERSION_KIND: [{**gvk, "kind": kind.list_kind}],
            }

    def _want(self, name: str, node: SchemaNode | None) -> None:
        if name not in self.schemas:
            self.schemas[name] = {}
            self._waiting.append((name, node if node is not None else schemas.load(name)))

    def _drain(self) -> None:
        while self._waiting:
            name, node = self._waiting.pop()
            self.schemas[name].update(self._plain(node))

    def _schema(self, node: SchemaNode) -> Object:
        """A field's schema; equal subtrees share one object, which is written out as often as it is used."""
        if node.definition:
            return self._reference(node)
        found = self._written.get(id(node))
        if found is None:
            found = self._written[id(node)] = self._plain(node)
        return found

    def _reference(self, node: SchemaNode) -> Object:
        target = schemas.load(node.definition)
        self._want(node.definition, target)
        ref = {"$ref": self._prefix + node.definition}
        more: Object = {}
        if node.description and node.description != target.description:
            more["description"] = node.description
        if node.has_default:
            more["default"] = node.default
        if node.atomic_map and not target.atomic_map:
            more["x-kubernetes-map-type"] = "atomic"
        if not more:
            return ref
        return {"allOf": [ref], **more} if self._version == 3 else {**ref, **more}

    def _plain(self, node: SchemaNode) -> Object:
        out: Object = {}
        if node.description:
            out["description"] = node.description
        self._write_type(node, out)
        if node.properties:
            out["properties"] = {name: self._schema(child) for name, child in node.properties.items()}
        if node.required:
            out["required"] = list(node.required)
        if node.additional is not None:
            out["additionalProperties"] = self._schema(node.additional)
        if node.type == "array":
            out["items"] = self._schema(node.items) if node.items is not None else {}
        self._write_limits(node, out)
        _write_extensions(node, out)
        return out

    def _write_type(self, node: SchemaNode, out: Object) -> None:
        if node.int_or_string:
            self._write_int_or_string(node, out)
            return
        if node.type:
            out["type"] = node.type
        if node.format:
            out["format"] = node.format

    def _write_int_or_string(self, node: SchemaNode, out: Object) -> None:
        if self._version == 3:
            number = "integer" if node.format == "int-or-string" else "number"
            out["oneOf"] = [{"type": number}, {"type": "string"}]
        elif node.definition:
            out["type"] = "string"
        if node.format:
            out["format"] = node.format
        if not node.definition:
            out["x-kubernetes-int-or-string"] = True

    def _write_limits(self, node: SchemaNode, out: Object) -> None:
        if node.enum:
            out["enum"] = list(node.enum)
        if node.has_default:
            out["default"] = node.default
        if node.pattern and not (node.int_or_string and self._version == 3):
            out["pattern"] = node.pattern
        for name, key in _LIMITS:
            limit: Any = getattr(node, name)
            if limit is not None:
                out[key] = int(limit) if float(limit).is_integer() else limit
        if node.nullable and self._version == 3:
            out["nullable"] = True


def _write_extensions(node: SchemaNode, out: Object) -> None:
    if node.type == "array":
        if node.list_type != "atomic" or node.list_map_keys:
            out["x-kubernetes-list-type"] = node.list_type
        if node.list_map_keys:
            out["x-kubernetes-list-map-keys"] = list(node.list_map_keys)
    if node.atomic_map:
        out["x-kubernetes-map-type"] = "atomic"
    if node.patch_strategies:
        out["x-kubernetes-patch-strategy"] = ",".join(node.patch_strategies)
    if node.patch_merge_key:
        out["x-kubernetes-patch-merge-key"] = node.patch_merge_key
    if node.preserve_unknown:
        out["x-kubernetes-preserve-unknown-fields"] = True
    if node.rules:
        out["x-kubernetes-validations"] = [{"rule": rule.rule, "message": rule.message} for rule in node.rules]
