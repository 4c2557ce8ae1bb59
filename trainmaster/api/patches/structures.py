"""Merging and pruning of objects by their shape, for server-side apply.

`merge` lays an applied configuration over the stored object; `without` takes fields out of an object; `with_parents`
widens a field set so that a named field goes together with what is in it. All results are new objects that share
unchanged branches with their arguments.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.patches.comparison import as_member
from trainmaster.api.patches.field_sets import SELF, FieldSet
from trainmaster.api.patches.shapes import KEYED, MAP, WHOLE, MergeShape


def merge(live: Any, applied: Any, shape: MergeShape) -> Any:
    """The applied value over the live one: objects by field, keyed lists by item, all else as a whole."""
    if shape.form == WHOLE or not live:
        return live if applied is None and shape.form != WHOLE else applied
    if shape.form <= MAP and isinstance(live, dict) and isinstance(applied, dict | None):
        return _merge_fields(live, applied or {}, shape)
    if shape.form >= KEYED and isinstance(live, list) and isinstance(applied, list | None):
        return _merge_items(live, applied or [], shape)
    return applied


def _merge_fields(live: dict[str, Any], applied: dict[str, Any], shape: MergeShape) -> dict[str, Any]:
    out = dict(live)
    for key, value in applied.items():
        if key in live:
            entry = shape.fields[key]
            out[key] = merge(live[key], value, entry[1] if entry else shape.item)
        else:
            out[key] = value
    return out


def _merge_items(live: list[Any], applied: list[Any], shape: MergeShape) -> list[Any]:
    """Applied items in the applied order; live items that were not applied stay near their neighbours."""
    left = [(shape.element_of(value), value) for value in live]
    right = {shape.element_of(value): value for value in applied}
    if None in right or any(element is None for element, _ in left):
        return applied
    known = dict(left)
    order = list(right)
    shared = [element for element in order if element in known]
    out: list[Any] = []
    done: set[str | None] = set()
    at = 0
    for element in order:
        at = _take_live(left, at, element, right, shared, done, out)
        out.append(merge(known[element], right[element], shape.item) if element in known else right[element])
        done.add(element)
        if shared and shared[0] == element:
            shared.pop(0)
    out.extend(value for element, value in left[at:] if element not in right)
    return out


def _take_live(
    left: list[tuple[str | None, Any]],
    at: int,
    element: str | None,
    right: dict[str | None, Any],
    shared: list[str | None],
    done: set[str | None],
    out: list[Any],
) -> int:
    """Copies the live items that belong before the applied item `element`; returns the next live position."""
    while at < len(left):
        here, value = left[at]
        if here == element:
            return at + 1
        if here not in right:
            out.append(value)
        elif not shared or here == shared[0]:
            return at + 1 if here in done else at
        at += 1
    return at


def without(value: Any, items: FieldSet, shape: MergeShape) -> Any:
    """`value` without the members of `items`; None when nothing is left of it."""
    if shape.form <= MAP and isinstance(value, dict) and shape.form != WHOLE:
        kept: dict[str, Any] = {}
        for key, inner in value.items():
            element, below = shape.fields[key] or ("f:" + key, shape.item)
            found = _without_one(inner, items.get(element), below)
            if found is not None:
                kept[key] = found[0]
        return kept or None
    if shape.form >= KEYED and isinstance(value, list):
        left: list[Any] = []
        for inner in value:
            found = _without_one(inner, items.get(shape.element_of(inner) or ""), shape.item)
            if found is not None:
                left.append(found[0])
        return left or None
    return None


def _without_one(value: Any, node: FieldSet | None, shape: MergeShape) -> tuple[Any] | None:
    """What stays of one field or item, as a 1-tuple; None when it goes."""
    if node is None:
        return (value,)
    if not node or SELF in node:
        return None
    rest = without(value, node, shape)
    return None if rest is None else (rest,)


def with_parents(items: FieldSet, shape: MergeShape) -> FieldSet:
    """`items` and every named field that leads to one of them. Keys of maps and list items are not added."""
    out: FieldSet = {}
    for key, node in items.items():
        if key == SELF or not node:
            out[key] = node
            continue
        entry = shape.fields[key[2:]] if key.startswith("f:") and shape.form <= MAP else None
        below = with_parents(node, entry[1] if entry else shape.item)
        out[key] = as_member(below) if entry else below
    return out
