"""The read half that reconcilers see: from memory, synchronous, without I/O (design 5).

Embedded, a view reads the store's own state and is always current; on a cluster it reads watch caches and may be
stale, and the tests make it so. Objects are shared: never change what a view returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from trainmaster.api.meta import GVR, Object


class View(Protocol):
    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None: ...

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """All objects of the kind (namespace "" is all) whose labels contain all of `labels`, by namespace and name."""
        ...

    def owned(self, gvr: GVR, owner_uid: str) -> Sequence[Object]:
        """Objects of the kind that name that uid as their controller (ownerReferences with controller: true)."""
        ...
