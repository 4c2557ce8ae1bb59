"""`activeDeadlineSeconds`: how long a job may take, from the TrainJob, else from its runtime.

The clock starts when the TrainJob is created, and anew when it is resumed; it stands still while it is suspended. The
verdict is a pass of its own; the JobSet is removed by the passes that follow, for as long as it is there.
"""

from __future__ import annotations

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.meta import Object
from trainmaster.kit.timeline import Now

REASON = "DeadlineExceeded"
MESSAGE = "TrainJob exceeded its active deadline"


def find_time_left(trainjob: Object, runtime: Object | None, now: Now) -> float | None:
    """Seconds until the job has to be over; None when it has no deadline, or its clock does not run."""
    seconds = _find_seconds(trainjob, runtime)
    if not seconds or trainjob["spec"].get("suspend"):
        return None
    start = trainjob["metadata"]["creationTimestamp"]
    suspended = find_condition(list_conditions(trainjob), "Suspended")
    if suspended is not None:
        if suspended.get("status") == "True":
            # Resumed in the spec, not yet in fact: the new window begins when the resumption is recorded.
            return None
        start = suspended.get("lastTransitionTime") or start
    return now.left(trainjob["metadata"]["uid"], "started", start, float(seconds))


def _find_seconds(trainjob: Object, runtime: Object | None) -> int | None:
    spec = (runtime or {}).get("spec") or {}
    for source in (trainjob["spec"], spec, spec.get("runPolicy") or {}):
        if source.get("activeDeadlineSeconds"):
            return int(source["activeDeadlineSeconds"])
    return None


def is_exceeded(trainjob: Object) -> bool:
    """Whether the stored verdict is ours."""
    failed = find_condition(list_conditions(trainjob), "Failed")
    return failed is not None and failed.get("status") == "True" and failed.get("reason") == REASON
