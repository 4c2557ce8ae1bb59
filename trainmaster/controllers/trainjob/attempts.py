"""When the current attempt of a job started, from stored data: its Jobs after a restart, otherwise the JobSet.

Called only for jobs that have reported progress; Jobs are examined only after a restart.
"""

from __future__ import annotations

from trainmaster.api.resources import JOBS
from trainmaster.client.view import View
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob


def find_beginning(view: View, trainjob: TrainJob, jobset: JobSet | None) -> str:
    """A stored time; "" if it is unknown or not needed."""
    if jobset is None or "trainerStatus" not in trainjob.status:
        return ""
    restarts = jobset.restarts
    if not restarts:
        return jobset.created_at
    jobs = map(Job, view.owned(JOBS, jobset.namespace, jobset.uid))
    # The Jobs of an attempt are created one after the other; reports of a Job are always later than its own creation.
    return min((job.created_at for job in jobs if job.attempt == restarts), default="")
