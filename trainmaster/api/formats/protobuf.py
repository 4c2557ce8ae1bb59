"""Decodes Kubernetes protobuf request bodies, which kubectl sends for built-in kinds since 1.32.

`decode` reads the envelope (`k8s\\0`, type, raw message) and the message by upstream's types (`go_types`). The result
is what the same client would have sent as JSON: zero values that Go would leave out are left out, those behind pointers
are kept. Unknown fields are skipped, as protobuf wants it.

Responses are never protobuf. For any input, the result is an object, a 400 or a 415.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from trainmaster.api import status
from trainmaster.api.formats import go_types
from trainmaster.api.formats.go_types import GoField
from trainmaster.api.meta import Object

MAGIC = b"k8s\x00"
MOST_FIELDS = 100_000
MAX_DEPTH = 64
"""The deepest field of a Pod template is about fifteen messages deep."""

_ACCEPTED = ("application/json", "application/yaml")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_UINT64 = 1 << 64


class _Malformed(Exception):
    """The bytes are not a message."""


class _Budget:
    """The number of fields that may still be read, at any depth; a field needs only two bytes."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most


def decode(body: bytes, most_fields: int = MOST_FIELDS) -> Object:
    """The object in a protobuf request body."""
    budget = _Budget(most_fields)
    if not body.startswith(MAGIC):
        raise status.bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        api_version, kind, raw = _open_envelope(memoryview(body)[len(MAGIC) :], budget)
        message = go_types.find_protobuf_message(api_version, kind)
        if message is None:
            raise status.unsupported_media_type(_ACCEPTED)
        obj = _decode_message(message, raw, 0, budget)
    except _Malformed as error:
        raise status.bad_request(f"unable to decode protobuf body: {error}") from None
    return {"apiVersion": api_version, "kind": kind, **obj}


def _open_envelope(raw: memoryview, budget: _Budget) -> tuple[str, str, memoryview]:
    api_version = kind = encoding = ""
    content = memoryview(b"")
    for number, value in _parse(raw, budget):
        if number == 1 and isinstance(value, memoryview):
            for part, text in _parse(value, budget):
                if part == 1:
                    api_version = _decode_text(text)
                elif part == 2:
                    kind = _decode_text(text)
        elif number == 2 and isinstance(value, memoryview):
            content = value
        elif number == 3:
            encoding = _decode_text(value)
    if encoding:
        raise _Malformed("the content of the envelope is encoded")
    return api_version, kind, content


