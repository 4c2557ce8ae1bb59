"""Metrics of TrainJobs: their number by state, namespace and runtime, how late they are deleted, and upstream's
counters.

Implemented as a summary of the view: a change updates one dictionary entry, and a scrape reads numbers that are already
counted. Names that begin with `kubeflow_trainer_` are those of upstream's documentation, with its labels. As upstream,
counters start at 0 with the process; objects that exist at startup are included only in the gauges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from trainmaster.api.lifecycle.terms import find_ttl
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_text
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.client.view import SummaryView, View
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
    UPSTREAM_CREATED,
    UPSTREAM_FINISHED,
    UPSTREAM_LIFETIME,
)
from trainmaster.engine.apply import Apply
from trainmaster.jobs.kinds import read_training_job
from trainmaster.jobs.models.training import COMPLETE, FAILED, RUNNING, SUSPENDED
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit import failpoints
from trainmaster.kit.clock import Clock, parse_time
from trainmaster.kit.metrics import Metrics

PENDING, TERMINATING = "Pending", "Terminating"
_GROUP = TRAIN_JOBS.group
_TTLS = {controller.name for controller in retention.CONTROLLERS}
_REASONS = {**dict.fromkeys(sorted(_TTLS), "ttl"), limits.CONTROLLER.name: "history_limit"}


def find_state(trainjob: TrainJob) -> str:
    if trainjob.is_deleting:
        return TERMINATING
    end = trainjob.end
    if end is not None:
        return end[0]
    if trainjob.is_true(SUSPENDED):
        return SUSPENDED
    return RUNNING if trainjob.is_active else PENDING


def find_runtime_ref(trainjob: TrainJob) -> str:
    """In upstream's format: api group/kind/namespace/name, without the namespace for a ClusterTrainingRuntime."""
    reference = trainjob.runtime
    kind = reference.get("kind", "ClusterTrainingRuntime")
    return "/".join((reference.get("apiGroup", _GROUP), kind, *trainjob.runtime_key))


class Census:
    """Summary of a view."""

    gvrs: ClassVar[tuple[GVR, ...]] = (TRAIN_JOBS,)

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, tuple[str, str, str]]] = {}
        """Name to (uid, the labels it is counted under)."""
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._due: dict[tuple[str, str], str] = {}
        self.counters: Counters | None = None
        """None while the existing objects are read, because those are not counted as new."""

    def put(self, gvr: GVR, obj: Object) -> None:
        trainjob = TrainJob(obj)
        name = (trainjob.namespace, trainjob.name)
        key = (find_state(trainjob), trainjob.namespace, find_runtime_ref(trainjob))
        uid, before = self._seen.get(name, ("", None))
        if self.counters is not None:
            self.counters.notice(trainjob, key, before[0] if before is not None and uid == trainjob.uid else None)
        moment = read_text(trainjob.retention, "deleteAt")
        if moment:
            self._due[name] = moment
        else:
            self._due.pop(name, None)
        if before != key:
            self._forget(before)
            self._counts[key] += 1
        self._seen[name] = (trainjob.uid, key)

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        self._due.pop((namespace, name), None)
        found = self._seen.pop((namespace, name), None)
        self._forget(found[1] if found is not None else None)

    def count(self) -> Mapping[tuple[str, ...], float]:
        return {key: float(count) for key, count in self._counts.items()}

    def count_finished(self) -> Mapping[tuple[str, ...], float]:
        found: Counter[tuple[str, ...]] = Counter()
        for (state, namespace, _), count in self._counts.items():
            if state in (COMPLETE, FAILED):
                found[(namespace,)] += count
        return {key: float(count) for key, count in found.items()}

    def count_overdue(self, now: datetime) -> float:
        return float(sum(parse_time(moment) < now for moment in self._due.values()))

    def _forget(self, key: tuple[str, str, str] | None) -> None:
        if key is not None:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


class Counters:
    def __init__(self, metrics: Metrics) -> None:
        self._created = metrics.counter(UPSTREAM_CREATED)
        self._finished = metrics.counter(UPSTREAM_FINISHED)
        self._lifetime = metrics.histogram(UPSTREAM_LIFETIME)

    def notice(self, trainjob: TrainJob, key: tuple[str, str, str], before: str | None) -> None:
        state, namespace, runtime = key
        if before is None and state != TERMINATING:
            self._created.add(namespace, runtime)
        if state not in (COMPLETE, FAILED) or before in (COMPLETE, FAILED):
            return
        why = read_text(trainjob.find_condition(state), "reason") or "none"
        result, reason = ("succeeded", "none") if state == COMPLETE else ("failed", why)
        self._finished.add(result, reason, runtime)
        created, end = trainjob.created_at, trainjob.end
        if end is not None:
            self._lifetime.observe((parse_time(end[1]) - parse_time(created)).total_seconds(), result, runtime)


class Deletions:
    """Observes the deletion of finished jobs: how late each one is, and which are refused and retried."""

    def __init__(self, metrics: Metrics, view: View, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._lateness = metrics.histogram(DELETION_LATENESS)
        self._deleted = metrics.counter(DELETIONS)
        self._retries = metrics.counter(CLEANUP_RETRIES)
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


def declare(metrics: Metrics, view: SummaryView, clock: Clock) -> Census:
    """Starts counting."""
    census = view.summary(Census)
    census.counters = Counters(metrics)
    metrics.gauge(EXISTING, census.count)
    metrics.gauge(FINISHED, census.count_finished)
    metrics.gauge(OVERDUE, lambda: census.count_overdue(clock.now()))
    return census
