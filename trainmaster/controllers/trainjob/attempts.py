"""When the present attempt of a job began, from what is stored: the Jobs of the gang's newest round, else the JobSet.

Asked only for a job that has reported progress, and Jobs are looked at only after a restart.
"""

from __future__ import annotations

from trainmaster.api.resources import JOBS
from trainmaster.client.view import View
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob


def find_beginning(view: View, trainjob: TrainJob, jobset: JobSet | None) -> str:
    """A stored time; "" when it is not known, or nobody needs to know."""
    if jobset is None or "trainerStatus" not in trainjob.status:
        return ""
    restarts = jobset.restarts
    if not restarts:
        return jobset.created_at
    jobs = map(Job, view.owned(JOBS, jobset.namespace, jobset.uid))
    # The Jobs of a round come one after the other; a report is stored with a time after that of its own Job.
    return min((job.created_at for job in jobs if job.attempt == restarts), default="")
