"""Which rank of its job a Pod is. This determines the path of its kept logs, and readers select logs by it.

    <JobSet uid>/<attempt>/<replicated job>-<job index>-<completion index>/<Pod name>

The path is written into the Pod's directory when the Pod is created, so that its logs can still be kept when the
directory is removed much later. The logs of Pods that belong to no training job are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodPlace:
    jobset: str
    """The uid of its JobSet; of the job itself if it has none."""
    attempt: int
    """Numbered across all JobSets of a job (`api.training.restarts`)."""
    job: str
    """The group of ranks: the replicated job (`node`, `launcher`), or the replica type."""
    job_index: int
    index: int
    pod: str

    def __str__(self) -> str:
        return f"{self.jobset}/{self.attempt}/{self.job}-{self.job_index}-{self.index}/{self.pod}"


def parse_place(path: str) -> PodPlace:
    """Raises ValueError if the path does not have this format."""
    jobset, attempt, seat, pod = path.split("/")
    job, job_index, index = seat.rsplit("-", 2)
    return PodPlace(jobset, int(attempt), job, int(job_index), int(index), pod)
