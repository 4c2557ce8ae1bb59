"""The protobuf form of an OpenAPI version 2 document, which is the only one that older kubectl reads.

Writes the messages of gnostic's `openapi.v2` schema that our documents need; the numbers are its field numbers. Values
without a message of their own (extensions, defaults, enums) travel as YAML text, for which JSON will do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import orjson

from trainmaster.api.meta import Object

_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}
_SCHEMA_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_SCHEMA_DOUBLES = {"maximum": 7, "minimum": 9}
_SCHEMA_NUMBERS = {
    "maxLength": 11,
    "minLength": 12,
    "maxItems": 14,
    "minItems": 15,
    "maxProperties": 17,
    "minProperties": 18,
}


def encode(document: Object) -> bytes:
    """The whole document."""
    return _Encoder().document(document)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_TAGS = [_varint(field << 3 | 2) for field in range(32)]
_LENGTHS = [bytes((length,)) for length in range(128)]


def _message(field: int, content: bytes) -> bytes:
    length = len(content)
    return _TAGS[field] + (_LENGTHS[length] if length < 128 else _varint(length)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number & 0xFFFFFFFFFFFFFFFF)


def _double(field: int, number: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", number)


def _join(parts: Iterable[bytes]) -> bytes:
    return b"".join(parts)


def _named(name: str, content: bytes) -> bytes:
    return _text(1, name) + _message(2, content)


def _any(value: Any) -> bytes:
    return _text(2, orjson.dumps(value).decode())


def _extensions(field: int, source: Object) -> bytes:
    return _join(_message(field, _named(key, _any(value))) for key, value in source.items() if key.startswith("x-"))


@cache
def _parameter(name: str, where: str, type_name: str) -> bytes:
    """A ParametersItem that holds a parameter of the query or of the path."""
    required = _number(1, 1) if where == "path" else b""
    type_field, kind = (6, 3) if where == "query" else (5, 4)
    content = required + _text(2, where) + _text(4, name) + _text(type_field, type_name)
    return _message(1, _message(2, _message(kind, content)))


class _Encoder:
    """Remembers schemas by identity: a document uses the same small ones thousands of times."""

    def __init__(self) -> None:
        self._schemas: dict[int, bytes] = {}

    def document(self, document: Object) -> bytes:
        info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
        paths = _join(_message(2, _named(name, self._path(item))) for name, item in document["paths"].items())
        definitions = self._named_schemas(document["definitions"])
        return _text(1, document["swagger"]) + _message(2, info) + _message(8, paths) + _message(9, definitions)

    def _path(self, item: Object) -> bytes:
        methods = [_message(number, self._operation(item[name])) for name, number in _METHODS.items() if name in item]
        return _join(methods) + _join(_message(9, self._parameter(value)) for value in item.get("parameters", ()))

    def _operation(self, operation: Object) -> bytes:
        out = _text(5, operation["operationId"])
        out += _join(_text(7, media) for media in operation.get("consumes", ()))
        out += _join(_message(8, self._parameter(parameter)) for parameter in operation["parameters"])
        out += _message(9, self._responses(operation["responses"]))
        return out + _extensions(13, operation)

    def _parameter(self, parameter: Object) -> bytes:
        if parameter["in"] != "body":
            return _parameter(parameter["name"], parameter["in"], parameter["type"])
        body = _text(2, parameter["name"]) + _text(3, "body") + _message(5, self._schema(parameter["schema"]))
        if parameter.get("required"):
            body += _number(4, 1)
        return _message(1, _message(1, body))

    def _responses(self, responses: Object) -> bytes:
        parts = []
        for code, response in responses.items():
            content = _text(1, response["description"])
            if "schema" in response:
                content += _message(2, _message(1, self._schema(response["schema"])))
            parts.append(_message(1, _named(code, _message(1, content))))
        return _join(parts)

    def _named_schemas(self, named: Object) -> bytes:
        return _join([_message(1, _named(name, self._schema(value))) for name, value in named.items()])

    def _schema(self, schema: Object) -> bytes:
        found = self._schemas.get(id(schema))
        if found is None:
            found = self._schemas[id(schema)] = _join([self._keyword(key, value) for key, value in schema.items()])
        return found

    def _keyword(self, key: str, value: Any) -> bytes:
        write = _WRITERS.get(key)
        if write is not None:
            return write(value)
        if key == "properties":
            return _message(25, self._named_schemas(value))
        if key == "items":
            return _message(23, _message(1, self._schema(value)))
        if key == "additionalProperties":
            return _message(21, _message(1, self._schema(value)))
        return _message(31, _named(key, _any(value))) if key.startswith("x-") else b""


def _with(write: Callable[[int, Any], bytes], field: int) -> Callable[[Any], bytes]:
    return lambda value: write(field, value)


_WRITERS: dict[str, Callable[[Any], bytes]] = {
    **{key: _with(_text, field) for key, field in _SCHEMA_TEXTS.items()},
    **{key: _with(_double, field) for key, field in _SCHEMA_DOUBLES.items()},
    **{key: _with(_number, field) for key, field in _SCHEMA_NUMBERS.items()},
    "default": lambda value: _message(5, _any(value)),
    "required": lambda names: _join(_text(19, name) for name in names),
    "enum": lambda values: _join(_message(20, _any(value)) for value in values),
    "type": lambda name: _message(22, _text(1, name)),
}
