"""An independent computation of when timeouts that began at a stored time end, for comparison with the product.

Before every pass, each stored time that the controllers' view shows for the first time since the process started is
mapped to boot time. From that follows when a TTL, a deadline or a back-off ends, however often the wall clock is set.
Acting earlier is a violation, and so is acting much later once the faults are over (I13).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, JOBS, TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS
from trainmaster.client.view import View
from trainmaster.controllers.job.expected_pods import read_expected_pods
from trainmaster.engine.plan import Plan
from trainmaster.engine.request import Request
from trainmaster.jobs.models.batch import Job
from trainmaster.kit.clock import parse_time

Key = tuple[str, str, str]
"""(uid, what, stored text)."""

ACTIVE = "active"
RETENTION = {"retention": TRAIN_JOBS, **{f"retention-{one.plural}": one.gvr for one in FRAMEWORKS}}
"""The controller of the TTL of each kind."""
V1_JOBS = {framework.singular: framework.gvr for framework in FRAMEWORKS}
"""The controllers of v1 jobs."""
ROUNDING = 0.000_01
SETTLED = 20.0
"""Seconds without faults after which nothing may be late any more; longer than every stall and downtime."""
LATE = 2.5
"""Allowed delay of a pass in seconds, with deadlines rounded up to a second."""


class Timers:
    def __init__(self) -> None:
        self._seen: dict[Key, tuple[float, float]] = {}
        """(start, time when first seen), both in boot time."""
        self.calm_since: float | None = None

    def begin_life(self) -> None:
        """Called when the controllers start: forgets all times."""
        self._seen.clear()

    def look(self, controller: str, view: View, request: Request, wall: datetime, boot: float) -> None:
        for key in _list_times(controller, view, request):
            self._note(key, wall, boot)

    def look_ahead(self, request: Request, view: View, gvr: GVR, plan: Plan, wall: datetime, boot: float) -> None:
        """The start of a v1 job's deadline counts from the pass that stores it."""
        job = view.find(gvr, request.namespace, request.name)
        start = plan.status.patch["status"].get("startTime") if plan.status is not None else None
        if job is not None and start:
            self._note((job["metadata"]["uid"], ACTIVE, start), wall, boot)

    def _note(self, key: Key, wall: datetime, boot: float) -> None:
        if key not in self._seen:
            self._seen[key] = (boot - max(0.0, (wall - parse_time(key[2])).total_seconds()), boot)

    def judge(self, key: Key, seconds: float, boot: float, *, since: float = 0.0) -> str:
        """Why acting now on the end of the timeout is wrong; "" if it is not. `since`: the earliest possible time."""
        seen = self._seen.get(key)
        if seen is None:
            return "without having looked at the time"
        due = seen[0] + seconds
        if boot < due - ROUNDING:
            return f"{due - boot:.3f} s before its time"
        if self.calm_since is not None and boot > max(due, since, seen[1], self.calm_since + SETTLED) + LATE:
            return f"{boot - due:.3f} s after its time"
        return ""


def _list_times(controller: str, view: View, request: Request) -> Iterator[Key]:
    match controller:
        case "trainjob":
            trainjob = view.find(TRAIN_JOBS, request.namespace, request.name)
            if trainjob is not None:
                yield get_start(trainjob)
        case str(name) if name in RETENTION:
            job = view.find(RETENTION[name], request.namespace, request.name)
            end = find_verdict_time(job) if job is not None else None
            if end is not None:
                yield end
        case str(name) if name in V1_JOBS:
            job = view.find(V1_JOBS[name], request.namespace, request.name)
            start = find_active_since(job) if job is not None else None
            if start is not None:
                yield start
        case "jobset":
            jobset = view.find(JOB_SETS, request.namespace, request.name)
            if jobset is None:
                return
            jobs = view.owned(JOBS, jobset["metadata"]["namespace"], jobset["metadata"]["uid"])
            ends = [find_end(jobset, "Completed"), *(find_end(obj, "Failed") for obj in (jobset, *jobs))]
            yield from (end for end in ends if end is not None)
        case "job":
            job = view.find(JOBS, request.namespace, request.name)
            pause = get_pause(job) if job is not None else None
            if pause is not None:
                yield pause[0]


def get_start(trainjob: Object) -> Key:
    """The start of a TrainJob's deadline: its creation, or when it was last resumed."""
    resumed = find_condition(list_conditions(trainjob), "Suspended")
    start = trainjob["metadata"]["creationTimestamp"] if resumed is None else resumed["lastTransitionTime"]
    return trainjob["metadata"]["uid"], "started", start


def find_active_since(job: Object) -> Key | None:
    """The start of a v1 job's deadline."""
    start = (job.get("status") or {}).get("startTime")
    return (job["metadata"]["uid"], ACTIVE, start) if start else None


def find_verdict_time(job: Object) -> Key | None:
    """When a TrainJob or a v1 job ended."""
    ends = (find_end(job, kind) for kind in ("Complete", "Succeeded", "Failed"))
    return next((end for end in ends if end is not None), None)


def find_end(obj: Object, kind: str) -> Key | None:
    condition = find_condition(list_conditions(obj), kind)
    if condition is None or condition.get("status") != "True":
        return None
    return obj["metadata"]["uid"], kind, condition["lastTransitionTime"]


def get_pause(job: Object) -> tuple[Key, int] | None:
    """(start of a Job's back-off, number of failed Pods); None if there is none."""
    books = read_expected_pods(Job(job))
    return ((job["metadata"]["uid"], f"failure {books.failures}", books.at), books.failures) if books.at else None
