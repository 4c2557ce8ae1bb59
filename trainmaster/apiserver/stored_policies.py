"""Reads RBAC objects for authorization, and single objects for token checks, from the store.

It does not use the registry, because authorization runs before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver import stored
from trainmaster.auth.contract import POLICY_KINDS, PolicyChange
from trainmaster.store.contract import Event, EventType, Store


class StorePolicies:
    """Implements `auth.contract.PolicySource` and `auth.contract.Reader`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def policies(self, gvr: GVR) -> Iterable[Object]:
        return [stored.parse(record.value) for record in self._store.scan(stored.bucket_of(gvr))]

    def subscribe(self, change: PolicyChange) -> Callable[[], None]:
        watched = {stored.bucket_of(gvr): gvr for gvr in POLICY_KINDS}

        def follow(events: Sequence[Event]) -> None:
            for event in events:
                gvr = watched.get(event.record.bucket)
                if gvr is not None:
                    namespace, name = stored.split_name(event.record.name)
                    gone = event.type is EventType.DELETE
                    change(gvr, namespace, name, None if gone else stored.parse(event.record.value))

        return self._store.subscribe(follow)

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        record = self._store.get(stored.bucket_of(gvr), f"{namespace}/{name}" if namespace else name)
        return stored.parse(record.value) if record else None

    def find_uid(self, gvr: GVR, namespace: str, name: str) -> str | None:
        record = self._store.get(stored.bucket_of(gvr), f"{namespace}/{name}" if namespace else name)
        return stored.peek_uid(record.value) if record else None
