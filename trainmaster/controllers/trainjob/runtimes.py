"""Finds the runtime of a TrainJob: its snapshot if there is one, otherwise the live object.

Errors start with upstream's text, followed by advice. Editing or deleting a runtime does not affect a job after its
first pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_fields, read_metadata
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.training import snapshots
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.client.view import View
from trainmaster.client.writes import Create
from trainmaster.controllers.budget import describe_origin
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.waiting import Waiting
from trainmaster.engine.request import Request
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.trainjobs import TrainJob

INVALID = "InvalidRuntimeSnapshot"
NOT_FOUND = "RuntimeNotFound"


@dataclass(frozen=True, slots=True)
class FoundRuntime:
    obj: Object
    snapshot: Create | None
    """The write that stores the snapshot; None if it exists."""


def resolve_runtime(view: View, trainjob: TrainJob) -> FoundRuntime | Waiting:
    snapshot = view.find(CONFIG_MAPS, trainjob.namespace, snapshots.get_name(trainjob.raw))
    if snapshot is not None:
        return _read_snapshot(trainjob, snapshot)
    return _read_live(view, trainjob)


def _read_snapshot(trainjob: TrainJob, snapshot: Fields) -> FoundRuntime | Waiting:
    name = snapshot["metadata"]["name"]
    if not ObjectModel(snapshot).is_owned_by(trainjob.uid):
        sentence = "invalid runtime snapshot: a snapshot configmap exists but is owned by another object"
        return Waiting(INVALID, f"{sentence} (ConfigMap {name}; rename or delete it)")
    advice = f"delete the ConfigMap {name} to take a new one"
    text = read_fields(snapshot, "data").get(snapshots.DATA_KEY)
    if not isinstance(text, str):
        sentence = f'invalid runtime snapshot: snapshot ConfigMap missing "{snapshots.DATA_KEY}" data key'
        return Waiting(INVALID, f"{sentence}; {advice}")
    try:
        runtime = snapshots.read(text)
    except ValueError as error:
        return Waiting(INVALID, f"invalid runtime snapshot: unable to unmarshal the snapshot: {error}; {advice}")
    reference = trainjob.runtime
    wanted = (reference["name"], snapshots.GROUP, reference.get("kind", "ClusterTrainingRuntime"))
    group = str(runtime.get("apiVersion", "")).partition("/")[0]
    found = (read_metadata(runtime).get("name"), group, runtime.get("kind"))
    if found != wanted or not isinstance(runtime.get("spec"), dict):
        sentence = "invalid runtime snapshot: the snapshot refers to the wrong runtime: expecting a runtime with name"
        return Waiting(INVALID, f"{sentence}, api group and kind of {', '.join(wanted)}; {advice}")
    return FoundRuntime(runtime, None)


def _read_live(view: View, trainjob: TrainJob) -> FoundRuntime | Waiting:
    reference = trainjob.runtime
    gvr = find_runtime_gvr(reference)
    if gvr is None:
        key = f"{reference.get('kind')}.{reference.get('apiGroup')}"
        return Waiting("TrainingRuntimeNotSupported", f"unsupported runtime: {key}")
    namespace = trainjob.namespace if gvr == TRAINING_RUNTIMES else ""
    live = view.find(gvr, namespace, reference["name"])
    if live is None:
        return Waiting(NOT_FOUND, _explain_missing(view, gvr, namespace, reference["name"]))
    kind = "TrainingRuntime" if gvr == TRAINING_RUNTIMES else "ClusterTrainingRuntime"
    content, text = snapshots.take(live, kind)
    configmap: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": snapshots.get_name(trainjob.raw),
            "namespace": trainjob.namespace,
            "ownerReferences": [build_owner_reference(trainjob.raw)],
            **describe_origin(live),
        },
        "data": {snapshots.DATA_KEY: text},
    }
    return FoundRuntime(content, Create(CONFIG_MAPS, configmap))


class MissingRuntimes:
    """Summary of a view: which TrainJobs wait for runtimes that do not exist. Without it, each change of a runtime and
    each startup would examine all TrainJobs."""

    gvrs: ClassVar[tuple[GVR, ...]] = (TRAIN_JOBS,)
    counts_at_rest: ClassVar[bool] = False

    def __init__(self) -> None:
        self._wanted: dict[Request, tuple[str, str]] = {}
        """(namespace or "" for a ClusterTrainingRuntime, name) of the runtime that each of them waits for."""
        self._waiting: dict[tuple[str, str], dict[Request, None]] = {}

    def list_waiting(self, namespace: str, name: str) -> tuple[Request, ...]:
        return tuple(self._waiting.get((namespace, name), ()))

    def put(self, gvr: GVR, obj: Object) -> None:
        meta = obj["metadata"]
        request = Request(meta["namespace"], meta["name"])
        wanted = _find_wanted(TrainJob(obj))
        if wanted == self._wanted.get(request):
            return
        self._forget(request)
        if wanted is not None:
            self._wanted[request] = wanted
            self._waiting.setdefault(wanted, {})[request] = None

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        self._forget(Request(namespace, name))

    def _forget(self, request: Request) -> None:
        wanted = self._wanted.pop(request, None)
        if wanted is not None:
            del self._waiting[wanted][request]
            if not self._waiting[wanted]:
                del self._waiting[wanted]


def _find_wanted(trainjob: TrainJob) -> tuple[str, str] | None:
    return None if trainjob.waiting_reason != NOT_FOUND else trainjob.runtime_key


def _explain_missing(view: View, gvr: GVR, namespace: str, name: str) -> str:
    kind = "TrainingRuntime" if gvr == TRAINING_RUNTIMES else "ClusterTrainingRuntime"
    known = ", ".join(sorted(runtime["metadata"]["name"] for runtime in view.list(gvr, namespace))) or "none"
    place = f" in namespace {namespace}" if namespace else ""
    return f'{kind} "{name}" does not exist{place}; create it, or use one of those that exist: {known}'
