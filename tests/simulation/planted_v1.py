"""Bugs of v1 jobs to plant into the real code (see `planted.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.planted import (
    Planted,
    forget_the_clock,
    name_pods_at_random,
    rewrite,
    see_no_lag,
    show_changed,
    trust_the_wall_clock,
)
from tests.simulation.planted_retention import give_up
from tests.simulation.timing import RETENTION
from tests.simulation.v1_checks import V1_KINDS
from tests.simulation.v1_plans import FRAMEWORKS
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS
from trainmaster.api.v1jobs.frameworks import JOB_NAME
from trainmaster.client.view import View
from trainmaster.client.writes import Delete, Patch, Write
from trainmaster.controllers.v1jobs import passes
from trainmaster.controllers.v1jobs.claims import V1Children
from trainmaster.engine.manager import Manager
from trainmaster.engine.plan import Plan, ReconcileInSteps
from trainmaster.kit.steps import Steps
from trainmaster.kit.timeline import Now

_JOBS = tuple(framework.singular for framework in FRAMEWORKS)
_RETENTION = tuple(name for name in RETENTION if name != "retention")


def _leave_out(field: str) -> Callable[[Write], Write]:
    """Never writes a field of the status."""

    def change(write: Write) -> Write:
        if not isinstance(write, Patch) or field not in (write.patch.get("status") or {}):
            return write
        status = {key: value for key, value in write.patch["status"].items() if key != field}
        return replace(write, patch={**write.patch, "status": status})

    return change


def _delete_before_counting(inner: ReconcileInSteps) -> ReconcileInSteps:
    """Deletes a failed Pod in the pass that counts it, so that a crash in between loses the restart."""

    def reconcile(view: View, request: Any, now: Now, refusals: Sequence[Any]) -> Steps[Plan]:
        plan = yield from inner(view, request, now, refusals)
        status = plan.status.patch.get("status") or {} if plan.status is not None else {}
        known = {write.uid for write in plan.writes if isinstance(write, Delete)}
        early = [
            Delete(PODS, request.namespace, pod["metadata"]["name"], pod["metadata"]["uid"])
            for pod in view.list(PODS, request.namespace)
            if pod["metadata"]["uid"] in (status.get("restartingPods") or ()) and pod["metadata"]["uid"] not in known
        ]
        return replace(plan, writes=(*plan.writes, *early))

    return reconcile


def _change_policy(gvr: GVR, obj: Object, field: str, value: Any) -> Object:
    if gvr not in V1_KINDS or field not in (obj["spec"].get("runPolicy") or {}):
        return obj
    return {**obj, "spec": {**obj["spec"], "runPolicy": {**obj["spec"]["runPolicy"], field: value}}}


def _clean_up_everything(gvr: GVR, obj: Object) -> Object:
    return _change_policy(gvr, obj, "cleanPodPolicy", "All")


def _claim_by_label(original: Any) -> Any:
    """Takes every Pod with the name of the job for its own."""

    def claim(self: Any, gvr: GVR) -> Iterator[Object]:
        yield from self._view.list(gvr, self._job.namespace, {JOB_NAME: self._job.name})

    return claim


def _forget_the_limit(gvr: GVR, obj: Object) -> Object:
    return _change_policy(gvr, obj, "backoffLimit", None)


def _count_nothing(original: Any) -> Any:
    return lambda census: 0


V1_BUGS: tuple[Planted, ...] = (
    Planted("gives up the TTL of a v1 job after a conflict", ("I13",), _RETENTION, give_up, seeds=100, first=111),
    Planted("forgets when a v1 job is due", ("I13",), _RETENTION, forget_the_clock, seeds=100, first=115),
    Planted("deletes v1 jobs by the wall clock", ("I13",), _RETENTION, trust_the_wall_clock, seeds=500, first=349),
    Planted(
        "takes deadlines of v1 jobs by the wall clock", ("I13",), _JOBS, trust_the_wall_clock, seeds=300, first=286
    ),
    Planted(
        "makes two Pods of one index of a v1 job",
        ("I6", "I9"),
        _JOBS,
        rewrite(name_pods_at_random()),
        ((Manager, "_is_behind", see_no_lag),),
        seeds=100,
        first=24,
    ),
    Planted(
        "does not count a restart of a v1 job", ("I8",), _JOBS, rewrite(_leave_out("restarts")), seeds=100, first=6
    ),
    Planted("deletes a failed Pod before it is counted", ("I8",), _JOBS, _delete_before_counting, seeds=100, first=6),
    Planted(
        "restarts a v1 job more often than allowed",
        ("I8",),
        _JOBS,
        show_changed(_forget_the_limit),
        seeds=100,
        first=20,
    ),
    Planted(
        "does not count restarts of containers",
        ("I8",),
        patches=((passes, "count_restarts_in_place", _count_nothing),),
        seeds=200,
        first=248,
    ),
    Planted("cleans up Pods that have ended", ("I8",), _JOBS, show_changed(_clean_up_everything), seeds=100, first=10),
    Planted(
        "cleans up Pods of another owner",
        ("I7",),
        patches=((V1Children, "_claim", _claim_by_label),),
        seeds=200,
        first=17,
    ),
    Planted("stores no completionTime", ("I8",), _JOBS, rewrite(_leave_out("completionTime")), seeds=60, first=3),
)
