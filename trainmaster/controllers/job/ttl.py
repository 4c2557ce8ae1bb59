"""spec.ttlSecondsAfterFinished: when to delete a finished Job. Computed from the stored object in every pass.

The delete is conditional on the uid and the revision that the decision is based on, so a longer TTL set in the meantime
takes effect.
"""

from __future__ import annotations

from trainmaster.jobs.models.batch import Job
from trainmaster.kit.timeline import Now


def find_time_left(job: Job, now: Now) -> float | None:
    """Seconds until the Job is deleted, 0 or less if it is due; None if it is running or has no TTL."""
    end, seconds = job.end, job.spec.get("ttlSecondsAfterFinished")
    if end is None or seconds is None:
        return None
    return now.left(job.uid, "finished", str(end["lastTransitionTime"]), float(seconds))
