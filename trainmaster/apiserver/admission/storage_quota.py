"""Refuses new Pods, jobs and claims in a namespace that exceeds its storage quota (`trainmaster.dev/storage`).

The node measures the usage and writes `status.used` (`node.disk.guard`). Creates are refused while it is above
`spec.hard`; deletes are always allowed.
"""

from __future__ import annotations

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.resources import RESOURCE_QUOTAS
from trainmaster.api.tenancy import find_storage_problem
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import CREATE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.state import RegistryState

_BUCKET = RESOURCE_QUOTAS.collection


class StorageQuota(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.quotas.writes_data and operation is CREATE

    def validate(self, attributes: Attributes) -> None:
        store, prefix = self._state.store, f"{attributes.namespace}/"
        if not store.count(_BUCKET, prefix):
            return
        for record in store.scan(_BUCKET, prefix):
            problem = find_storage_problem(stored.parse(record.value))
            if problem:
                raise status.forbidden(attributes.kind.gvr, attributes.name, problem)
