"""Deletes runtimes that were derived for single jobs once no TrainJob refers to them.

`trainmaster run` creates such a runtime before the TrainJob, or updates the last-used time of an existing one, so it is
kept for a while even though nothing refers to it yet. The delete is conditional on the revision, so it fails if the
runtime has been used again in the meantime. Running jobs have a snapshot and are not affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from trainmaster.api.labels import LAST_USED
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import WriteRefusal
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import Draft, build_delete
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.timeline import Now

GRACE = 600.0
"""Seconds after the last use in which a TrainJob that refers to the runtime may still be created."""


class Users:
    """Summary of a view: how many TrainJobs refer to each TrainingRuntime."""

    gvrs: ClassVar[tuple[GVR, ...]] = (TRAIN_JOBS,)
    counts_at_rest: ClassVar[bool] = True

    def __init__(self) -> None:
        self._runtimes: dict[tuple[str, str], str] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, namespace: str, runtime: str) -> int:
        return self._counts.get((namespace, runtime), 0)

    def put(self, gvr: GVR, obj: Object) -> None:
        trainjob = TrainJob(obj)
        runtime = find_runtime_name(trainjob)
        key = trainjob.namespace, trainjob.name
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


def find_runtime_name(trainjob: TrainJob) -> str | None:
    """The name of the TrainingRuntime; None if the TrainJob refers to a ClusterTrainingRuntime."""
    namespace, name = trainjob.runtime_key
    return name if namespace else None


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    found = view.find(TRAINING_RUNTIMES, request.namespace, request.name)
    if found is None:
        return NOTHING
    runtime = TrainingRuntime(found)
    if runtime.is_deleting or not runtime.is_derived or refusals:
        return NOTHING
    if summarize(view, Users).count(request.namespace, request.name):
        return NOTHING
    draft = Draft()
    left = _get_time_left(runtime, now)
    if left > 0:
        draft.wake_after(left)
    else:
        draft.write(build_delete(TRAINING_RUNTIMES, runtime, versioned=True))
    return draft.build_plan()


def _get_time_left(runtime: TrainingRuntime, now: Now) -> float:
    used = runtime.annotations.get(LAST_USED)
    if used:
        try:
            return now.left(runtime.uid, "last used", used, GRACE)
        except ValueError:
            pass  # not a valid time; use the creation time
    return now.left(runtime.uid, "created", runtime.created_at, GRACE)


def map_trainjob(view: View, obj: Object) -> Iterable[Request]:
    trainjob = TrainJob(obj)
    name = find_runtime_name(trainjob)
    if name is not None:
        yield Request(trainjob.namespace, name)


CONTROLLER = Controller(
    name="derived-runtimes",
    kind=TRAINING_RUNTIMES,
    reconcile=reconcile,
    reporter="trainmaster-lifecycle",
    sources=(ChangeSource(TRAINING_RUNTIMES, map_to_self), ChangeSource(TRAIN_JOBS, map_trainjob)),
)
