"""Different spellings of the same object: what Go clients read into their structs and write back.

Go leaves out zero values, writes empty structs (`resources: {}`), and has one form for each quantity. `respell` removes
such differences from the stored object before rules compare it with a new one, since upstream's rules compare structs.
`compile_speller` is for writing an object as Go would, which is what upstream's mutating webhooks store.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.formats import quantity
from trainmaster.api.formats.go_types import GoField, find_message, get_named_fields
from trainmaster.api.meta import Object

_APART = ("metadata", "status")
"""Compared by the server itself."""
_QUANTITIES = (str, int, float)


def respell(kind: Kind, old: Object, new: Object) -> Object:
    """The old object, spelled as the new one wherever both mean the same. Changes neither."""
    if all(old.get(name) == value for name, value in new.items() if name not in _APART) and old.keys() <= new.keys():
        return old
    fields = _get_compared_fields(kind)
    return _respell_message(fields, old, new) if fields else old


@cache
def _get_compared_fields(kind: Kind) -> dict[str, GoField]:
    message = find_message(kind.api_version, kind.kind)
    named = {} if message is None else get_named_fields(message)
    return {name: field for name, field in named.items() if name not in _APART}


def _respell_message(fields: dict[str, GoField], old: Object, new: Object) -> Object:
    result = dict(old)
    for name, value in new.items():
        before = old.get(name)
        field = fields.get(name)
        if field is None or before == value:
            continue
        if before is not None:
            result[name] = _respell_value(field, before, value)
        elif _is_zero(field, value):
            result[name] = value
    for name, value in old.items():
        field = fields.get(name)
        if name not in new and field is not None and _is_zero(field, value):
            del result[name]
    return result


def _respell_value(field: GoField, old: Any, new: Any) -> Any:
    """Of two values that are not equal."""
    if field.occurs == "list" and type(old) is list and type(new) is list:
        pairs = zip(old, new, strict=False)
        return [a if a == b else _respell_one(field.kind, a, b) for a, b in pairs] + old[len(new) :]
    if field.occurs == "map" and type(old) is dict and type(new) is dict:
        return {name: _respell_one(field.kind, value, new.get(name)) for name, value in old.items()}
    return _respell_one(field.kind, old, new)


def _respell_one(kind: str, old: Any, new: Any) -> Any:
    if kind[0] == "@" and type(old) is dict and type(new) is dict:
        return _respell_message(get_named_fields(kind[1:]), old, new)
    return new if kind == "quantity" and _is_same_quantity(old, new) else old


def _is_same_quantity(one: Any, other: Any) -> bool:
    if type(one) not in _QUANTITIES or type(other) not in _QUANTITIES:
        return False
    try:
        return quantity.parse(one) == quantity.parse(other)
    except ValueError:
        return False


def _is_zero(field: GoField, value: Any) -> bool:
    """Whether Go reads the value as it reads an absent one."""
    if field.occurs == "pointer":
        return False
    if field.occurs in ("list", "map"):
        return not value
    if field.kind[0] == "@":
        return type(value) is dict and _is_zero_message(get_named_fields(field.kind[1:]), value)
    if field.kind == "quantity":
        return _is_same_quantity(value, 0)
    return value in ("", 0, False)


def _is_zero_message(fields: dict[str, GoField], value: Object) -> bool:
    return all(name in fields and _is_zero(fields[name], item) for name, item in value.items())


# ---- as Go writes it ---------------------------------------------------------

Speller: TypeAlias = Callable[[Any], None]
"""Changes a list or dict in place; ignores values of other types, which validation reports."""

_ZEROS: dict[str, Callable[[], Any]] = {"string": str, "int": int, "bool": bool, "quantity": lambda: "0"}


class _Parts(NamedTuple):
    """What there is to do with a message."""

    added: list[tuple[str, Callable[[], Any]]]
    visited: list[tuple[str, Speller]]
    quantities: list[str]


@cache
def _compile_parts(message: str, node: SchemaNode) -> _Parts:
    parts = _Parts([], [], [])
    for name, field in get_named_fields(message).items():
        child = node.properties.get(name)
        if child is None:
            continue
        if field.kind == "quantity" and field.occurs in ("", "pointer"):
            parts.quantities.append(name)
        if speller := _compile_field(field, child):
            parts.visited.append((name, speller))
        if name not in node.required and (make := _find_zero(field)):
            parts.added.append((name, make))
    return parts


def _find_zero(field: GoField) -> Callable[[], Any] | None:
    """Makes the value that Go writes for an absent one; None if it writes nothing."""
    if field.occurs == "always" or (field.occurs == "" and field.kind == "quantity"):
        return _ZEROS.get(field.kind)
    return dict if field.occurs == "" and field.kind[0] == "@" else None


def _compile_field(field: GoField, node: SchemaNode) -> Speller | None:
    if field.occurs == "map":
        return _spell_quantities if field.kind == "quantity" else None
    if field.kind[0] != "@":
        return None
    if field.occurs == "list":
        return _compile_list(field.kind[1:], node.items) if node.items is not None else None
    return compile_speller(field.kind[1:], node)


@cache
def compile_speller(message: str, node: SchemaNode) -> Speller | None:
    """A function that adds the values which Go always writes, and gives quantities their usual form; None if there are
    none below this message. Removes nothing, as upstream. Required fields are left for validation to report."""
    added, visited, quantities = _compile_parts(message, node)
    if not (added or visited or quantities):
        return None

    def spell(value: Any) -> None:
        if type(value) is not dict:
            return
        for name, make in added:
            if name not in value:
                value[name] = make()
        for name, speller in visited:
            if name in value:
                speller(value[name])
        for name in quantities:
            if name in value:
                value[name] = _spell_quantity(value[name])

    return spell


def _compile_list(message: str, node: SchemaNode) -> Speller | None:
    added, visited, quantities = _compile_parts(message, node)
    if len(visited) == 1 and not (added or quantities):
        # Environment variables: many, and few have what is visited.
        name, inner = visited[0]

        def spell_one_field(value: Any) -> None:
            if type(value) is list:
                for item in value:
                    if type(item) is dict and name in item:
                        inner(item[name])

        return spell_one_field
    speller = compile_speller(message, node)
    if speller is None:
        return None

    def spell(value: Any) -> None:
        if type(value) is list:
            for item in value:
                speller(item)

    return spell


def _spell_quantities(value: Any) -> None:
    if type(value) is dict:
        for name, item in value.items():
            value[name] = _spell_quantity(item)


def _spell_quantity(value: Any) -> Any:
    if type(value) not in _QUANTITIES:
        return value
    try:
        return quantity.canonical(value)
    except ValueError:
        return value
