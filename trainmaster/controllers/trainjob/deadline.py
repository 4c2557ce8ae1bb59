"""`activeDeadlineSeconds`: how long a job may take, from the TrainJob, else from its runtime.

The clock starts when the TrainJob is created, and anew when it is resumed; it stands still while it is suspended. The
verdict is a pass of its own; the JobSet is removed by the passes that follow, for as long as it is there.
"""

from __future__ import annotations

from trainmaster.api.lifecycle.terms import find_deadline
from trainmaster.api.meta import Fields
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.timeline import Now

REASON = "DeadlineExceeded"
MESSAGE = "TrainJob exceeded its active deadline"


def find_time_left(trainjob: TrainJob, runtime: Fields | None, now: Now) -> float | None:
    """Seconds until the job has to be over; None when it has no deadline, or its clock does not run."""
    term = find_deadline(trainjob.raw, runtime)
    if term is None or trainjob.is_suspended:
        return None
    start = trainjob.created_at
    suspended = trainjob.find_condition("Suspended")
    if suspended is not None:
        if suspended.get("status") == "True":
            # Resumed in the spec, not yet in fact: the new window begins when the resumption is recorded.
            return None
        start = suspended.get("lastTransitionTime") or start
    return now.left(trainjob.uid, "started", start, float(term.seconds))


def is_exceeded(trainjob: TrainJob) -> bool:
    """Whether the stored verdict is ours."""
    failed = trainjob.find_condition("Failed")
    return failed is not None and failed.get("status") == "True" and failed.get("reason") == REASON
