"""What authentication and authorization read, straight from the store's memory.

`StorePolicies` follows the RBAC collections; `StoreReader` finds single objects. Both show what is true inside the
process at once, committed or not: a revoked role must not work for one more request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver import stored
from trainmaster.auth.contract import POLICY_KINDS, PolicyChange
from trainmaster.store.contract import Event, EventType, Store


class StorePolicies:
    """Implements `auth.contract.PolicySource`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kinds = {stored.bucket_of(gvr): gvr for gvr in POLICY_KINDS}

    def policies(self, gvr: GVR) -> Iterable[Object]:
        return [stored.parse(record.value) for record in self._store.scan(stored.bucket_of(gvr))]

    def subscribe(self, change: PolicyChange) -> Callable[[], None]:
        def follow(events: Sequence[Event]) -> None:
            for event in events:
                gvr = self._kinds.get(event.record.bucket)
                if gvr is not None:
                    namespace, name = stored.split_name(event.record.name)
                    gone = event.type is EventType.DELETE
                    change(gvr, namespace, name, None if gone else stored.parse(event.record.value))

        return self._store.subscribe(follow)


class StoreReader:
    """Implements `auth.contract.Reader`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        record = self._store.get(stored.bucket_of(gvr), f"{namespace}/{name}" if namespace else name)
        return None if record is None else stored.parse(record.value)
