"""Reading parts of an object that may be absent or null; an empty mapping or list stands for both.

JSON objects may omit a field, or set it to null or to an empty value; these functions treat all three alike. Models of
whole objects are in `jobs.models`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.api.meta import Fields

NOTHING: Fields = {}
"""Stands for a missing mapping."""


def read_spec(obj: Fields) -> Fields:
    found: Fields = obj.get("spec") or NOTHING
    return found


def read_status(obj: Fields) -> Fields:
    found: Fields = obj.get("status") or NOTHING
    return found


def read_metadata(obj: Fields) -> Fields:
    """The metadata of an object or a template."""
    found: Fields = obj.get("metadata") or NOTHING
    return found


def read_labels(obj: Fields) -> Mapping[str, str]:
    """Of an object or of a template."""
    found: Mapping[str, str] = read_metadata(obj).get("labels") or NOTHING
    return found


def read_annotations(obj: Fields) -> Mapping[str, str]:
    """Of an object or of a template."""
    found: Mapping[str, str] = read_metadata(obj).get("annotations") or NOTHING
    return found


def read_fields(obj: Fields | None, *path: str) -> Fields:
    """The mapping at the end of the path: `read_fields(jobset, "spec", "network")`."""
    found: Any = obj
    for name in path:
        if not found:
            return NOTHING
        found = found.get(name)
    return found or NOTHING


def list_items(obj: Fields | None, *path: str) -> Sequence[Any]:
    """The list at the end of the path: `list_items(pod, "spec", "volumes")`."""
    found: Any = obj
    for name in path:
        if not found:
            return ()
        found = found.get(name)
    return found or ()


def read_text(obj: Fields | None, *path: str) -> str:
    """The text at the end of the path."""
    found: Any = obj
    for name in path:
        if not found:
            return ""
        found = found.get(name)
    return "" if found is None else str(found)
