"""Glue between the store and `auth`: RBAC objects as a policy source, single objects for token checks, and the
admission plugin that keeps people from granting what they do not have.

Reads the store directly, because authorization runs before and below the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import RBAC_GROUP
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import Attributes, Plugin
from trainmaster.auth.contract import POLICY_KINDS, PolicyChange
from trainmaster.auth.escalation import check_write
from trainmaster.auth.rbac import RbacAuthorizer
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


class NoEscalation(Plugin):
    """Refuses roles and bindings that would give more than their writer has."""

    def __init__(self, authorizer: RbacAuthorizer) -> None:
        self._authorizer = authorizer

    def concerns(self, kind: Kind) -> bool:
        return kind.group == RBAC_GROUP

    def validate(self, attributes: Attributes) -> None:
        if attributes.new is not None:
            identity = attributes.call.identity
            gvr = attributes.kind.gvr
            check_write(self._authorizer, identity, gvr, attributes.namespace, attributes.new, attributes.old)
