"""Which jobs are in a queue of Kueue. Separate from `waits`, because every list asks."""

from __future__ import annotations

from trainmaster.api.labels import QUEUE_NAME
from trainmaster.jobs.models.training import TrainingJob

QUEUED = "Queued"
"""The reason of a job that waits in one, as of a v1 job in a queue of Volcano."""


def get_queue(job: TrainingJob) -> str:
    """The LocalQueue that its author chose; "" if there is none."""
    return job.labels.get(QUEUE_NAME, "")


def is_queued(job: TrainingJob) -> bool:
    """Whether Kueue may be what keeps it suspended."""
    return bool(get_queue(job)) and job.is_suspended and not job.is_finished and not job.is_deleting
