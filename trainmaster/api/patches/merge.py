"""JSON merge patch (RFC 7386): an object laid over another; null removes.

Used for `application/merge-patch+json`. The input objects are not changed; unchanged branches are shared.
"""

from __future__ import annotations

from typing import Any

from trainmaster.api import status
from trainmaster.api.meta import Fields, Object


def apply(obj: Object, patch: Any) -> Object:
    """`obj` after the patch. A patch that is not an object is refused with 400."""
    if not isinstance(patch, dict):
        word = "array" if isinstance(patch, list) else "string" if isinstance(patch, str) else "number"
        text = f"error decoding patch: json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
        raise status.bad_request(text)
    return _merge(obj, patch)


def _merge(old: Any, patch: dict[str, Any]) -> dict[str, Any]:
    out = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            out[key] = _merge(out.get(key), value)
        else:
            out[key] = value
    return out


def build_patch(old: Fields, new: Fields) -> Object:
    """The smallest merge patch from `old` to `new`; {} if they are equal. None in `new` counts as absent."""
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before == value:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            patch[key] = build_patch(before, value)
        else:
            patch[key] = value
    return patch
