"""Upstream's admission of new Pods: the service account must exist, and the priority class is resolved to a number.

No token volume is mounted (a documented difference): the node gives processes their credentials.
"""

from __future__ import annotations

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, PRIORITY_CLASSES, SERVICE_ACCOUNTS
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import AdmissionOperation, Attributes, Plugin, is_new_pod
from trainmaster.store.contract import Store

_ACCOUNTS = SERVICE_ACCOUNTS.collection
_CLASSES = PRIORITY_CLASSES.collection
_PREEMPT = "PreemptLowerPriority"


class ServiceAccounts(Plugin):
    def __init__(self, store: Store) -> None:
        self._store = store

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return is_new_pod(kind, operation)

    def mutate(self, attributes: Attributes) -> None:
        spec = attributes.new["spec"]
        name = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if self._store.get(_ACCOUNTS, f"{attributes.namespace}/{name}") is None:
            raise status.forbidden(
                PODS,
                attributes.name,
                f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found',
            )


class Priorities(Plugin):
    def __init__(self, store: Store) -> None:
        self._store = store

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return is_new_pod(kind, operation)

    def mutate(self, attributes: Attributes) -> None:
        spec = attributes.new["spec"]
        name = spec.get("priorityClassName")
        found = self._find(attributes, name) if name else self._find_default()
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
        value = found["value"] if found is not None else 0
        policy = (found or {}).get("preemptionPolicy") or _PREEMPT
        given = spec.get("priority")
        if given is not None and given != value:
            raise status.forbidden(
                PODS,
                attributes.name,
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {value} from the given PriorityClass name",
            )
        spec["priority"] = value
        spec.setdefault("preemptionPolicy", policy)

    def _find(self, attributes: Attributes, name: str) -> Object:
        record = self._store.get(_CLASSES, name)
        if record is None:
            raise status.forbidden(PODS, attributes.name, f"no PriorityClass with name {name} was found")
        return stored.parse(record.value)

    def _find_default(self) -> Object | None:
        """The default class; if there are several, the one with the lowest value, as upstream."""
        classes = [
            stored.parse(record.value)
            for record in self._store.scan(_CLASSES)
            if b'"globalDefault":true' in record.value
        ]
        return min(classes, key=lambda found: int(found["value"]), default=None)
