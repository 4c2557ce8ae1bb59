"""When a job ended and which runtime it used, to compute its retention."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import ClassVar

from trainmaster.api.admission.trainjobs import find_live_runtime, find_runtime, find_snapshot
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.policy import RetentionPolicy, read_policy
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.training import snapshots
from trainmaster.client.view import View
from trainmaster.engine.request import Request
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob

POLICY = Request(policy.NAMESPACE, policy.NAME)
"""The ConfigMap with the installation's policy."""


def find_retention_runtime(view: View, job: TrainingJob) -> Object | None:
    """The live runtime if it is the one that the job started with, so that a changed TTL applies to finished jobs;
    otherwise the snapshot. None for a kind without runtimes."""
    if not job.runtime:
        return None
    trainjob = job.raw
    live = find_live_runtime(trainjob, view)
    text = find_snapshot(trainjob, view)
    if live is not None and text is not None and snapshots.find_uid(text) == live["metadata"].get("uid"):
        return live
    taken = find_runtime(trainjob, view)
    if taken is None or live is None:
        return taken or live
    return live if taken["metadata"].get("uid") in (None, live["metadata"].get("uid")) else taken


def read_retention(view: View) -> RetentionPolicy:
    return read_policy(view.find(CONFIG_MAPS, *POLICY)).policy


def is_policy(obj: Fields) -> bool:
    one = ObjectModel(obj)
    return (one.namespace, one.name) == POLICY


class FinishedByRuntime:
    """Summary of a view: the finished TrainJobs of each runtime. When a runtime changes, and at startup, only its own
    TrainJobs are examined."""

    gvrs: ClassVar[tuple[GVR, ...]] = (TRAIN_JOBS,)
    counts_at_rest: ClassVar[bool] = True

    def __init__(self) -> None:
        self._runtimes: dict[Request, tuple[str, str]] = {}
        self._finished: dict[tuple[str, str], dict[Request, None]] = {}
        """(namespace or "" for a ClusterTrainingRuntime, name) to the TrainJobs that used the runtime."""

    def list_of(self, runtime: Fields) -> tuple[Request, ...]:
        one = ObjectModel(runtime)
        return tuple(self._finished.get((one.namespace, one.name), ()))

    def put(self, gvr: GVR, obj: Object) -> None:
        trainjob = TrainJob(obj)
        request = Request(trainjob.namespace, trainjob.name)
        runtime = trainjob.runtime_key if _is_kept(trainjob) else None
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


def _is_kept(job: TrainingJob) -> bool:
    """Whether it has finished and is not being deleted."""
    return job.is_finished and not job.is_deleting


def list_finished(view: View, model: type[TrainingJob], namespace: str = "") -> Iterable[TrainingJob]:
    """The finished jobs of a kind that are not being deleted."""
    return filter(_is_kept, map(model, view.list(model.gvr, namespace)))


def list_all_finished(view: View, models: Iterable[type[TrainingJob]], namespace: str = "") -> Iterable[TrainingJob]:
    """The same for several kinds."""
    return chain.from_iterable(list_finished(view, model, namespace) for model in models)
