"""Strategic merge patch: a merge patch that knows which lists are merged, and by which field.

Used for `application/strategic-merge-patch+json` on built-in kinds; which lists merge is a fact of the schema
(`Node.patch_strategies`, `Node.patch_merge_key`). Directives inside the patch: `$patch: delete|replace`,
`$setElementOrder/x`, `$deleteFromPrimitiveList/x` and `$retainKeys`. The input objects are not changed.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.meta import Object

PATCH = "$patch"
RETAIN_KEYS = "$retainKeys"
ELEMENT_ORDER = "$setElementOrder/"
DELETE_FROM = "$deleteFromPrimitiveList/"

_FREE = SchemaNode()
"""Below what the schema does not describe, objects merge and lists are replaced."""

_BAD_ORDER = "invalid patch format of setElementOrder list"
_BAD_DELETE_LIST = "invalid patch format of primitive list"
_BAD_RETAIN_KEYS = "invalid patch format of retainKeys"


def apply(obj: Object, patch: Any, kind: Kind) -> Object:
    """`obj` after the patch. A patch that is not well formed is refused with 400."""
    if not isinstance(patch, dict):
        word = "array" if isinstance(patch, list) else "string" if isinstance(patch, str) else "number"
        raise status.bad_request(f"json: cannot unmarshal {word} into Go value of type map[string]interface {{}}")
    return merge(obj, patch, kind.load())


def merge(old: Object, patch: Object, node: SchemaNode) -> Object:
    """As `apply`, for a part of an object that `node` describes."""
    return _merge_map(old, patch, node)


def _merge_map(old: dict[str, Any], patch: dict[str, Any], node: SchemaNode) -> dict[str, Any]:
    if PATCH in patch:
        return _directed_map(patch)
    out = _retained(old, patch)
    orders = {key: value for key, value in patch.items() if key.startswith("$setElementOrder")}
    for key, value in patch.items():
        if key == RETAIN_KEYS or key in orders:
            continue
        if key.startswith("$deleteFromPrimitiveList"):
            _delete_primitives(out, key, value)
        elif value is None:
            out.pop(key, None)
        else:
            _merge_field(out, key, value, _child(node, key))
    for key, order in orders.items():
        _reorder(out, old, key, order, node)
    return out


def _directed_map(patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch[PATCH]
    rest = {key: value for key, value in patch.items() if key != PATCH}
    if directive == "replace":
        return {key: _plain(value) for key, value in rest.items() if value is not None and not _is_directed(value)}
    if directive == "delete":
        return {}
    raise status.bad_request(f"unknown patch type: {directive}")


def _retained(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`old` without the keys that `$retainKeys` does not list."""
    if RETAIN_KEYS not in patch:
        return dict(old)
    keys = patch[RETAIN_KEYS]
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise status.bad_request(_BAD_RETAIN_KEYS)
    for key, value in patch.items():
        if value is not None and not key.startswith("$") and key not in keys:
            raise status.bad_request(_BAD_RETAIN_KEYS)
    return {key: value for key, value in old.items() if key in keys}


def _child(node: SchemaNode, key: str) -> SchemaNode:
    return node.properties.get(key) or node.additional or _FREE


def _merge_field(out: dict[str, Any], key: str, value: Any, node: SchemaNode) -> None:
    old = out.get(key)
    if isinstance(value, dict):
        if PATCH in value and not isinstance(old, dict):
            if value[PATCH] == "delete":
                out.pop(key, None)
                return
            old = {}
        if isinstance(old, dict) and "replace" not in node.patch_strategies:
            out[key] = _merge_map(old, value, node)
        else:
            out[key] = _plain(value)
    elif isinstance(value, list):
        if isinstance(old, list) and "merge" in node.patch_strategies:
            out[key] = _merge_list(old, value, node)
        else:
            out[key] = _plain(value)
    else:
        out[key] = value


def _plain(value: Any) -> Any:
    """A part of the patch that meets nothing old: without directives, deleted items and nulls."""
    if isinstance(value, dict):
        return {
            key: _plain(inner)
            for key, inner in value.items()
            if inner is not None and not key.startswith("$") and not _is_directed(inner)
        }
    if isinstance(value, list):
        return [_plain(inner) for inner in value if not _is_directed(inner)]
    return value


