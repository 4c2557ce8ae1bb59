"""Which rank of its job a Pod is: the path under which its logs are kept, and all that a reader wants to select by.

    <JobSet uid>/<attempt>/<replicated job>-<job index>-<completion index>/<Pod name>

Written into the Pod's directory when the Pod is made, so that whoever removes the directory, however late, knows where
its logs belong. Pods that belong to no training job have no place: nobody keeps their logs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodPlace:
    jobset: str
    """The uid of its JobSet; of the job itself where that has none."""
    attempt: int
    """Counted on over all JobSets of a job (`api.training.restarts`)."""
    job: str
    """The group of ranks: the replicated job (`node`, `launcher`), or the replica type."""
    job_index: int
    index: int
    pod: str

    def __str__(self) -> str:
        return f"{self.jobset}/{self.attempt}/{self.job}-{self.job_index}-{self.index}/{self.pod}"


def parse_place(path: str) -> PodPlace:
    """ValueError when the path is none of ours."""
    jobset, attempt, seat, pod = path.split("/")
    job, job_index, index = seat.rsplit("-", 2)
    return PodPlace(jobset, int(attempt), job, int(job_index), int(index), pod)
