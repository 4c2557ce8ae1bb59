"""spec.ttlSecondsAfterFinished: when a finished Job goes. Computed from what is stored, on every look.

The deletion names the uid and the revision that the decision was made from, so a longer TTL set in between wins.
"""

from __future__ import annotations

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS
from trainmaster.client.writes import Delete
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.kit.timeline import Now


def find_finish_time(job: Object) -> str | None:
    conditions = list_conditions(job)
    for kind in ("Complete", "Failed"):
        condition = find_condition(conditions, kind)
        if condition is not None and condition.get("status") == "True":
            return str(condition["lastTransitionTime"])
    return None


def find_time_left(job: Object, now: Now) -> float | None:
    """Seconds until the Job may go, 0 or less when it is time; None while it runs or when it may stay."""
    finished, seconds = find_finish_time(job), job["spec"].get("ttlSecondsAfterFinished")
    if finished is None or seconds is None:
        return None
    return now.left(job["metadata"]["uid"], "finished", finished, float(seconds))


def expire(job: Object, now: Now) -> Plan:
    left = find_time_left(job, now)
    if left is None:
        return NOTHING
    if left > 0:
        return Plan(requeue_after=left)
    meta = job["metadata"]
    gone = Delete(JOBS, meta["namespace"], meta["name"], meta["uid"], meta["resourceVersion"], propagation="Foreground")
    return Plan((gone,))
