"""Owner references. Use the object's model to check ownership: it compares uids, never names."""

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
