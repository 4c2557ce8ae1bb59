"""CustomResourceDefinition objects of the custom kinds.

The same declarations that serve a kind here describe it to a real cluster: `build_crd(kind)` is what the operator mode
installs and what our server shows to clients that look for our CRDs; `established` adds the status a server reports.
The output is deterministic, so that installing twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainmaster.api.declaring.kinds import Column, Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.meta import Object

API_VERSION = "apiextensions.k8s.io/v1"
KIND = "CustomResourceDefinition"


def build_all(kinds: Iterable[Kind]) -> list[Object]:
    """One object per custom kind, by name."""
    return sorted((build_crd(kind) for kind in kinds if kind.custom), key=lambda crd: str(crd["metadata"]["name"]))


def build_crd(kind: Kind) -> Object:
    names: Object = {"kind": kind.kind, "listKind": kind.list_kind, "plural": kind.plural, "singular": kind.singular}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    version: Object = {"name": kind.version, "served": True, "storage": True}
    columns = [_column(column) for column in kind.columns if column.json_path]
    if columns:
        version["additionalPrinterColumns"] = columns
    subresources = _list_subresources(kind)
    if subresources:
        version["subresources"] = subresources
    version["schema"] = {"openAPIV3Schema": _root(kind.load())}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": kind.gvr.qualified},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "conversion": {"strategy": "None"},
            "versions": [version],
        },
    }


def _list_subresources(kind: Kind) -> Object:
    out: Object = {"status": {}} if kind.status else {}
    if kind.scale is not None:
        out["scale"] = {"specReplicasPath": kind.scale.spec, "statusReplicasPath": kind.scale.status}
        if kind.scale.selector:
            out["scale"]["labelSelectorPath"] = kind.scale.selector
    return out


def established(crd: Object, since: str) -> Object:
    """The object with the status of a definition that is served."""
    spec = crd["spec"]
    conditions = [
        _condition("NamesAccepted", "NoConflicts", "no conflicts found", since),
        _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", since),
    ]
    status = {
        "acceptedNames": spec["names"],
        "conditions": conditions,
        "storedVersions": [version["name"] for version in spec["versions"]],
    }
    return crd | {"status": status}


def _condition(kind: str, reason: str, message: str, since: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}


def _column(column: Column) -> Object:
    out: Object = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.description:
        out["description"] = column.description
    if column.format:
        out["format"] = column.format
    if column.priority:
        out["priority"] = column.priority
    return out


def _root(node: SchemaNode) -> Object:
    """A structural schema leaves metadata to the server."""
    out = to_schema(node)
    out["properties"] = out["properties"] | {"metadata": {"type": "object"}}
    return out


_KEYWORDS = (
    ("format", "format"),
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
    ("pattern", "pattern"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
    ("min_properties", "minProperties"),
    ("max_properties", "maxProperties"),
)


def to_schema(node: SchemaNode) -> Object:
    """A structural schema (apiextensions.k8s.io/v1) from a node."""
    out: Object = {}
    if node.description:
        out["description"] = node.description
    if node.int_or_string:
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        out["x-kubernetes-int-or-string"] = True
        if node.pattern:
            out["pattern"] = node.pattern
    else:
        if node.type:
            out["type"] = node.type
        for field, keyword in _KEYWORDS:
            value = getattr(node, field)
            if value is not None and value != "":
                out[keyword] = value
    if node.enum:
        out["enum"] = list(node.enum)
    if node.has_default:
        out["default"] = node.default
    if node.nullable:
        out["nullable"] = True
    _add_children(out, node)
    _add_extensions(out, node)
    return out


def _add_children(out: Object, node: SchemaNode) -> None:
    if node.properties:
        out["properties"] = {name: to_schema(child) for name, child in sorted(node.properties.items())}
    if node.required:
        out["required"] = list(node.required)
    if node.additional is not None:
        out["additionalProperties"] = to_schema(node.additional)
    if node.items is not None:
        out["items"] = to_schema(node.items)


def _add_extensions(out: Object, node: SchemaNode) -> None:
    if node.type == "array" and node.list_type != "atomic":
        out["x-kubernetes-list-type"] = node.list_type
        if node.list_map_keys:
            out["x-kubernetes-list-map-keys"] = list(node.list_map_keys)
    elif node.type == "array":
        out["x-kubernetes-list-type"] = "atomic"
    if node.atomic_map:
        out["x-kubernetes-map-type"] = "atomic"
    if node.preserve_unknown:
        out["x-kubernetes-preserve-unknown-fields"] = True
    if node.rules:
        out["x-kubernetes-validations"] = [_rule(rule.rule, rule.message, rule.reason) for rule in node.rules]


def _rule(rule: str, message: str, reason: str) -> dict[str, Any]:
    return {"rule": rule, "message": message} | ({"reason": reason} if reason else {})
