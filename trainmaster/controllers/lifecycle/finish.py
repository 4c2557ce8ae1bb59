"""When a TrainJob ended, and under which runtime: what retention is counted from and decided by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from trainmaster.api.admission.trainjobs import find_live_runtime, find_runtime, find_snapshot
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.policy import RetentionPolicy, read_policy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.training import snapshots
from trainmaster.api.training.ends import FINISHED, find_end
from trainmaster.client.view import View
from trainmaster.controllers.ownership import is_terminating
from trainmaster.engine.request import Request

COMPLETE, FAILED = FINISHED


def find_retention_runtime(view: View, trainjob: Object) -> Object | None:
    """The live runtime while it is the one that the job began with, so that a changed TTL reaches finished jobs;
    else the snapshot."""
    live = find_live_runtime(trainjob, view)
    text = find_snapshot(trainjob, view)
    if live is not None and text is not None and snapshots.find_uid(text) == live["metadata"].get("uid"):
        return live
    taken = find_runtime(trainjob, view)
    if taken is None or live is None:
        return taken or live
    return live if taken["metadata"].get("uid") in (None, live["metadata"].get("uid")) else taken


def find_policy(view: View) -> RetentionPolicy:
    return read_policy(view.find(CONFIG_MAPS, policy.NAMESPACE, policy.NAME)).policy


def is_policy(obj: Object) -> bool:
    meta = obj["metadata"]
    return (meta.get("namespace"), meta["name"]) == (policy.NAMESPACE, policy.NAME)


class FinishedByRuntime:
    """Summary of a view: the finished TrainJobs of each runtime, by name. A runtime that changes, and each start, looks
    at its own and not at all that there are."""

    gvrs: ClassVar[tuple[GVR, ...]] = (TRAIN_JOBS,)

    def __init__(self) -> None:
        self._runtimes: dict[Request, tuple[str, str]] = {}
        self._finished: dict[tuple[str, str], dict[Request, None]] = {}
        """(namespace, or "" for a runtime of the cluster, and name) to those that it ran."""

    def list_of(self, runtime: Object) -> tuple[Request, ...]:
        meta = runtime["metadata"]
        return tuple(self._finished.get((meta.get("namespace", ""), meta["name"]), ()))

    def put(self, gvr: GVR, obj: Object) -> None:
        meta = obj["metadata"]
        request = Request(meta["namespace"], meta["name"])
        runtime = _find_runtime_key(obj)
        if runtime == self._runtimes.get(request):
            return
        self.drop(gvr, request.namespace, request.name)
        if runtime is not None:
            self._runtimes[request] = runtime
            self._finished.setdefault(runtime, {})[request] = None

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        request = Request(namespace, name)
        runtime = self._runtimes.pop(request, None)
        if runtime is not None:
            del self._finished[runtime][request]
            if not self._finished[runtime]:
                del self._finished[runtime]


def _find_runtime_key(trainjob: Object) -> tuple[str, str] | None:
    if find_end(trainjob) is None or is_terminating(trainjob):
        return None
    reference = trainjob["spec"]["runtimeRef"]
    is_namespaced = reference.get("kind", "ClusterTrainingRuntime") == "TrainingRuntime"
    return trainjob["metadata"]["namespace"] if is_namespaced else "", reference["name"]


def list_finished(view: View, namespace: str = "") -> Iterable[Object]:
    """Those that are over and not yet on their way out."""
    for trainjob in view.list(TRAIN_JOBS, namespace):
        if find_end(trainjob) is not None and not is_terminating(trainjob):
            yield trainjob
