"""Owner references and the question whether an object is ours. Ownership is by uid, never by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.api.meta import Object


def build_owner_reference(owner: Object) -> dict[str, Any]:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def find_controller(obj: Object) -> Mapping[str, Any] | None:
    """The owner reference of the controller, of which there is at most one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference  # type: ignore[no-any-return]  # JSON
    return None


def is_owned_by(obj: Object, uid: str) -> bool:
    reference = find_controller(obj)
    return reference is not None and reference.get("uid") == uid


def is_terminating(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
