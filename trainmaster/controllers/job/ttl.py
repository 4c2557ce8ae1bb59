"""spec.ttlSecondsAfterFinished: when a finished Job goes. Computed from what is stored, on every look.

The deletion names the uid and the revision that the decision was made from, so a longer TTL set in between wins.
"""

from __future__ import annotations

from trainmaster.api.resources import JOBS
from trainmaster.client.writes import Delete
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.jobs.models.batch import Job
from trainmaster.kit.timeline import Now


def find_time_left(job: Job, now: Now) -> float | None:
    """Seconds until the Job may go, 0 or less when it is time; None while it runs or when it may stay."""
    end, seconds = job.end, job.spec.get("ttlSecondsAfterFinished")
    if end is None or seconds is None:
        return None
    return now.left(job.uid, "finished", str(end["lastTransitionTime"]), float(seconds))


def expire(job: Job, now: Now) -> Plan:
    left = find_time_left(job, now)
    if left is None:
        return NOTHING
    if left > 0:
        return Plan(requeue_after=left)
    gone = Delete(JOBS, job.namespace, job.name, job.uid, job.resource_version, propagation="Foreground")
    return Plan((gone,))
