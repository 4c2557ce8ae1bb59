"""Reads values as a user wrote them, and writes them as a mapping again. Everything unknown, of a wrong type or
contradictory is refused with one sentence that begins with the key.

As with Helm, mappings are merged with the defaults, lists replace them, and null removes a default.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Mapping, Sequence

from trainmaster.api.meta import Fields, Object
from trainmaster.operator.install.contradictions import REFUSALS
from trainmaster.operator.install.schema import FIXED, OWNED, build_schema, to_key
from trainmaster.operator.install.values import Values
from trainmaster.operator.templating.evaluating import ValueScope, is_true

_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
    "null": (type(None),),
}
_SETTINGS = "manager.config"


class ValuesError(Exception):
    """Values that are refused; the text is one sentence for the user."""


def read_values(given: Mapping[str, object]) -> Values:
    """Raises ValuesError."""
    merged = merge(to_mapping(Values()), {key: value for key, value in given.items() if key != "global"})
    _check(merged, build_schema(), "")
    for refusal in REFUSALS:
        if is_true(refusal.condition, ValueScope(_fill_nulls(merged), "")):
            raise ValuesError(refusal.text)
    return typing.cast(Values, _build_group(Values, merged))


def to_mapping(values: object) -> Object:
    """As in values.yaml."""
    assert dataclasses.is_dataclass(values)
    found: Object = {}
    for item in dataclasses.fields(values):
        value = getattr(values, item.name)
        found[to_key(item.name)] = to_mapping(value) if dataclasses.is_dataclass(value) else _copy(value)
    return found


def _copy(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value


def merge(base: Fields, more: Fields) -> Object:
    merged = dict(base)
    for key, value in more.items():
        if value is None and key in base:
            del merged[key]
        elif isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            merged[key] = merge(base[key], value)
        else:
            merged[key] = _copy(value)
    return merged


def _fill_nulls(merged: Fields) -> Object:
    """What may be null and is missing is null."""
    return to_mapping(_build_group(Values, merged))


def _build_group(group: type, values: Fields) -> object:
    hints = typing.get_type_hints(group)
    made: Object = {}
    for item in dataclasses.fields(group):
        hint, value = hints[item.name], values.get(to_key(item.name))
        if isinstance(value, Mapping) and dataclasses.is_dataclass(hint):
            value = _build_group(typing.cast(type, hint), value)
        made[item.name] = tuple(value) if isinstance(value, list) else value
    return group(**made)


# ---- the part of JSON Schema that `schema` uses ---------------------------------


def _check(value: object, schema: Object, path: str) -> None:
    kinds = schema.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not any(_is(value, kind) for kind in kinds):
        words = " or ".join(_WORDS[kind] for kind in kinds)
        raise ValuesError(f"{path}: must be {words}, not {_show(value)}")
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(word or '""' for word in schema["enum"])
        raise ValuesError(f"{path}: must be one of {allowed}, not {_show(value)}")
    if "pattern" in schema and not re.search(schema["pattern"], str(value)):
        raise ValuesError(f"{path}: must be {schema['description']}, not {_show(value)}")
    if isinstance(value, int | float):
        _check_bounds(value, schema, path)
    if isinstance(value, Mapping):
        _check_mapping(value, schema, path)
    if isinstance(value, list | tuple):
        _check_list(value, schema, path)


def _is(value: object, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (not isinstance(value, bool) or kind == "boolean")


def _show(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def _check_bounds(value: float, schema: Object, path: str) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        raise ValuesError(f"{path}: must be from {least} to {most}, not {value}")


def _check_list(value: Sequence[object], schema: Object, path: str) -> None:
    if schema.get("uniqueItems") and any(item in value[:number] for number, item in enumerate(value)):
        raise ValuesError(f"{path}: has an element twice")
    if len(value) < schema.get("minItems", 0):
        raise ValuesError(f"{path}: is empty")
    for number, item in enumerate(value):
        _check(item, schema["items"], f"{path}[{number}]")


def _check_mapping(value: Mapping[object, object], schema: Object, path: str) -> None:
    known: Mapping[str, Object] = schema.get("properties", {})
    reserved = schema.get("propertyNames", {}).get("not", {}).get("enum", ())
    others = schema.get("additionalProperties", {})
    for key, item in value.items():
        place = f"{path}.{key}" if path else str(key)
        if not isinstance(key, str):
            raise ValuesError(f"{place}: the key must be a text; put it in quotes")
        if key in reserved:
            raise ValuesError(f"{place}: is set already; choose another key")
        if key not in known and others is False:
            raise ValuesError(f"{place}: {_explain_unknown(path, key, known)}")
        if key in known or others:
            _check(item, known.get(key, others or {}), place)
    for key in schema.get("required", ()):
        if key not in value:
            raise ValuesError(f"{path + '.' if path else ''}{key}: must not be null")


def _explain_unknown(path: str, key: str, known: Mapping[str, Object]) -> str:
    if path == _SETTINGS and key in OWNED:
        return f"follows from the value {OWNED[key]}; set that instead"
    if path == _SETTINGS and key in FIXED:
        return "is fixed, because the Service and the probes rely on it"
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"there is no such value; did you mean {near[0]}?" if near else "there is no such value (docs/values.md)"
