"""`activeDeadlineSeconds`: how long a job may take, from the TrainJob, otherwise from its runtime.

The time starts when the TrainJob is created, restarts when it is resumed, and does not run while it is suspended. One
pass stores the verdict; the following ones delete the JobSet for as long as it exists.
"""

from __future__ import annotations

from trainmaster.api.lifecycle.terms import find_deadline
from trainmaster.api.meta import Fields
from trainmaster.controllers.trainjob.status import has_failed_for
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.timeline import Now

REASON = "DeadlineExceeded"
MESSAGE = "TrainJob exceeded its active deadline"


def find_time_left(trainjob: TrainJob, runtime: Fields | None, now: Now) -> float | None:
    """Seconds until the job has to finish; None if it has no deadline or the time is not running."""
    term = find_deadline(trainjob.raw, runtime)
    if term is None or trainjob.is_suspended:
        return None
    start = trainjob.created_at
    suspended = trainjob.find_condition("Suspended")
    if suspended is not None:
        if suspended.get("status") == "True":
            # The job was resumed, but this is not recorded in its status yet; the time starts when it is.
            return None
        start = suspended.get("lastTransitionTime") or start
    return now.left(trainjob.uid, "started", start, float(term.seconds))


def is_exceeded(trainjob: TrainJob) -> bool:
    """Whether this controller failed the job because of its deadline."""
    return has_failed_for(trainjob, REASON)
