"""Owner references and the question whether an object is ours. Ownership is by uid, never by name."""

from __future__ import annotations

from trainmaster.api.meta import Fields, Object


def build_owner_reference(owner: Fields) -> Object:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def find_controller(obj: Fields) -> Fields | None:
    """The owner reference of the controller, of which there is at most one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference  # type: ignore[no-any-return]  # JSON
    return None


def is_owned_by(obj: Fields, uid: str) -> bool:
    reference = find_controller(obj)
    return reference is not None and reference.get("uid") == uid


def is_terminating(obj: Fields) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
