"""Runtimes that were derived for single jobs go when no TrainJob refers to them any more.

Whoever makes one (`trainmaster run`) makes it before the TrainJob, and touches one that exists: for a while after that
it stays although nobody refers to it yet. The delete names the revision that was looked at, so a touch that came
meanwhile wins. A job that is running has its snapshot and would not notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from trainmaster.api.labels import DERIVED, LAST_USED
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import Delete, WriteRefusal
from trainmaster.controllers.ownership import is_terminating
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.kit.timeline import Now

GRACE = 600.0
"""Seconds after the last use: so long a TrainJob may follow its runtime."""
_RETRY = 60.0


class Users:
    """Summary of a view: how many TrainJobs refer to each TrainingRuntime."""

    gvrs: ClassVar[tuple[GVR, ...]] = (TRAIN_JOBS,)

    def __init__(self) -> None:
        self._runtimes: dict[tuple[str, str], str] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, namespace: str, runtime: str) -> int:
        return self._counts.get((namespace, runtime), 0)

    def put(self, gvr: GVR, obj: Object) -> None:
        meta, runtime = obj["metadata"], find_runtime_name(obj)
        key = meta["namespace"], meta["name"]
        if self._runtimes.get(key) == runtime:
            return
        self.drop(gvr, *key)
        if runtime is not None:
            self._runtimes[key] = runtime
            self._counts[key[0], runtime] = self.count(key[0], runtime) + 1

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        runtime = self._runtimes.pop((namespace, name), None)
        if runtime is not None:
            left = self.count(namespace, runtime) - 1
            if left:
                self._counts[namespace, runtime] = left
            else:
                del self._counts[namespace, runtime]


def find_runtime_name(trainjob: Object) -> str | None:
    """The TrainingRuntime that it refers to; None when it is one of the cluster."""
    reference = trainjob["spec"]["runtimeRef"]
    return str(reference["name"]) if reference.get("kind") == "TrainingRuntime" else None


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    runtime = view.find(TRAINING_RUNTIMES, request.namespace, request.name)
    if runtime is None or is_terminating(runtime) or not is_derived(runtime):
        return NOTHING
    if summarize(view, Users).count(request.namespace, request.name):
        return NOTHING
    if refusals:
        return Plan(requeue_after=_RETRY)
    meta = runtime["metadata"]
    left = _find_time_left(meta, now)
    if left > 0:
        return Plan(requeue_after=left)
    version = str(meta.get("resourceVersion", ""))
    return Plan((Delete(TRAINING_RUNTIMES, request.namespace, request.name, meta["uid"], version),))


def _find_time_left(meta: Object, now: Now) -> float:
    used = (meta.get("annotations") or {}).get(LAST_USED)
    if used:
        try:
            return now.left(meta["uid"], "last used", used, GRACE)
        except ValueError:
            pass  # somebody wrote something else there: its birth counts
    return now.left(meta["uid"], "created", meta["creationTimestamp"], GRACE)


def is_derived(runtime: Object) -> bool:
    return (runtime["metadata"].get("labels") or {}).get(DERIVED) == "true"


def map_trainjob(view: View, trainjob: Object) -> Iterable[Request]:
    name = find_runtime_name(trainjob)
    if name is not None:
        yield Request(trainjob["metadata"]["namespace"], name)


CONTROLLER = Controller(
    name="derived-runtimes",
    kind=TRAINING_RUNTIMES,
    reconcile=reconcile,
    reporter="trainmaster-lifecycle",
    sources=(ChangeSource(TRAINING_RUNTIMES, map_to_self), ChangeSource(TRAIN_JOBS, map_trainjob)),
)
