"""Messages of Go's decoder, and its canonical form of scalars, for built-in kinds.

Clients depend on these messages, so ours are the same: the struct that contains the field, the path without list
positions, and Go's name of the type. Times and quantities are returned in the form that a server stores.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.decoding import checks
from trainmaster.api.formats import quantity


class DecodeError(Exception):
    """The part of the message after `cannot be handled as a Pod: `."""


_POSITION = re.compile(r"\[\d+\]|[<>]")
_MARKED = re.compile(r"<[^>]*>")

_EMBEDDED = {
    "io.k8s.api.core.v1.Probe": ("ProbeHandler.", frozenset({"exec", "grpc", "httpGet", "tcpSocket"}), True),
    "io.k8s.api.core.v1.Volume": ("VolumeSource.", frozenset({"name"}), False),
    "io.k8s.api.core.v1.EphemeralContainer": ("EphemeralContainerCommon.", frozenset({"targetContainerName"}), False),
}
"""Structs that hold some of their fields through an embedded struct, whose name Go puts into the path."""


def embedded(node: SchemaNode, name: str) -> str:
    """Marked with angle brackets, so that paths meant for people can leave it out."""
    found = _EMBEDDED.get(node.definition)
    if found is None:
        return ""
    prefix, names, listed = found
    return f"<{prefix}>" if (name in names) == listed else ""


def without_embedded(path: str) -> str:
    return _MARKED.sub("", path) if "<" in path else path


def json_word(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def go_type(node: SchemaNode) -> str:
    if node.definition and not node.int_or_string and node.type == "object":
        return ".".join(node.definition.split(".")[-2:])
    if node.type == "array":
        return "[]" + (go_type(node.items) if node.items is not None else "string")
    if node.additional is not None:
        return "map[string]" + go_type(node.additional)
    if node.type == "boolean":
        return "bool"
    if node.type == "integer":
        return node.format or "int64"
    if node.format == "byte":
        return "[]uint8"
    return "float64" if node.type == "number" else node.type


def wrong_type(value: Any, struct: str, path: str, want: str, *, with_number: bool = False) -> DecodeError:
    word = json_word(value)
    if with_number and word == "number":
        word = f"number {value}"
    where = _POSITION.sub("", path)
    return DecodeError(f"json: cannot unmarshal {word} into Go struct field {struct}.{where} of type {want}")


def scalar(node: SchemaNode, value: Any, struct: str, path: str) -> Any:
    """The value as stored. Raises DecodeError."""
    if node.int_or_string:
        return _quantity(value) if checks.is_quantity(node) else _int_or_string(value, struct, path)
    if node.type == "string":
        return _string(node, value, struct, path)
    if node.type == "boolean":
        if type(value) is not bool:
            raise wrong_type(value, struct, path, "bool")
    elif node.type == "integer":
        fits = checks.is_int32 if node.format == "int32" else checks.is_int64
        if not fits(value):
            raise wrong_type(value, struct, path, go_type(node), with_number=True)
    elif node.type == "number" and (type(value) is bool or not isinstance(value, int | float)):
        raise wrong_type(value, struct, path, "float64")
    return value


def _int_or_string(value: Any, struct: str, path: str) -> Any:
    if type(value) is str or checks.is_int32(value):
        return value
    raise wrong_type(value, struct, path, "int32", with_number=True)


def _quantity(value: Any) -> str:
    if type(value) not in (str, int, float):
        raise DecodeError(quantity.ERROR)
    try:
        return quantity.canonical(value)
    except ValueError as error:
        raise DecodeError(str(error)) from None


def _string(node: SchemaNode, value: Any, struct: str, path: str) -> str:
    if type(value) is not str:
        raise wrong_type(value, struct, path, go_type(node))
    if node.format == "byte" and not checks.is_base64(value):
        raise DecodeError(f"illegal base64 data at input byte {_first_bad_byte(value)}")
    if node.format == "date-time":
        return _time(value, micro=node.definition.endswith(".MicroTime"))
    return value


_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def _first_bad_byte(text: str) -> int:
    match = _BASE64.match(text)
    return match.end() if match and match.end() < len(text) else max(len(text) - len(text) % 4, 0)


def _time(text: str, *, micro: bool) -> str:
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
    try:
        moment = datetime.fromisoformat(text.replace("z", "Z"))
    except ValueError:
        raise DecodeError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"') from None
    if moment.tzinfo is None or "T" not in text:
        raise DecodeError(f'parsing time "{text}" as "{layout}": cannot parse "" as "Z07:00"')
    if micro and "." not in text:
        raise DecodeError(f'parsing time "{text}" as "{layout}": cannot parse "{text[19:]}" as ".000000"')
    moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