def _is_directed(value: Any) -> bool:
    return isinstance(value, dict) and PATCH in value


def _merge_list(old: list[Any], patch: list[Any], node: SchemaNode) -> list[Any]:
    if any(isinstance(value, list) for value in patch):
        raise status.unfit_patch("lists of lists are not supported")
    if not any(isinstance(value, dict) for value in [*old, *patch]):
        merged = list(dict.fromkeys([*old, *patch]))
        return _arranged(merged, patch, old, "")
    if not all(isinstance(value, dict) for value in [*old, *patch]):
        raise status.bad_request("invalid JSON document")
    if not node.patch_merge_key or any(value.get(PATCH) == "replace" for value in patch):
        return [_plain(value) for value in patch if PATCH not in value]
    return _merge_keyed(old, patch, node)


def _merge_keyed(old: list[Any], patch: list[Any], node: SchemaNode) -> list[Any]:
    key = node.patch_merge_key
    merged = list(old)
    named: list[Any] = []
    for value in patch:
        if key not in value:
            raise status.bad_request(f"map: {_shown(value)} does not contain declared merge key: {key}")
        if PATCH in value:
            if value[PATCH] != "delete":
                raise status.bad_request(f"unknown patch type: {value[PATCH]}")
            merged = [known for known in merged if known.get(key) != value[key]]
            continue
        named.append(value)
        position = next((place for place, known in enumerate(merged) if known.get(key) == value[key]), None)
        if position is None:
            merged.append(_merge_map({}, value, node.items or _FREE))
        else:
            merged[position] = _merge_map(merged[position], value, node.items or _FREE)
    return _arranged(merged, named, old, key)


def _shown(value: dict[str, Any]) -> str:
    """As upstream prints a map; only the names, since values may be secret."""
    return "map[" + " ".join(sorted(value)) + "]"


def _delete_primitives(out: dict[str, Any], directive: str, values: Any) -> None:
    if not directive.startswith(DELETE_FROM) or not isinstance(values, list):
        raise status.bad_request(_BAD_DELETE_LIST)
    key = directive[len(DELETE_FROM) :]
    old = out.get(key)
    if isinstance(old, list):
        out[key] = [value for value in old if value not in values]


def _reorder(out: dict[str, Any], old: dict[str, Any], directive: str, order: Any, node: SchemaNode) -> None:
    """Sorts a merged list by the order that the patch names for it."""
    if not directive.startswith(ELEMENT_ORDER) or not isinstance(order, list):
        raise status.bad_request(_BAD_ORDER)
    name = directive[len(ELEMENT_ORDER) :]
    child = _child(node, name)
    values, before = out.get(name), old.get(name)
    if isinstance(values, list) and "merge" in child.patch_strategies:
        out[name] = _arranged(values, order, before if isinstance(before, list) else [], child.patch_merge_key)


def _arranged(values: list[Any], order: list[Any], old: list[Any], key: str) -> list[Any]:
    """The items that `order` names in its order; each other one stays before what it stood before in `old`."""
    ranks = {_identity(value, key): rank for rank, value in enumerate(order)}
    places = {_identity(value, key): place for place, value in enumerate(old)}
    named = [value for value in values if _identity(value, key) in ranks]
    named.sort(key=lambda value: ranks[_identity(value, key)])
    waiting = [value for value in values if _identity(value, key) not in ranks]
    waiting.sort(key=lambda value: places.get(_identity(value, key), len(old)))
    out: list[Any] = []
    at = 0
    for value in named:
        place = places.get(_identity(value, key), -1)
        while at < len(waiting) and places.get(_identity(waiting[at], key), place) < place:
            out.append(waiting[at])
            at += 1
        out.append(value)
    return out + waiting[at:]


def _identity(value: Any, key: str) -> Any:
    """What tells items apart: the merge key, or a scalar itself."""
    if key:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, dict | list):
        raise status.bad_request(_BAD_ORDER)
    return value
