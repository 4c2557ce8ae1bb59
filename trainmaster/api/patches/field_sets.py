"""Sets of field paths, in the form that `fieldsV1` has on the wire.

A set is a tree of plain dicts, exactly as stored: `{"f:data": {".": {}, "f:a": {}}}` holds `.data` and `.data.a`. A
node is a member of the set when it is empty or has the key "."; a node that is neither only leads to members below. So
no decoding is needed to work on stored sets. The root is no path: an empty root is the empty set.

Sets are shared and never changed in place; every operation returns a new tree or one of its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import orjson

FieldSet: TypeAlias = dict[str, Any]

LEAF: FieldSet = {}
"""The one node without children. Shared by all sets, so it must stay empty."""

SELF = "."

_MAX_DEPTH = 200


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """The members of either."""
    if not a:
        return b
    return _join(a, b) if b else a


def _join(a: FieldSet, b: FieldSet) -> FieldSet:
    if not b:
        a, b = b, a
    if not a:
        return b if not b or SELF in b else {SELF: LEAF, **b}
    out = dict(a)
    for key, value in b.items():
        other = out.get(key)
        out[key] = value if other is None or key == SELF else _join(other, value)
    return out


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """The members of `a` that are not members of `b`; members below them stay. `a` itself when they share nothing."""
    if a.keys().isdisjoint(b):
        return a
    out: FieldSet = {}
    for key, value in a.items():
        other = b.get(key)
        if other is None:
            out[key] = value
        elif (rest := _minus(value, other)) is not None:
            out[key] = rest
    return out


def _minus(a: FieldSet, b: FieldSet) -> FieldSet | None:
    if not a:
        return None if not b or SELF in b else a
    if not b:
        if SELF not in a:
            return a
        return _shaped({key: value for key, value in a.items() if key != SELF})
    out: FieldSet = {}
    for key, value in a.items():
        other = b.get(key)
        if other is None:
            out[key] = value
        elif key != SELF and (rest := _minus(value, other)) is not None:
            out[key] = rest
    return _shaped(out)


def _shaped(node: FieldSet) -> FieldSet | None:
    """None for a node that holds nothing; the leaf for one that holds only itself."""
    if not node:
        return None
    return LEAF if len(node) == 1 and SELF in node else node


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """The members of both."""
    out: FieldSet = {}
    for key, value in a.items():
        other = b.get(key)
        if other is not None and (both := _common(value, other)) is not None:
            out[key] = both
    return out


def _common(a: FieldSet, b: FieldSet) -> FieldSet | None:
    member = (not a or SELF in a) and (not b or SELF in b)
    out: FieldSet = {SELF: LEAF} if member else {}
    for key, value in a.items():
        other = b.get(key)
        if other is not None and key != SELF and (both := _common(value, other)) is not None:
            out[key] = both
    return _shaped(out)


def without_branches(a: FieldSet, branches: FieldSet) -> FieldSet:
    """`a` without the members of `branches` and everything below them."""
    out: FieldSet = {}
    for key, value in a.items():
        other = branches.get(key)
        if other is None:
            out[key] = value
        elif other and SELF not in other:
            rest = without_branches(value, other)
            if rest:
                out[key] = rest
    return out


def list_paths(a: FieldSet, prefix: str = "") -> Iterator[str]:
    """Each member as error messages print it: `.spec.containers[name="main"].image`; parents come first."""
    keys = sorted((key for key in a if key != SELF), key=_order)
    for key in keys:
        if not a[key] or SELF in a[key]:
            yield prefix + render(key)
    for key in keys:
        yield from list_paths(a[key], prefix + render(key))


def _order(key: str) -> tuple[int, str]:
    return "fkvi".find(key[:1]), key


def render(key: str) -> str:
    """One path element as text."""
    kind, rest = key[:2], key[2:]
    if kind == "f:":
        return f".{rest}"
    if kind == "k:":
        fields = orjson.loads(rest)
        return "[" + ",".join(f"{name}={_text(value)}" for name, value in fields.items()) + "]"
    return f"[={_text(orjson.loads(rest))}]" if kind == "v:" else f"[{rest}]"


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def key_element(keys: dict[str, Any]) -> str:
    """The element of a keyed list item, from its key fields in alphabetical order."""
    return "k:" + orjson.dumps(keys).decode()


def value_element(value: Any) -> str:
    """The element of an item in a set."""
    return "v:" + orjson.dumps(value).decode()


def find_decoded(raw: Any) -> FieldSet | None:
    """A set received from a client, in our normal form; None when it is not one."""
    return _decode(raw, 0)


def _decode(raw: Any, depth: int) -> FieldSet | None:
    if not isinstance(raw, dict) or depth > _MAX_DEPTH:
        return None
    out: FieldSet = {}
    for key, value in raw.items():
        if key == SELF:
            if depth:
                out[SELF] = LEAF
            continue
        element = _decode_element(key)
        child = _decode(value, depth + 1)
        if element is None or child is None:
            return None
        out[element] = child
    return LEAF if depth and len(out) == 1 and SELF in out else out


def _decode_element(key: str) -> str | None:
    kind, rest = key[:2], key[2:]
    if kind == "f:":
        return key
    if kind == "i:":
        return key if rest.lstrip("-").isdigit() else None
    if kind not in ("k:", "v:"):
        return None
    try:
        value = orjson.loads(rest)
    except orjson.JSONDecodeError:
        return None
    if kind == "v:":
        return None if isinstance(value, float) and not math.isfinite(value) else value_element(value)
    return key_element(dict(sorted(value.items()))) if isinstance(value, dict) else None
