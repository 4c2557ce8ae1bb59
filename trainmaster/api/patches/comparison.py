"""Which fields two objects differ in, and which fields an object names, as field sets.

`added` and `compare` follow the rules by which an update changes ownership; `find_owned` those by which an apply claims
it. They differ on purpose: an update that brings a new map owns the map itself as well, an apply only its keys.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api.patches.field_sets import LEAF, SELF, FieldSet
from trainmaster.api.patches.shapes import FIELDS, KEYED, MAP, SET, WHOLE, MergeShape

_MISSING: Any = object()


class _Repeated(list[Any]):
    """Items of a keyed list that carry the same key. They are owned together, as one marker."""


def added(value: Any, shape: MergeShape) -> FieldSet:
    """The node of a value that was not there before (or, the other way round, is not there any more)."""
    form = shape.form
    if form == WHOLE or not value:
        return LEAF
    kind = type(value)
    if kind is dict and form <= MAP:
        out: FieldSet = {SELF: LEAF}
        if form == MAP:
            item = shape.item
            if item.form == WHOLE:
                for key in value:
                    out["f:" + key] = LEAF
            else:
                for key, inner in value.items():
                    out["f:" + key] = added(inner, item)
            return out
        fields = shape.fields
        for key, inner in value.items():
            entry = fields[key]
            if entry is None:
                out["f:" + key] = added(inner, shape.item)
            elif entry[1].form == WHOLE or not inner:
                out[entry[0]] = LEAF
            else:
                out[entry[0]] = added(inner, entry[1])
        return out
    if kind is list and form >= KEYED:
        return _added_items(value, shape)
    return LEAF


def _added_items(values: list[Any], shape: MergeShape) -> FieldSet:
    index = _index(values, shape)
    if index is None:
        return LEAF
    out: FieldSet = {SELF: LEAF}
    item = shape.item
    for element, value in index.items():
        if shape.form == SET or type(value) is _Repeated:
            out[element] = LEAF
        else:
            out[element] = added(value, item)
    return out


def added_below(value: Any, shape: MergeShape) -> FieldSet:
    """As `added`, where the value itself counts as present all along: only what is below it is new."""
    if type(value) is dict and shape.form == FIELDS and shape.implied:
        out: FieldSet = {}
        for key, inner in value.items():
            entry = shape.fields[key]
            if entry is None:
                out["f:" + key] = added(inner, shape.item)
            elif key in shape.implied:
                if entry[1].form == WHOLE:
                    out[entry[0]] = LEAF
                elif below := added_below(inner, entry[1]):
                    out[entry[0]] = below
            else:
                out[entry[0]] = added(inner, entry[1])
        return out
    node = added(value, shape)
    if node:
        return {key: inner for key, inner in node.items() if key != SELF}
    return node


def compare(old: Any, new: Any, shape: MergeShape) -> tuple[FieldSet | None, FieldSet | None]:
    """The nodes of what changed or came, and of what went, between two values that differ and are both there."""
    form = shape.form
    if form != WHOLE and (old or new):
        if form <= MAP and _is(old, dict) and _is(new, dict):
            changed, removed = compare_fields(old or {}, new or {}, shape)
            return changed or None, removed or None
        if form >= KEYED and _is(old, list) and _is(new, list):
            return _compare_items(old or [], new or [], shape)
        # One of them has another structure than the schema says: the field changes, with all that is below it.
        return added(new, shape), added_below(old, shape) or None
    return LEAF, None


def _is(value: Any, kind: type) -> bool:
    return value is None or type(value) is kind


def compare_fields(old: dict[str, Any], new: dict[str, Any], shape: MergeShape) -> tuple[FieldSet, FieldSet]:
    """As `compare`, for two objects; the results are sets of what is below them."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    fields, implied = shape.fields, shape.implied
    for key, value in new.items():
        before = old.get(key, _MISSING)
        if before is value or before == value:
            continue
        element, inner = fields[key] or ("f:" + key, shape.item)
        if before is not _MISSING:
            more, less = compare(before, value, inner)
            if more is not None:
                changed[element] = more
            if less is not None:
                removed[element] = less
        elif key in implied and inner.form != WHOLE:
            if below := added_below(value, inner):
                changed[element] = below
        else:
            changed[element] = added(value, inner)
    for key, before in old.items():
        if key not in new:
            element, inner = fields[key] or ("f:" + key, shape.item)
            if key in implied and inner.form != WHOLE:
                if below := added_below(before, inner):
                    removed[element] = below
            else:
                removed[element] = added(before, inner)
    return changed, removed


def _index(values: list[Any], shape: MergeShape) -> dict[str, Any] | None:
    """Items by path element. None when some item cannot be told apart; then the list is owned as a whole."""
    index: dict[str, Any] = {}
    for value in values:
        element = shape.element_of(value)
        if element is None:
            return None
        known = index.get(element, _MISSING)
        if known is _MISSING:
            index[element] = value
        elif type(known) is _Repeated:
            known.append(value)
        else:
            index[element] = _Repeated((known, value))
    return index


def _compare_items(old: list[Any], new: list[Any], shape: MergeShape) -> tuple[FieldSet | None, FieldSet | None]:
    before, after = _index(old, shape), _index(new, shape)
    if before is None or after is None:
        return LEAF, None
    changed: FieldSet = {}
    removed: FieldSet = {}
    for element, value in after.items():
        known = before.get(element, _MISSING)
        if known is _MISSING:
            changed[element] = LEAF if type(value) is _Repeated else added(value, shape.item)
        elif type(known) is _Repeated or type(value) is _Repeated:
            _compare_repeated(element, known, value, shape, changed, removed)
        elif known != value:
            more, less = compare(known, value, shape.item)
            if more is not None:
                changed[element] = more
            if less is not None:
                removed[element] = less
    for element, value in before.items():
        if element not in after:
            removed[element] = LEAF if type(value) is _Repeated else added(value, shape.item)
    return changed or None, removed or None


def _compare_repeated(
    element: str, old: Any, new: Any, shape: MergeShape, changed: FieldSet, removed: FieldSet
) -> None:
    if type(old) is not _Repeated:
        removed[element] = added(old, shape.item)
        changed[element] = LEAF
    elif type(new) is not _Repeated:
        changed[element] = added(new, shape.item)
        removed[element] = LEAF
    elif old != new:
        changed[element] = LEAF


def find_owned(value: Any, shape: MergeShape) -> FieldSet | None:
    """The node of what an applied value claims. None when it claims nothing, as an empty keyed list does."""
    form = shape.form
    kind = type(value)
    if form == WHOLE:
        return LEAF
    if kind is dict and form <= MAP:
        out: FieldSet = {}
        for key, inner in value.items():
            entry = shape.fields[key]
            element, below = entry or ("f:" + key, shape.item)
            node = find_owned(inner, below)
            if entry is None or inner is None or inner == {}:
                node = as_member(node)
            if node is not None:
                out[element] = node
        return out or None
    if kind is list and form >= KEYED:
        return _owned_items(value, shape)
    return None if value is None else LEAF


def _owned_items(values: list[Any], shape: MergeShape) -> FieldSet | None:
    index = _index(values, shape)
    if index is None:
        return LEAF
    out: FieldSet = {}
    for element, value in index.items():
        repeated = shape.form == SET or type(value) is _Repeated
        out[element] = LEAF if repeated else as_member(find_owned(value, shape.item))
    return out or None


def as_member(node: FieldSet | None) -> FieldSet:
    """The node, with the path that it stands for in the set as well."""
    if not node:
        return LEAF
    return node if SELF in node else {SELF: LEAF, **node}
