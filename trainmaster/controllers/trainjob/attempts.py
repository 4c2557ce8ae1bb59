"""When the present attempt of a job began, from what is stored: the Jobs of the gang's newest round, else the JobSet.

Asked only for a job that has reported progress, and Jobs are looked at only after a restart.
"""

from __future__ import annotations

from trainmaster.api.labels import RESTART_ATTEMPT
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS
from trainmaster.client.view import View


def find_beginning(view: View, trainjob: Object, jobset: Object | None) -> str:
    """A stored time; "" when it is not known, or nobody needs to know."""
    if jobset is None or "trainerStatus" not in (trainjob.get("status") or {}):
        return ""
    meta = jobset["metadata"]
    restarts = (jobset.get("status") or {}).get("restarts") or 0
    if not restarts:
        return str(meta["creationTimestamp"])
    jobs = view.owned(JOBS, meta["namespace"], meta["uid"])
    # The Jobs of a round come one after the other; a report is stored with a time after that of its own Job.
    times = [
        str(job["metadata"]["creationTimestamp"])
        for job in jobs
        if (job["metadata"].get("labels") or {}).get(RESTART_ATTEMPT) == str(restarts)
    ]
    return min(times, default="")
