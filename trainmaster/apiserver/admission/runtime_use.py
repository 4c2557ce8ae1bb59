"""Refuses to delete runtimes that TrainJobs refer to, with the names of the jobs (`api.admission.runtimes`).

Runtimes in terminating namespaces can always be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api.admission import runtimes
from trainmaster.api.admission.writes import RUNTIMES
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import NAMESPACES, TRAIN_JOBS
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.store.contract import Store

_SLICE = 1000


class RuntimeUse(Plugin):
    def __init__(self, store: Store) -> None:
        self._store = store

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.gvr in RUNTIMES and operation is DELETE

    def validate(self, attributes: Attributes) -> None:
        runtime, gvr = attributes.old, attributes.kind.gvr
        if runtime is None or self._may_go(runtime):
            return
        refusal = runtimes.check_unused(gvr, runtime, self._list_users(gvr, runtime))
        if refusal is not None:
            raise refusal

    def _may_go(self, runtime: Object) -> bool:
        if runtimes.may_always_be_deleted(runtime):
            return True
        record = self._store.get(stored.bucket_of(NAMESPACES), runtime["metadata"].get("namespace", ""))
        return record is not None and "deletionTimestamp" in stored.parse(record.value)["metadata"]

    def _list_users(self, gvr: GVR, runtime: Object) -> Iterator[str]:
        """TrainJobs that refer to the runtime. For speed, only those whose bytes contain its name are parsed."""
        name = runtime["metadata"]["name"]
        namespace = runtime["metadata"].get("namespace", "")
        prefix, quoted = f"{namespace}/" if namespace else "", f'"{name}"'.encode()
        for records in stored.scan_in_slices(self._store, stored.bucket_of(TRAIN_JOBS), _SLICE, prefix):
            for record in records:
                if quoted in record.value and runtimes.is_used_by(stored.parse(record.value), gvr, name):
                    yield record.name
