"""Stores cases compactly: a part that occurs several times is written once and referred to by its number.

The name of the job stands as `<job>`, so that several cases can share their parts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

_REFERENCE = "$"
_NAME = "<job>"
_WORTHWHILE = 40
"""Characters; a reference to anything shorter saves nothing."""


def fold(value: Any) -> tuple[Any, list[Any]]:
    """The value with references, and the parts that they refer to."""
    counts = Counter(text for text in map(_encode, _list_parts(value)) if len(text) >= _WORTHWHILE)
    parts: list[Any] = []
    numbers: dict[str, int] = {}

    def visit(part: Any) -> Any:
        if not isinstance(part, dict | list):
            return part
        text = _encode(part)
        if counts[text] < 2:
            return _visit_children(part)
        if text not in numbers:
            folded = _visit_children(part)
            numbers[text] = len(parts)
            parts.append(folded)
        return {_REFERENCE: numbers[text]}

    def _visit_children(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: visit(entry) for key, entry in part.items()}
        return [visit(entry) for entry in part]

    return visit(value), parts


def unfold(value: Any, parts: Sequence[Any]) -> Any:
    if isinstance(value, dict):
        if _REFERENCE in value:
            return unfold(parts[value[_REFERENCE]], parts)
        return {key: unfold(entry, parts) for key, entry in value.items()}
    return [unfold(entry, parts) for entry in value] if isinstance(value, list) else value


def hide_name(case: Any, name: str) -> Any:
    return json.loads(json.dumps(case).replace(name, _NAME))


def show_name(case: Any, name: str) -> Any:
    return json.loads(json.dumps(case).replace(_NAME, name))


def _list_parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _list_parts(entry)


def _encode(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
