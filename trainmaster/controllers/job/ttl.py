"""spec.ttlSecondsAfterFinished: when a finished Job goes. Computed from what is stored, on every look.

The deletion names the uid and the revision that the decision was made from, so a longer TTL set in between wins.
"""

from __future__ import annotations

from trainmaster.jobs.models.batch import Job
from trainmaster.kit.timeline import Now


def find_time_left(job: Job, now: Now) -> float | None:
    """Seconds until the Job may go, 0 or less when it is time; None while it runs or when it may stay."""
    end, seconds = job.end, job.spec.get("ttlSecondsAfterFinished")
    if end is None or seconds is None:
        return None
    return now.left(job.uid, "finished", str(end["lastTransitionTime"]), float(seconds))
