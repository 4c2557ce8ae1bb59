"""The slow pass of decoding: repairs the object, collects unknown fields, and reports errors.

Built-in kinds are decoded by Go structs upstream: `null` means absent, empty lists and maps vanish, times and
quantities get one spelling, and a wrong type ends the request. Custom kinds keep what they are given: `null` fields
vanish, whole floats become integers, defaults are filled in, and wrong types are left for validation to name.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.decoding import go_messages
from trainmaster.api.decoding.go_messages import DecodeError
from trainmaster.api.meta import Object

__all__ = ["DecodeError", "repair"]


def repair(kind: Kind, obj: Object) -> list[str]:
    """Changes the object in place; returns the paths of the fields it dropped. Raises DecodeError."""
    node = kind.load()
    if not kind.custom:
        built_in = _BuiltIn(kind.kind)
        built_in.object(node, obj, "", kind.kind)
        return built_in.unknown
    metadata = obj.get("metadata")
    of_metadata = _BuiltIn("ObjectMeta")
    if metadata is not None:
        if not isinstance(metadata, dict):
            raise DecodeError(
                f"json: cannot unmarshal {go_messages.json_word(metadata)} into Go value of type v1.ObjectMeta"
            )
        of_metadata.object(node.properties["metadata"], metadata, "", "ObjectMeta")
    custom = _Custom()
    custom.fields(node, obj, "", skip="metadata")
    return [f"metadata.{path}" for path in of_metadata.unknown] + sorted(custom.unknown)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


class _BuiltIn:
    """`path` carries list positions (for unknown fields) and embedded structs (for Go's messages)."""

    def __init__(self, root: str) -> None:
        self.unknown: list[str] = []
        self._root = root

    def object(self, node: SchemaNode, value: Object, path: str, struct: str) -> None:
        for name in list(value):
            child = node.properties.get(name)
            if child is None:
                self.unknown.append(_join(go_messages.without_embedded(path), name))
                del value[name]
                continue
            item = value[name]
            if item is None or (not item and name not in node.required and _vanishes(child, item)):
                del value[name]
                continue
            value[name] = self.value(child, item, _join(path, go_messages.embedded(node, name) + name), struct)

    def value(self, node: SchemaNode, value: Any, path: str, struct: str) -> Any:
        if node.int_or_string or node.type not in ("object", "array"):
            return go_messages.scalar(node, value, struct, path)
        if node.type == "array":
            if type(value) is not list:
                raise go_messages.wrong_type(value, struct, path, go_messages.go_type(node))
            return [self._item(node.items, item, f"{path}[{index}]", struct) for index, item in enumerate(value)]
        if type(value) is not dict:
            raise go_messages.wrong_type(value, struct, path, go_messages.go_type(node))
        if node.preserve_unknown:
            return value
        if node.additional is not None:
            kept = {key: item for key, item in value.items() if item is not None}
            return {key: self.value(node.additional, item, path, struct) for key, item in kept.items()}
        self.object(node, value, path, node.definition.rpartition(".")[2] or struct)
        return value

    def _item(self, node: SchemaNode | None, item: Any, path: str, struct: str) -> Any:
        if node is None:
            return item
        if item is None:
            # Go leaves the zero value of the element; validation then says what it misses.
            return {} if node.type == "object" else ""
        return self.value(node, item, path, struct)


def _vanishes(node: SchemaNode, value: Any) -> bool:
    """Empty lists and maps of optional fields are not stored. Empty structs are: `emptyDir: {}` means something."""
    return (node.type == "array" and value == []) or (node.additional is not None and value == {})


class _Custom:
    def __init__(self) -> None:
        self.unknown: list[str] = []

    def fields(self, node: SchemaNode, value: Object, path: str, skip: str = "") -> None:
        for name in list(value):
            if name == skip:
                continue
            child = node.properties.get(name)
            if child is None:
                if not node.preserve_unknown:
                    self.unknown.append(_join(path, name))
                    del value[name]
                continue
            item = value[name]
            if item is None and not child.nullable:
                del value[name]
                continue
            value[name] = self.value(child, item, _join(path, name))
        for name, child in node.properties.items():
            if child.has_default and name not in value:
                value[name] = child.default

    def value(self, node: SchemaNode, value: Any, path: str) -> Any:
        if type(value) is dict:
            if node.additional is not None:
                kept = {key: item for key, item in value.items() if item is not None or node.additional.nullable}
                return {key: self.value(node.additional, item, _join(path, key)) for key, item in kept.items()}
            if node.type == "object":
                self.fields(node, value, path)
            elif node.type and not node.int_or_string:
                # Fields of a value that should not be an object at all: unknown, and the type is named later.
                self.unknown.extend(_join(path, name) for name in value)
            return value
        if type(value) is list and node.items is not None:
            return [self.value(node.items, item, f"{path}[{index}]") for index, item in enumerate(value)]
        if type(value) is float and value.is_integer() and (node.type == "integer" or node.int_or_string):
            return int(value) if abs(value) < _EXACT else value
        return value


_EXACT = float(2**63)
