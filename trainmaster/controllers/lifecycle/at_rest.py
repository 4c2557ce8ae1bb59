"""Which objects are at rest: finished ones that no controller has anything left to do for, except deleting them when
their TTL expires.

There may be very many of them. The API server packs them, and a start does not pass over them: it reads their outlines,
which have the few fields that indexes and metrics need. Objects with a TTL of their own that is not in `status`
(JobSets, Jobs), and jobs that are not archived yet, are not at rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, TypeAlias

from trainmaster.api.lifecycle.terms import find_ttl
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.client.view import View
from trainmaster.controllers.lifecycle.contract import HistoryLedger
from trainmaster.controllers.lifecycle.finish import find_retention_runtime, read_retention
from trainmaster.engine.controller import Controller
from trainmaster.engine.source import ChangeSource
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import format_time, parse_time

Outline: TypeAlias = tuple[Object, tuple[float, float] | None]
"""The fields to keep besides metadata, and when there is something to do for the object: a Unix time, and how many
seconds it is away at most."""
NOTHING_MORE: Outline = ({}, None)


class RestRules:
    gvrs: ClassVar[tuple[GVR, ...]] = (TRAIN_JOBS, JOB_SETS, JOBS, PODS)

    def __init__(self, view: View, chain: Sequence[Controller], ledger: HistoryLedger | None) -> None:
        """`chain`: the controllers that act on these objects."""
        self._view = view
        self._ledger = ledger
        sources = [source for controller in chain for source in controller.sources]
        self._sources: dict[GVR, list[ChangeSource]] = {
            gvr: [source for source in sources if source.gvr == gvr] for gvr in self.gvrs
        }

    def outline(self, gvr: GVR, obj: Object) -> Outline | None:
        """None if the object is not at rest."""
        if ObjectModel(obj).is_deleting:
            return None
        outline = self._outline_ended(gvr, obj)
        if outline is None or any(any(source.requests(self._view, obj)) for source in self._sources[gvr]):
            return None
        return outline

    def _outline_ended(self, gvr: GVR, obj: Object) -> Outline | None:
        if gvr == TRAIN_JOBS:
            return self._outline_trainjob(TrainJob(obj))
        if gvr == PODS:
            return NOTHING_MORE if Pod(obj).phase in ("Succeeded", "Failed") else None
        model = JobSet(obj) if gvr == JOB_SETS else Job(obj)
        return NOTHING_MORE if model.is_finished and "ttlSecondsAfterFinished" not in model.spec else None

    def _outline_trainjob(self, job: TrainJob) -> Outline | None:
        end = job.end
        if end is None or not (self._ledger is None or self._ledger.is_archived(job.uid)):
            return None
        term = find_ttl(job.raw, find_retention_runtime(self._view, job), read_retention(self._view))
        due = None if term is None else parse_time(end[1]) + timedelta(seconds=term.seconds)
        if read_text(job.retention, "deleteAt") != ("" if due is None else format_time(due)):
            return None  # the retention controller has not seen it yet
        condition = {"type": end[0], "status": "True", "lastTransitionTime": end[1]}
        more = {"spec": {"runtimeRef": job.runtime}, "status": {"conditions": [condition]}}
        return more, None if term is None or due is None else (due.timestamp(), term.seconds)
