"""Metrics of training jobs: their number by state, namespace and kind or runtime, how late they are deleted, and
upstream's counters.

Implemented as a summary of the view: a change updates one dictionary entry, and a scrape reads numbers that are already
counted. Names that begin with `kubeflow_trainer_` or `training_operator_` are upstream's, with its labels. As with
Kubeflow Trainer, counters start at 0 with the process; objects that exist at startup are included only in the gauges.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from trainmaster.api.lifecycle.terms import find_ttl
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS
from trainmaster.client.view import View
from trainmaster.client.writes import Applied, Delete, Write
from trainmaster.controllers.lifecycle import limits, retention
from trainmaster.controllers.lifecycle.finish import find_retention_runtime, read_retention
from trainmaster.controllers.metrics import (
    CLEANUP_RETRIES,
    DELETION_LATENESS,
    DELETIONS,
    EXISTING,
    FINISHED,
    OVERDUE,
    STALLED,
    STALLS,
    UPSTREAM_CREATED,
    UPSTREAM_FINISHED,
    UPSTREAM_LIFETIME,
    V1_CREATED,
    V1_DELETED,
    V1_EXISTING,
    V1_FAILED,
    V1_FINISHED,
    V1_OVERDUE,
    V1_RESTARTED,
    V1_SUCCESSFUL,
)
from trainmaster.engine.apply import Apply
from trainmaster.jobs.kinds import TRAINING_KINDS, read_training_job
from trainmaster.jobs.models.training import COMPLETE, FAILED, RUNNING, SUSPENDED, TrainingJob
from trainmaster.jobs.models.training import STALLED as STALLED_REASON
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit import failpoints
from trainmaster.kit.clock import Clock, format_time, parse_time
from trainmaster.kit.metrics import Metrics

PENDING, TERMINATING = "Pending", "Terminating"
_GROUP = TRAIN_JOBS.group
_SLICE = 64
_MODELS = {model.gvr: model for model in TRAINING_KINDS.values()}
_FRAMEWORKS = {framework.gvr: framework for framework in FRAMEWORKS}
_TTLS = {controller.name for controller in retention.CONTROLLERS}
_REASONS = {**dict.fromkeys(sorted(_TTLS), "ttl"), limits.CONTROLLER.name: "history_limit"}


def find_state(job: TrainingJob) -> str:
    if job.is_deleting:
        return TERMINATING
    end = job.end
    if end is not None:
        return end[0]
    if job.is_true(SUSPENDED):
        return SUSPENDED
    return RUNNING if job.is_active else PENDING


def find_runtime_ref(trainjob: TrainJob) -> str:
    """In upstream's format: api group/kind/namespace/name, without the namespace for a ClusterTrainingRuntime."""
    reference = trainjob.runtime
    kind = reference.get("kind", "ClusterTrainingRuntime")
    return "/".join((reference.get("apiGroup", _GROUP), kind, *trainjob.runtime_key))


class CountedJob(NamedTuple):
    """What an existing job is counted under."""

    gvr: GVR
    state: str
    namespace: str
    runtime: str
    """The reference of a TrainJob to its runtime; "" for other kinds."""

    @property
    def is_finished(self) -> bool:
        return self.state in (COMPLETE, FAILED)


def _classify(gvr: GVR, job: TrainingJob) -> CountedJob:
    runtime = find_runtime_ref(job) if isinstance(job, TrainJob) else ""
    return CountedJob(gvr, find_state(job), job.namespace, runtime)


class SeenJob(NamedTuple):
    uid: str
    restarts: int
    """Replaced Pods of a v1 job; 0 for a TrainJob, whose JobSet counts them."""
    counted: CountedJob
    due: str
    """When it will be deleted; "" if that is not known."""
    stalled: str = ""
    """Since when its steps stand still; "" if they do not."""