def _parse(raw: memoryview, budget: _Budget) -> Iterator[tuple[int, int | memoryview]]:
    """Field numbers and values of one message. Fixed-size values are passed as their bytes."""
    at, end = 0, len(raw)
    while at < end:
        _spend(budget)
        key, at = _read_varint(raw, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise _Malformed("field number 0")
        if wire == 0:
            value, at = _read_varint(raw, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _read_varint(raw, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise _Malformed(f"wire type {wire}")
        if at + length > end:
            raise _Malformed("unexpected end")
        yield number, raw[at : at + length]
        at += length


def _spend(budget: _Budget) -> None:
    budget.left -= 1
    if budget.left < 0:
        text = "Request entity too large: the message has too many fields (limits.object_values)"
        raise status.StatusError(413, "RequestEntityTooLarge", text)


def _read_varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(raw):
            raise _Malformed("unexpected end")
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _MAX_UINT64:
                raise _Malformed("a number of more than 64 bits")
            return value, at
    raise _Malformed("a number of more than 64 bits")


def _decode_message(message: str, raw: memoryview, depth: int, budget: _Budget) -> Object:
    if depth > MAX_DEPTH:
        raise _Malformed("nested too deeply")
    fields = go_types.get_fields(message)
    out: Object = {}
    for number, value in _parse(raw, budget):
        field = fields.get(number)
        if field is not None:
            _store(out, field, value, depth, budget)
    return out


def _store(out: Object, field: GoField, value: int | memoryview, depth: int, budget: _Budget) -> None:
    name, kind, occurs = field
    match occurs:
        case "list":
            values = out.setdefault(name, [])
            if kind == "int" and isinstance(value, memoryview):
                values.extend(_unpack(value, budget))
            else:
                values.append(_decode_value(kind, value, depth, budget))
        case "map":
            key, inner = _decode_entry(kind, value, depth, budget)
            out.setdefault(name, {})[key] = inner
        case "inline":
            out.update(_decode_value(kind, value, depth, budget))
        case _:
            found = _decode_value(kind, value, depth, budget)
            if found is not None and (occurs or found not in ("", 0, False, {})):
                out[name] = found


def _unpack(raw: memoryview, budget: _Budget) -> Iterator[int]:
    at = 0
    while at < len(raw):
        value, at = _read_varint(raw, at)
        _spend(budget)
        yield _signed(value)


def _decode_entry(kind: str, value: int | memoryview, depth: int, budget: _Budget) -> tuple[str, Any]:
    if not isinstance(value, memoryview):
        raise _Malformed("a map entry is no message")
    key, inner = "", None
    for number, part in _parse(value, budget):
        if number == 1:
            key = _decode_text(part)
        elif number == 2:
            inner = _decode_value(kind, part, depth, budget)
    if inner is None:
        inner = _decode_value(kind, memoryview(b""), depth, budget)
    return key, inner


def _decode_value(kind: str, value: int | memoryview, depth: int, budget: _Budget) -> Any:
    if kind in ("int", "bool"):
        if not isinstance(value, int):
            raise _Malformed("bytes where a number belongs")
        return bool(value) if kind == "bool" else _signed(value)
    if not isinstance(value, memoryview):
        raise _Malformed("a number where bytes belong")
    if kind[0] == "@":
        return _decode_message(kind[1:], value, depth + 1, budget)
    match kind:
        case "string":
            return _decode_text(value)
        case "bytes":
            return base64.b64encode(value).decode()
        case "time" | "micro_time":
            return _decode_time(value, budget, micro=kind == "micro_time")
        case "quantity":
            return next((_decode_text(part) for number, part in _parse(value, budget) if number == 1), "")
        case "strings":
            return [_decode_text(part) for number, part in _parse(value, budget) if number == 1]
        case "int_or_string":
            return _decode_int_or_string(value, budget)
    return _decode_raw(value, budget)


def _signed(value: int) -> int:
    return value - _MAX_UINT64 if value >> 63 else value


def _decode_text(value: int | memoryview) -> str:
    if not isinstance(value, memoryview):
        raise _Malformed("a number where text belongs")
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        raise _Malformed("text that is not UTF-8") from None


def _decode_time(value: memoryview, budget: _Budget, *, micro: bool) -> str | None:
    """None for the zero time, which JSON writes as null."""
    parts = {number: part for number, part in _parse(value, budget) if isinstance(part, int)}
    if not parts:
        return None
    try:
        when = _EPOCH + timedelta(seconds=_signed(parts.get(1, 0)))
    except OverflowError:
        raise _Malformed("a time out of range") from None
    text = when.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{text}.{parts.get(2, 0) // 1000 % 1_000_000:06}Z" if micro else f"{text}Z"


def _decode_int_or_string(value: memoryview, budget: _Budget) -> int | str:
    parts = dict(_parse(value, budget))
    if parts.get(1):
        return _decode_text(parts.get(3, memoryview(b"")))
    number = parts.get(2, 0)
    if not isinstance(number, int):
        raise _Malformed("bytes where a number belongs")
    return _signed(number)


def _decode_raw(value: memoryview, budget: _Budget) -> Any:
    """JSON inside protobuf, as in managedFields."""
    text = next((part for number, part in _parse(value, budget) if number == 1 and isinstance(part, memoryview)), None)
    if text is None or not len(text):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise _Malformed("a raw value that is not JSON") from None
