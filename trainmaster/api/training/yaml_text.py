"""JSON values as YAML text in the form that Go programs write it: sorted keys, block style, lists not indented.

Used for the runtime snapshot, which other programs read and compare, and for answers to those who ask for YAML. Only
what JSON has is supported; a general YAML library takes a hundred times as long and is not needed for writing. Reading
is `api.formats.yaml_documents`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

# What stays a string without quotes, in YAML 1.1 and 1.2: starts with a letter or a path character, and contains
# nothing that ends a plain scalar.
_PLAIN = re.compile(r"[A-Za-z_/$(][^\x00-\x1f\x7f\"'\\#:]*(:[^\s\x00-\x1f\x7f\"'\\#:][^\x00-\x1f\x7f\"'\\#:]*)*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_NUMBER = re.compile(
    r"[-+]?(0x[0-9a-f_]+|0o?[0-7_]+|0b[01_]+|[0-9][0-9_]*(\.[0-9_]*)?(e[-+]?[0-9]+)?|\.[0-9_]+(e[-+]?[0-9]+)?"
    r"|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|\.inf|\.nan)",
    re.IGNORECASE,
)
_TIME = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([Tt ].*)?")
_SIMPLE = re.compile(r"--?[A-Za-z]([\w=./:-]*[\w=./-])?|[0-9][\w./-]*")
"""Flags (`--config`) and names that begin with a digit (`20Gi`, a uid): no number, no list."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def render(value: Any) -> str:
    lines: list[str] = []
    _render_block(value, "", lines)
    return "\n".join(lines) + "\n"


def _render_block(value: Any, indent: str, lines: list[str]) -> None:
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            _render_entry(f"{indent}{_render_string(key)}:", value[key], indent, lines)
    elif isinstance(value, list) and value:
        for item in value:
            _render_item(item, indent, lines)
    else:
        lines.append(indent + _render_scalar(value, f"{indent}  "))


def _render_entry(head: str, value: Any, indent: str, lines: list[str]) -> None:
    if isinstance(value, Mapping) and value:
        lines.append(head)
        _render_block(value, f"{indent}  ", lines)
    elif isinstance(value, list) and value:
        lines.append(head)
        _render_block(value, indent, lines)
    else:
        lines.append(f"{head} {_render_scalar(value, f'{indent}  ')}")


def _render_item(item: Any, indent: str, lines: list[str]) -> None:
    """A list item; the first line of a nested block stands behind the dash."""
    if isinstance(item, Mapping | list) and item:
        block: list[str] = []
        _render_block(item, f"{indent}  ", block)
        block[0] = f"{indent}- {block[0][len(indent) + 2 :]}"
        lines.extend(block)
    else:
        lines.append(f"{indent}- {_render_scalar(item, f'{indent}  ')}")


def _render_scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _render_literal(value, indent) or _render_string(value)
    return orjson.dumps(value).decode()


def _render_literal(text: str, indent: str) -> str | None:
    """Several lines as a literal block; None when the text has one line or would need more than that."""
    if "\n" not in text or text[0] in " \n" or not text.replace("\n", "").isprintable():
        return None
    body, mark = (text[:-1], "|") if text.endswith("\n") else (text, "|-")
    if body.endswith("\n"):
        return None
    return mark + "".join(f"\n{indent}{line}" if line else "\n" for line in body.split("\n"))


def _render_string(text: str) -> str:
    if text.isprintable() and text == text.strip() and text and text.lower() not in _WORDS:
        if _NUMBER.fullmatch(text) or _TIME.fullmatch(text):
            return _quote(text)
        if _SIMPLE.fullmatch(text) or (_PLAIN.fullmatch(text) and not text.endswith(":")):
            return text
        return "'" + text.replace("'", "''") + "'"
    return _quote(text)


def _quote(text: str) -> str:
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
