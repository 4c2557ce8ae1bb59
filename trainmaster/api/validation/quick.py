"""Compiled checks of whether a custom object satisfies its schema.

Most objects do, so no paths or messages are needed. Otherwise the caller runs `structural`, which does the same checks
with messages; a test compares the two. Leaf types are the Python type itself, as in `decoding.checks`.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.decoding.checks import TIME, Check, Leaf
from trainmaster.api.validation.schema_patterns import get_matcher

_memo: dict[SchemaNode, Leaf] = {}


def satisfies(node: SchemaNode, value: Any) -> bool:
    """False may also mean that `structural` has to decide."""
    leaf = _compiled(node)
    return type(value) is leaf or (leaf not in _TYPES and bool(leaf(value)))


_TYPES = (str, bool, dict)


def _compiled(node: SchemaNode) -> Leaf:
    found = _memo.get(node)
    if found is None:
        found = _memo[node] = _compile(node)
    return found


def _compile(node: SchemaNode) -> Leaf:
    if node.nullable:
        return _never
    if node.int_or_string:
        return _int_or_string(node)
    match node.type:
        case "object":
            return _object(node)
        case "array":
            return _list(node)
        case "string":
            return _string(node)
        case "integer" | "number":
            return _number(node)
        case "boolean":
            return bool
    return _always


def _object(node: SchemaNode) -> Leaf:
    if node.additional is not None:
        return _map(node)
    if node.preserve_unknown:
        return dict
    children = {name: _compiled(child) for name, child in node.properties.items()}
    find, required = children.get, node.required
    fewest = node.min_properties or 0

    def check(value: Any) -> bool:
        if type(value) is not dict or len(value) < fewest:
            return False
        for name in required:
            if name not in value:
                return False
        for name, item in value.items():
            leaf = find(name)
            if type(item) is leaf or leaf is None:
                continue
            if leaf is str or leaf is bool or leaf is dict or not leaf(item):
                return False
        return True

    return check


def _map(node: SchemaNode) -> Check:
    assert node.additional is not None
    accepts = _function(_compiled(node.additional))
    fewest, most = node.min_properties or 0, node.max_properties

    def check(value: Any) -> bool:
        if type(value) is not dict or len(value) < fewest or (most is not None and len(value) > most):
            return False
        return all(map(accepts, value.values()))

    return check


def _list(node: SchemaNode) -> Check:
    accepts = _function(_compiled(node.items)) if node.items is not None else _always
    fewest, most = node.min_items or 0, node.max_items
    keys = node.list_map_keys if node.list_type == "map" else None
    unique = node.list_type != "atomic"

    def check(value: Any) -> bool:
        if type(value) is not list or len(value) < fewest or (most is not None and len(value) > most):
            return False
        if not all(map(accepts, value)):
            return False
        if not unique or len(value) < 2:
            return True
        if keys is None:
            return len({str(item) for item in value}) == len(value)
        return len({tuple([item.get(key) for key in keys]) for item in value}) == len(value)

    return check


def _string(node: SchemaNode) -> Leaf:
    fewest, most, allowed = node.min_length or 0, node.max_length, frozenset(node.enum)
    matches = get_matcher(node.pattern) if node.pattern else None
    timed = node.format == "date-time"
    if not (fewest or most is not None or allowed or matches or timed):
        return str

    def check(value: Any) -> bool:
        if type(value) is not str or len(value) < fewest or (most is not None and len(value) > most):
            return False
        if allowed and value not in allowed:
            return False
        if matches is not None and not matches(value):
            return False
        return not timed or TIME.fullmatch(value) is not None

    return check


def _number(node: SchemaNode) -> Check:
    bits = 31 if node.format == "int32" else 63
    low = max(-(2**bits), node.minimum) if node.minimum is not None else -(2**bits)
    high = min(2**bits - 1, node.maximum) if node.maximum is not None else 2**bits - 1
    allowed, whole = frozenset(node.enum), node.type == "integer"

    def check(value: Any) -> bool:
        if type(value) is not int and (whole or type(value) is not float):
            return False
        return low <= value <= high and (not allowed or value in allowed)

    return check


def _int_or_string(node: SchemaNode) -> Check:
    matches = get_matcher(node.pattern) if node.pattern else None

    def check(value: Any) -> bool:
        if type(value) is str:
            return matches is None or matches(value)
        return type(value) is int

    return check


def _function(leaf: Leaf) -> Check:
    return (lambda item: type(item) is leaf) if leaf in _TYPES else leaf


def _always(value: Any) -> bool:
    return True


def _never(value: Any) -> bool:
    return False
