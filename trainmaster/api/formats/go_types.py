"""The structs into which Go clients read the served kinds (`go_types.json`, written by tools/generate_go_types.py).

Loaded when it is first needed: by protobuf requests, and by writes whose spelling of a value may differ.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import orjson


class GoField(NamedTuple):
    name: str
    """In JSON."""
    kind: str
    """string, int, bool, bytes, strings, quantity, int_or_string, time, micro_time, raw, or @ and a message."""
    occurs: str
    """pointer: a zero value is kept; always: written even when zero; list; map; inline: its fields are those of the
    message around it; "": left out when zero, except that an empty message is written."""


class _Types:
    def __init__(self) -> None:
        raw = orjson.loads((Path(__file__).parent / "go_types.json").read_bytes())
        self.kinds: dict[str, str] = raw["kinds"]
        self.custom_kinds: dict[str, str] = raw["custom_kinds"]
        self.messages: dict[str, dict[str, list[str]]] = raw["messages"]


@cache
def _types() -> _Types:
    return _Types()


def find_protobuf_message(api_version: str, kind: str) -> str | None:
    """The message of a kind that has a protobuf encoding."""
    return _types().kinds.get(f"{api_version} {kind}")


def find_message(api_version: str, kind: str) -> str | None:
    return _types().custom_kinds.get(f"{api_version} {kind}") or find_protobuf_message(api_version, kind)


@cache
def get_fields(message: str) -> dict[int, GoField]:
    """By protobuf number."""
    entries = _types().messages[message].items()
    return {int(number): GoField(entry[0], entry[1], entry[2] if len(entry) > 2 else "") for number, entry in entries}


@cache
def get_named_fields(message: str) -> dict[str, GoField]:
    """By name in JSON."""
    named: dict[str, GoField] = {}
    for field in get_fields(message).values():
        if field.occurs == "inline":
            named |= get_named_fields(field.kind[1:])
        else:
            named[field.name] = field
    return named