class Census:
    """Summary of a view."""

    gvrs: ClassVar[tuple[GVR, ...]] = tuple(_MODELS)
    counts_at_rest: ClassVar[bool] = False
    """They are counted after the start (`count_at_rest`)."""

    def __init__(self) -> None:
        self._seen: dict[tuple[GVR, str, str], SeenJob] = {}
        self._counts: Counter[CountedJob] = Counter()
        self._reached: dict[GVR, str] = {}
        """The last job at rest that was counted. Single ones are not remembered, because there may be very many."""
        self.counters: Counters | None = None
        """None while the existing objects are read, because those are not counted as new."""

    def put(self, gvr: GVR, obj: Object) -> None:
        job = _MODELS[gvr](obj)
        place = (gvr, job.namespace, job.name)
        counted = _classify(gvr, job)
        due = read_text(job.retention, "deleteAt")
        stalled = read_text(job.stalled, "since")
        new, old = SeenJob(job.uid, job.read_attempts(None)[1], counted, due, stalled), self._seen.get(place)
        known = old if old is not None and old.uid == new.uid else None
        if self.counters is not None:
            self.counters.notice(job, new, known)
        if old is None or old.counted != counted:
            self._forget(old)
            self._counts[counted] += 1
        self._seen[place] = new

    async def count_at_rest(self, outlines: Callable[[GVR], Iterable[Object]]) -> None:
        """Counts the jobs at rest, in slices. `outlines`: those of a kind, in the order of "namespace/name"."""
        for gvr in self.gvrs:
            for number, outline in enumerate(outlines(gvr), 1):
                job = _MODELS[gvr](outline)
                self._reached[gvr] = f"{job.namespace}/{job.name}"
                if (gvr, job.namespace, job.name) not in self._seen:
                    self._counts[_classify(gvr, job)] += 1
                if number % _SLICE == 0:
                    await asyncio.sleep(0)

    def end_rest(self, gvr: GVR, outline: Object) -> None:
        job = _MODELS[gvr](outline)
        place = (gvr, job.namespace, job.name)
        if place in self._seen:
            return  # it has come to rest in this process
        counted = _classify(gvr, job)
        self._seen[place] = SeenJob(job.uid, 0, counted, "")
        if f"{job.namespace}/{job.name}" > self._reached.get(gvr, ""):
            self._counts[counted] += 1

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        self._forget(self._seen.pop((gvr, namespace, name), None))

    def _forget(self, seen: SeenJob | None) -> None:
        if seen is not None:
            self._counts[seen.counted] -= 1
            if not self._counts[seen.counted]:
                del self._counts[seen.counted]

    def _count_overdue(self, now: datetime) -> Counter[GVR]:
        moment = format_time(now)
        return Counter(seen.counted.gvr for seen in self._seen.values() if seen.due and seen.due < moment)

    # TrainJobs

    def count(self) -> Mapping[tuple[str, ...], float]:
        return _sum_up((one[1:], number) for one, number in self._counts.items() if one.gvr == TRAIN_JOBS)

    def count_finished(self) -> Mapping[tuple[str, ...], float]:
        counts = self._counts.items()
        return _sum_up(
            ((one.namespace,), number) for one, number in counts if one.gvr == TRAIN_JOBS and one.is_finished
        )

    def count_overdue(self, now: datetime) -> float:
        return float(self._count_overdue(now)[TRAIN_JOBS])

    def count_stalled(self) -> Mapping[tuple[str, ...], float]:
        """0 where jobs exist and none of them stalls, so that there is a series to ask for."""
        mine = (seen for (gvr, _, _), seen in self._seen.items() if gvr == TRAIN_JOBS)
        return _sum_up(((seen.counted.namespace,), int(bool(seen.stalled))) for seen in mine)

    # Jobs of the v1 kinds

    def count_v1(self) -> Mapping[tuple[str, ...], float]:
        return _sum_up(
            ((_FRAMEWORKS[one.gvr].kind, one.state, one.namespace), number)
            for one, number in self._counts.items()
            if one.gvr in _FRAMEWORKS
        )

    def count_v1_finished(self) -> Mapping[tuple[str, ...], float]:
        return _sum_up(
            ((_FRAMEWORKS[one.gvr].kind, one.namespace), number)
            for one, number in self._counts.items()
            if one.gvr in _FRAMEWORKS and one.is_finished
        )

    def count_v1_overdue(self, now: datetime) -> Mapping[tuple[str, ...], float]:
        """All kinds, also those without such jobs."""
        counts = self._count_overdue(now)
        return {(framework.kind,): float(counts[framework.gvr]) for framework in FRAMEWORKS}


