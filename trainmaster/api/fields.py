"""Validation errors about fields, with the messages of Kubernetes.

Validation collects these in a list and never stops at the first one. `str()` of a FieldError is the text that
upstream puts into the Status message; `to_cause` is the entry of `details.causes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class FieldErrorKind(Enum):
    """Upstream's error kinds: (reason in the cause, words in the message)."""

    REQUIRED = ("FieldValueRequired", "Required value")
    INVALID = ("FieldValueInvalid", "Invalid value")
    TYPE_INVALID = ("FieldValueTypeInvalid", "Invalid value")
    NOT_SUPPORTED = ("FieldValueNotSupported", "Unsupported value")
    DUPLICATE = ("FieldValueDuplicate", "Duplicate value")
    FORBIDDEN = ("FieldValueForbidden", "Forbidden")
    NOT_FOUND = ("FieldValueNotFound", "Not found")
    TOO_LONG = ("FieldValueTooLong", "Too long")
    TOO_MANY = ("FieldValueTooMany", "Too many")
    INTERNAL = ("InternalError", "Internal error")


_WITHOUT_VALUE = {FieldErrorKind.REQUIRED, FieldErrorKind.FORBIDDEN, FieldErrorKind.TOO_LONG, FieldErrorKind.INTERNAL}

_LONGEST_VALUE = 64 * 1024
OMIT: Any = object()
"""A value that is left out of the message, as rules of custom kinds about objects and lists do."""

ROOT = "<nil>"
"""The path that upstream prints for an error about the whole object."""


def render_value(value: Any) -> str:
    """A value the way upstream prints it: quoted strings, bare numbers, JSON for the rest. Long ones are cut."""
    if isinstance(value, str):
        value = value[:_LONGEST_VALUE]
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


@dataclass(frozen=True, slots=True)
class FieldError:
    path: str
    kind: FieldErrorKind
    value: Any = None
    detail: str = ""

    @property
    def body(self) -> str:
        text = self.kind.value[1]
        if self.kind not in _WITHOUT_VALUE and self.value is not OMIT:
            text += f": {render_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"

    def to_cause(self) -> Mapping[str, str]:
        return {"reason": self.kind.value[0], "message": self.body, "field": self.path}


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, FieldErrorKind.REQUIRED, None, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, FieldErrorKind.INVALID, value, detail)


def not_supported(path: str, value: Any, supported: Sequence[str]) -> FieldError:
    words = ", ".join(json.dumps(word) for word in supported)
    return FieldError(path, FieldErrorKind.NOT_SUPPORTED, value, f"supported values: {words}")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, FieldErrorKind.DUPLICATE, value)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, FieldErrorKind.FORBIDDEN, None, detail)


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, FieldErrorKind.TYPE_INVALID, value, detail)


def not_found(path: str, value: Any) -> FieldError:
    return FieldError(path, FieldErrorKind.NOT_FOUND, value)


def too_long(path: str, most: int) -> FieldError:
    return FieldError(path, FieldErrorKind.TOO_LONG, None, f"may not be more than {most} bytes")


def too_many(path: str, count: int, most: int) -> FieldError:
    return FieldError(path, FieldErrorKind.TOO_MANY, count, f"must have at most {most} items")
