"""Reading parts of an object that may be absent or null; an empty mapping or list stands for both.

The wire knows three ways to say nothing: no field, null, and an empty value. Readers of objects that are told apart
nowhere else ask here, and say which part they want and not how it may be missing. Models of whole objects are in
`jobs.models`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.api.meta import Fields

NOTHING: Fields = {}
"""In place of a mapping that is absent."""


def read_spec(obj: Fields) -> Fields:
    found: Fields = obj.get("spec") or NOTHING
    return found


def read_status(obj: Fields) -> Fields:
    found: Fields = obj.get("status") or NOTHING
    return found


def read_metadata(obj: Fields) -> Fields:
    """Of a template; an object has its own."""
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
