"""Refuses to delete runtimes that TrainJobs refer to, with the names of the jobs.

A job still runs from its snapshot without its runtime, but clients that look up the runtime fail, and one such job
often makes them fail for the whole namespace. An annotation on the runtime allows the deletion. Runtimes in terminating
namespaces, and derived runtimes, which exist for single jobs only, can always be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.labels import ALLOW_DELETE_IN_USE, DERIVED
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_annotations, read_labels
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, NAMESPACES, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.store.contract import Store

_NAMED = 3
"""Maximum number of jobs that a refusal names."""
_SLICE = 1000


class RuntimeUse(Plugin):
    def __init__(self, store: Store) -> None:
        self._store = store

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.gvr in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES) and operation is DELETE

    def validate(self, attributes: Attributes) -> None:
        runtime = attributes.old
        if runtime is None or self._may_go(runtime):
            return
        users: list[str] = []
        for user in self._list_users(attributes.kind.gvr, runtime):
            users.append(user)
            if len(users) > _NAMED:
                break
        if users:
            raise status.forbidden(attributes.kind.gvr, attributes.name, _explain(attributes.kind, runtime, users))

    def _may_go(self, runtime: Object) -> bool:
        meta = runtime["metadata"]
        if "deletionTimestamp" in meta or read_labels(runtime).get(DERIVED) == "true":
            return True
        if read_annotations(runtime).get(ALLOW_DELETE_IN_USE) == "true":
            return True
        record = self._store.get(stored.bucket_of(NAMESPACES), meta.get("namespace", ""))
        return record is not None and "deletionTimestamp" in stored.parse(record.value)["metadata"]

    def _list_users(self, gvr: GVR, runtime: Object) -> Iterator[str]:
        """TrainJobs that refer to the runtime. For speed, only those whose bytes contain its name are parsed."""
        name = runtime["metadata"]["name"]
        namespace = runtime["metadata"].get("namespace", "")
        prefix, quoted = f"{namespace}/" if namespace else "", f'"{name}"'.encode()
        for records in stored.scan_in_slices(self._store, stored.bucket_of(TRAIN_JOBS), _SLICE, prefix):
            for record in records:
                value = record.value
                reference = stored.parse(value)["spec"]["runtimeRef"] if quoted in value else {}
                if reference.get("name") == name and find_runtime_gvr(reference) == gvr:
                    yield record.name


def _explain(kind: Kind, runtime: Object, users: list[str]) -> str:
    names = ", ".join(users[:_NAMED]) + (" and others" if len(users) > _NAMED else "")
    meta = runtime["metadata"]
    where = f" -n {meta['namespace']}" if meta.get("namespace") else ""
    plural, them = ("", "it") if len(users) == 1 else ("s", "them")
    return (
        f"in use by TrainJob{plural} {names}. Delete {them} first, or allow it with: "
        f"kubectl annotate {kind.kind.lower()} {meta['name']}{where} {ALLOW_DELETE_IN_USE}=true"
    )
