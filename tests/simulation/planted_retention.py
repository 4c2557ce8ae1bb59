"""Bugs of retention to plant: losing a TrainJob, deleting one too early, or deleting the wrong one.

The first is the original bug report: a cleanup that gets a conflict and is never retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tests.simulation.patching import in_one_step
from tests.simulation.planted import (
    Planted,
    forget_the_clock,
    hurry,
    show_changed,
    trust_the_wall_clock,
)
from trainmaster.api.lifecycle import policy
from trainmaster.api.lifecycle.terms import find_ttl
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.client.view import View
from trainmaster.client.writes import Delete
from trainmaster.controllers.lifecycle import retention
from trainmaster.controllers.lifecycle.contract import LifecycleContext
from trainmaster.controllers.lifecycle.finish import find_retention_runtime, read_retention
from trainmaster.engine.plan import Plan, ReconcileInSteps
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.steps import Steps
from trainmaster.kit.timeline import Now


def give_up(inner: ReconcileInSteps) -> ReconcileInSteps:
    """Treats a request as done, whatever the response."""
    tried: set[str] = set()

    def reconcile(view: View, request: Any, now: Now, refusals: Sequence[Any]) -> Steps[Plan]:
        plan = yield from inner(view, request, now, refusals)
        deletes = [write for write in plan.writes if isinstance(write, Delete)]
        fresh = tuple(write for write in deletes if write.uid not in tried)
        tried.update(write.uid for write in deletes)
        return replace(plan, writes=fresh)

    return reconcile


def _delete_by_name(original: Any) -> Any:
    """Deletes by name, without uid and version."""

    def delete(self: ObjectRegistry, call: Any, kind: Any, namespace: str, name: str, options: Any = None) -> Any:
        if kind.kind == "TrainJob" and options is not None:
            options = replace(options, uid="", resource_version="")
        return original(self, call, kind, namespace, name, options)

    return delete


def _count_from_creation(gvr: GVR, obj: Object) -> Object:
    status = obj.get("status") or {}
    if gvr != TRAIN_JOBS or not status.get("conditions"):
        return obj
    made = obj["metadata"]["creationTimestamp"]
    conditions = [{**entry, "lastTransitionTime": made} for entry in status["conditions"]]
    return {**obj, "status": {**status, "conditions": conditions}}


def _skip_the_record(inner: ReconcileInSteps) -> ReconcileInSteps:
    """As if there were no history."""
    return in_one_step(partial(retention.reconcile, LifecycleContext()))


def _look_at_the_clock_late(inner: ReconcileInSteps) -> ReconcileInSteps:
    """Records the end of a job only when a TTL needs it. This simulation found it."""

    def reconcile(view: View, request: Any, now: Now, refusals: Sequence[Any]) -> Steps[Plan]:
        trainjob = view.find(TRAIN_JOBS, request.namespace, request.name)
        if (
            trainjob is None
            or find_ttl(trainjob, find_retention_runtime(view, TrainJob(trainjob)), read_retention(view)) is not None
        ):
            return inner(view, request, now, refusals)
        return inner(view, request, Now(now.wall), refusals)

    return reconcile


def _keep_one_too_few(gvr: GVR, obj: Object) -> Object:
    if gvr != CONFIG_MAPS or obj["metadata"]["name"] != policy.NAME:
        return obj
    fewer = {key: "0" if key.endswith("HistoryLimit") else value for key, value in (obj.get("data") or {}).items()}
    return {**obj, "data": fewer}


GIVES_UP = Planted("gives up after a conflict", ("I13",), "retention", give_up, first=18)
DELETES_BY_NAME = Planted(
    "deletes a TrainJob that was made anew",
    ("I7", "I13"),
    patches=((ObjectRegistry, "delete", _delete_by_name),),
    seeds=150,
    first=702,
)
LOOKS_LATE = Planted("looks at the clock late", ("I13",), "retention", _look_at_the_clock_late)
"""In `tests/sim/test_scenarios.py`: random seeds need about a thousand runs to find it."""
RETENTION_BUGS: tuple[Planted, ...] = (
    GIVES_UP,
    DELETES_BY_NAME,
    Planted("counts a TTL from the creation", ("I13",), "retention", show_changed(_count_from_creation)),
    Planted("deletes before history has it", ("I18",), "retention", _skip_the_record),
    Planted("deletes TrainJobs by the wall clock", ("I13",), "retention", trust_the_wall_clock, seeds=200, first=246),
    Planted("deletes a second early", ("I13",), "retention", hurry(1.0)),
    Planted("forgets when a TrainJob is due", ("I13",), "retention", forget_the_clock),
    Planted("keeps one too few", ("I7", "I13"), "history-limits", show_changed(_keep_one_too_few), seeds=120),
)
