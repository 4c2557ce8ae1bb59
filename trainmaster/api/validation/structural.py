"""Validates custom objects against their schema: types, required fields, enums, limits, patterns, unique list keys.

Texts follow upstream's CRD validation, which clients and their users match on; that is why one wrong `IntOrString`
makes four messages. Built-in kinds are not checked here: upstream validates them by hand, and so do we.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from trainmaster.api import fields
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.fields import ROOT, FieldError, FieldErrorKind
from trainmaster.api.validation.schema_patterns import get_matcher

_BLOCKING = {
    FieldErrorKind.NOT_SUPPORTED,
    FieldErrorKind.REQUIRED,
    FieldErrorKind.TOO_LONG,
    FieldErrorKind.TOO_MANY,
    FieldErrorKind.TYPE_INVALID,
}

UNCHECKED = FieldError(
    ROOT,
    FieldErrorKind.INVALID,
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def blocks_rules(errors: list[FieldError]) -> bool:
    """Whether CEL rules are skipped, which upstream then says with `UNCHECKED`."""
    return any(error.kind in _BLOCKING for error in errors)


def check(node: SchemaNode, value: Any, path: str = "", *, body: str = "") -> list[FieldError]:
    """All errors below `path`. `body` is the same path as in upstream's messages, which differs for status."""
    walk = _Walk(len(path) - len(body))
    walk.value(node, value, path)
    return walk.errors


def type_word(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


class _Walk:
    def __init__(self, hidden: int) -> None:
        self.errors: list[FieldError] = []
        self._hidden = hidden

    def _body(self, path: str) -> str:
        return path[self._hidden :].lstrip(".") if self._hidden else path

    def _invalid(self, path: str, value: Any, rest: str) -> None:
        self.errors.append(fields.invalid(path, value, f"{self._body(path)} in body {rest}"))

    def _wrong_type(self, path: str, word: str, want: str) -> None:
        text = f'{self._body(path)} in body must be of type {want}: "{word}"'
        self.errors.append(fields.type_invalid(path, word, text))

    def value(self, node: SchemaNode, value: Any, path: str) -> None:
        if value is None and node.nullable:
            return
        if node.int_or_string:
            self._int_or_string(node, value, path)
        elif node.type == "object":
            self._object(node, value, path)
        elif node.type == "array":
            self._list(node, value, path)
        elif node.type == "string":
            self._string(node, value, path)
        elif node.type in ("integer", "number"):
            self._number(node, value, path)
        elif node.type == "boolean" and type(value) is not bool:
            self._wrong_type(path, type_word(value), "boolean")
        if node.enum and value not in node.enum:
            self.errors.append(fields.not_supported(path, value, node.enum))

    def _object(self, node: SchemaNode, value: Any, path: str) -> None:
        if type(value) is not dict:
            self._wrong_type(path, type_word(value), "object")
            return
        for name in node.required:
            if name not in value:
                self.errors.append(fields.required(_join(path, name)))
        if node.min_properties is not None and len(value) < node.min_properties:
            self._invalid(path, len(value), f"should have at least {node.min_properties} properties")
        if node.max_properties is not None and len(value) > node.max_properties:
            text = f"must have at most {node.max_properties} items"
            self.errors.append(FieldError(path, FieldErrorKind.TOO_MANY, len(value), text))
        extra = node.additional
        if extra is not None:
            for name, item in value.items():
                self.value(extra, item, _join(path, name))
            return
        for name, item in value.items():
            child = node.properties.get(name)
            if child is not None:
                self.value(child, item, _join(path, name))

    def _list(self, node: SchemaNode, value: Any, path: str) -> None:
        if type(value) is not list:
            self._wrong_type(path, type_word(value), "array")
            return
        if node.min_items is not None and len(value) < node.min_items:
            self._invalid(path, len(value), f"should have at least {node.min_items} items")
        if node.max_items is not None and len(value) > node.max_items:
            self.errors.append(fields.too_many(path, len(value), node.max_items))
            return
        if node.items is not None:
            for index, item in enumerate(value):
                self.value(node.items, item, f"{path}[{index}]")
        if node.list_type != "atomic" and len(value) > 1:
            self._unique(node, value, path)

    def _unique(self, node: SchemaNode, value: list[Any], path: str) -> None:
        seen: set[str] = set()
        for index, item in enumerate(value):
            if node.list_type == "map":
                if type(item) is not dict:
                    continue
                item = {key: item[key] for key in node.list_map_keys if key in item}
            key = json.dumps(item, sort_keys=True)
            if key in seen:
                self.errors.append(fields.duplicate(f"{path}[{index}]", item))
            seen.add(key)

    def _string(self, node: SchemaNode, value: Any, path: str) -> None:
        if type(value) is not str:
            self._wrong_type(path, type_word(value), "string")
            return
        if node.format == "date-time" and not _is_time(value):
            text = f'{self._body(path)} in body must be of type date-time: "{value}"'
            self.errors.append(fields.type_invalid(path, value, text))
        self._text_limits(node, value, path)

    def _text_limits(self, node: SchemaNode, value: str, path: str) -> None:
        if node.max_length is not None and len(value) > node.max_length:
            self.errors.append(fields.too_long(path, node.max_length))
        if node.min_length is not None and len(value) < node.min_length:
            self._invalid(path, value, f"should be at least {node.min_length} chars long")
        if node.pattern and not get_matcher(node.pattern)(value):
            self._invalid(path, value, f"should match '{node.pattern}'")

    def _number(self, node: SchemaNode, value: Any, path: str) -> None:
        word = type_word(value)
        if word not in ("integer", "number"):
            self._wrong_type(path, word, node.type)
            return
        if node.type == "integer" and not self._fits(node, value, path):
            return
        if node.minimum is not None and value < node.minimum:
            self._invalid(path, value, f"should be greater than or equal to {node.minimum:g}")
        if node.maximum is not None and value > node.maximum:
            self._invalid(path, value, f"should be less than or equal to {node.maximum:g}")

    def _fits(self, node: SchemaNode, value: int | float, path: str) -> bool:
        bits = 31 if node.format == "int32" else 63
        whole = type(value) is int
        if whole and -(2**bits) <= value < 2**bits:
            return True
        if not whole or abs(value) >= 2**63:
            self._wrong_type(path, "float64" if node.format else "number", node.format or "integer")
        named = f"with format {node.format}" if node.format else "(default format)"
        self._unplaced(f"Checked value must be of type integer {named} in {self._body(path)}")
        return False

    def _int_or_string(self, node: SchemaNode, value: Any, path: str) -> None:
        if type(value) is str:
            self._text_limits(node, value, path)
            return
        word = type_word(value)
        if word == "integer":
            return
        self._wrong_type(path, word, "integer,string")
        self._unplaced(f'"{self._body(path)}" must validate at least one schema (anyOf)')
        self._wrong_type(path, word, "integer")
        if word == "number":
            self._unplaced(f"Checked value must be of type integer (default format) in {self._body(path)}")

    def _unplaced(self, text: str) -> None:
        self.errors.append(fields.invalid(ROOT, "", text))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and len(text) > 10
    except ValueError:
        return False
