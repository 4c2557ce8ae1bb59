"""Compiled checks of whether an object needs no changes by decoding.

A check only returns True or False; on False the caller runs `walk`, which does the same work with paths and messages.
Checks also fill in schema defaults of custom kinds, because that needs no message. They are closures over small dicts;
leaf types are represented by the Python type itself, so that the common case is one identity test.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.formats import quantity

Check: TypeAlias = Callable[[Any], bool]
Leaf: TypeAlias = type | Check
"""What a property must be: exactly this Python type, or accepted by this function."""

TIME = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")
MICRO_TIME = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z")

_memo: dict[tuple[int, bool], Leaf] = {}


def compile_kind(node: SchemaNode, custom: bool) -> Check:
    """The check of a whole object. Metadata is decoded by the server's own types in every kind."""
    properties = {name: compile_node(child, custom and name != "metadata") for name, child in node.properties.items()}
    return _object(properties, _defaults(node) if custom else ())


def compile_node(node: SchemaNode, custom: bool) -> Leaf:
    key = (id(node), custom)
    found = _memo.get(key)
    if found is None:
        found = _memo[key] = _compile(node, custom)
    return found


def _compile(node: SchemaNode, custom: bool) -> Leaf:
    if node.int_or_string:
        return _int_or_string(node, custom)
    if node.type == "object":
        if node.preserve_unknown:
            return dict
        if node.additional is not None:
            return _map(compile_node(node.additional, custom), empty=custom)
        properties = {name: compile_node(child, custom) for name, child in node.properties.items()}
        return _object(properties, _defaults(node) if custom else ())
    if node.type == "array" and node.items is not None:
        return _list(compile_node(node.items, custom), empty=custom)
    if node.type == "string":
        return _string(node, custom)
    if node.type == "boolean":
        return bool
    if node.type == "integer":
        return is_int32 if node.format == "int32" else is_int64
    if node.type == "number":
        return _number
    return _anything


def _defaults(node: SchemaNode) -> tuple[tuple[str, Any], ...]:
    return tuple((name, child.default) for name, child in node.properties.items() if child.has_default)


def _object(properties: dict[str, Leaf], defaults: tuple[tuple[str, Any], ...]) -> Check:
    find = properties.get

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, item in value.items():
            leaf = find(name)
            if type(item) is leaf:
                continue
            if leaf is None or leaf is str or leaf is bool or leaf is dict or not leaf(item):
                return False
        return True

    if not defaults:
        return check

    def check_and_default(value: Any) -> bool:
        if not check(value):
            return False
        for name, default in defaults:
            if name not in value:
                value[name] = default
        return True

    return check_and_default


def _map(leaf: Leaf, *, empty: bool) -> Check:
    """Upstream drops empty maps and lists of built-in kinds (Go's omitempty), so there an empty one fails the check."""
    if leaf is str:

        def check_strings(value: Any) -> bool:
            if type(value) is not dict:
                return False
            return set(map(type, value.values())) == _STRINGS if value else empty

        return check_strings

    accepts = as_function(leaf)

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return False
        return all(map(accepts, value.values())) if value else empty

    return check


def _list(leaf: Leaf, *, empty: bool) -> Check:
    if leaf is str:

        def check_strings(value: Any) -> bool:
            if type(value) is not list:
                return False
            return set(map(type, value)) == _STRINGS if value else empty

        return check_strings

    accepts = as_function(leaf)

    def check(value: Any) -> bool:
        if type(value) is not list:
            return False
        return all(map(accepts, value)) if value else empty

    return check


_STRINGS = {str}


def as_function(leaf: Leaf) -> Check:
    """A leaf that is a type, as a function."""
    return (lambda item: type(item) is leaf) if leaf in (str, bool, dict) else leaf


def _string(node: SchemaNode, custom: bool) -> Leaf:
    if node.format == "byte":
        return is_base64
    if node.format == "date-time" and not custom:
        return _micro_time if node.definition.endswith(".MicroTime") else _time
    return str


def _int_or_string(node: SchemaNode, custom: bool) -> Leaf:
    if is_quantity(node) and not custom:
        return _canonical_quantity
    return _string_or_int64 if custom else _string_or_int32


def is_quantity(node: SchemaNode) -> bool:
    return node.definition.endswith(".Quantity")


def _canonical_quantity(value: Any) -> bool:
    if type(value) is not str:
        return False
    try:
        return quantity.canonical(value) == value
    except ValueError:
        return False


def is_int32(value: Any) -> bool:
    return type(value) is int and -2147483648 <= value <= 2147483647


def is_int64(value: Any) -> bool:
    return type(value) is int and -9223372036854775808 <= value <= 9223372036854775807


def is_base64(value: Any) -> bool:
    if type(value) is not str:
        return False
    try:
        binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        return False
    return True


def _string_or_int32(value: Any) -> bool:
    return type(value) is str or is_int32(value)


def _string_or_int64(value: Any) -> bool:
    return type(value) is str or is_int64(value)


def _number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _time(value: Any) -> bool:
    return type(value) is str and TIME.fullmatch(value) is not None


def _micro_time(value: Any) -> bool:
    return type(value) is str and MICRO_TIME.fullmatch(value) is not None


def _anything(value: Any) -> bool:
    return True


def never(value: Any) -> bool:
    return False