def _sum_up(numbers: Iterable[tuple[tuple[str, ...], int]]) -> Mapping[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for labels, number in numbers:
        found[labels] = found.get(labels, 0.0) + number
    return found


class Counters:
    def __init__(self, metrics: Metrics) -> None:
        self._created = metrics.counter(UPSTREAM_CREATED)
        self._finished = metrics.counter(UPSTREAM_FINISHED)
        self._lifetime = metrics.histogram(UPSTREAM_LIFETIME)
        self._stalls = metrics.counter(STALLS)
        self._v1_created = metrics.counter(V1_CREATED)
        self._v1_ended = {COMPLETE: metrics.counter(V1_SUCCESSFUL), FAILED: metrics.counter(V1_FAILED)}
        self._v1_restarted = metrics.counter(V1_RESTARTED)

    def notice(self, job: TrainingJob, new: SeenJob, old: SeenJob | None) -> None:
        """`old`: None for a job that was not seen before."""
        is_new = old is None and new.counted.state != TERMINATING
        has_ended = new.counted.is_finished and not (old is not None and old.counted.is_finished)
        framework = _FRAMEWORKS.get(new.counted.gvr)
        if framework is None:
            self._notice_trainjob(job, new.counted, is_new=is_new, has_ended=has_ended)
            known = "" if old is None else old.stalled
            # A job whose policy is to fail has no other trace of its stall.
            has_failed = has_ended and not known and read_text(job.end_condition, "reason") == STALLED_REASON
            if has_failed or new.stalled not in ("", known):
                self._stalls.add(new.counted.namespace)
            return
        labels = (new.counted.namespace, framework.name)
        if is_new:
            self._v1_created.add(*labels)
        if has_ended:
            self._v1_ended[new.counted.state].add(*labels)
        before = 0 if old is None else old.restarts
        if new.restarts > before:
            self._v1_restarted.add(*labels, amount=new.restarts - before)

    def _notice_trainjob(self, job: TrainingJob, counted: CountedJob, *, is_new: bool, has_ended: bool) -> None:
        if is_new:
            self._created.add(counted.namespace, counted.runtime)
        end = job.end
        if not has_ended or end is None:
            return
        why = read_text(job.end_condition, "reason") or "none"
        result, reason = ("succeeded", "none") if counted.state == COMPLETE else ("failed", why)
        self._finished.add(result, reason, counted.runtime)
        seconds = (parse_time(end[1]) - parse_time(job.created_at)).total_seconds()
        self._lifetime.observe(seconds, result, counted.runtime)


class Deletions:
    """Observes the deletion of finished jobs: how late each one is, and which are refused and retried."""

    def __init__(self, metrics: Metrics, view: View, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._lateness = metrics.histogram(DELETION_LATENESS)
        self._deleted = metrics.counter(DELETIONS)
        self._retries = metrics.counter(CLEANUP_RETRIES)
        self._v1_deleted = metrics.counter(V1_DELETED)
        for name, reason in _REASONS.items():
            self._deleted.add(reason, amount=0)
            self._retries.add(name, amount=0)

    def watch(self, apply: Apply) -> Apply:
        async def deleting(writes: Sequence[Write], field_manager: str) -> Applied:
            deletes = [write for write in writes if isinstance(write, Delete)] if field_manager in _REASONS else ()
            if not deletes:
                return await apply(writes, field_manager)
            late = [self._measure(write) for write in deletes] if field_manager in _TTLS else ()
            failpoints.hit("retention.before_delete")
            applied = await apply(writes, field_manager)
            failpoints.hit("retention.after_delete")
            if applied.refusal is not None:
                self._retries.add(field_manager)
                return applied
            self._deleted.add(_REASONS[field_manager], amount=len(deletes))
            for write in deletes:
                if write.gvr in _FRAMEWORKS:
                    self._v1_deleted.add(write.namespace, _FRAMEWORKS[write.gvr].name)
            for seconds in late:
                if seconds is not None:
                    self._lateness.observe(seconds)
            return applied

        return deleting

    def _measure(self, write: Delete) -> float | None:
        found = self._view.find(write.gvr, write.namespace, write.name)
        job = None if found is None else read_training_job(found)
        if job is None or job.end is None:
            return None
        term = find_ttl(job.raw, find_retention_runtime(self._view, job), read_retention(self._view))
        if term is None:
            return None
        due = parse_time(job.end[1]) + timedelta(seconds=term.seconds)
        return max(0.0, (self._clock.now() - due).total_seconds())


def declare(metrics: Metrics, census: Census, clock: Clock) -> None:
    """Starts counting. `census` contains the existing jobs."""
    census.counters = Counters(metrics)
    metrics.gauge(EXISTING, census.count)
    metrics.gauge(FINISHED, census.count_finished)
    metrics.gauge(OVERDUE, lambda: census.count_overdue(clock.now()))
    metrics.gauge(STALLED, census.count_stalled)
    metrics.gauge(V1_EXISTING, census.count_v1)
    metrics.gauge(V1_FINISHED, census.count_v1_finished)
    metrics.gauge(V1_OVERDUE, lambda: census.count_v1_overdue(clock.now()))
