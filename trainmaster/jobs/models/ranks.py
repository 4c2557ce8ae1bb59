"""Which rank of its job a Pod is. This determines the path of its kept logs, and readers select logs by it.

    <JobSet uid>/<attempt>/<replicated job>-<job index>-<completion index>/<Pod name>[~<Pod uid>]

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
    """Numbered across all JobSets of a job (`api.training.restarts`). In a v1 job, how many Pods were replaced before
    this one was created."""
    job: str
    """The group of ranks: the replicated job (`node`, `launcher`), or the replica type."""
    job_index: int
    index: int
    pod: str
    uid: str = ""
    """The Pod's, if later Pods of the rank have the same name; otherwise empty."""

    @property
    def id(self) -> str:
        """Identifies the Pod within its namespace, whichever Pods come after it."""
        return f"{self.pod}~{self.uid}" if self.uid else self.pod

    @property
    def seat(self) -> tuple[str, int, int]:
        """The rank, whichever Pod has it."""
        return self.job, self.job_index, self.index

    @property
    def round(self) -> int:
        """The attempt of the whole gang; 0 for a v1 job, which replaces its Pods one by one."""
        return 0 if self.uid else self.attempt

    def __str__(self) -> str:
        return f"{self.jobset}/{self.attempt}/{self.job}-{self.job_index}-{self.index}/{self.id}"


def parse_place(path: str) -> PodPlace:
    """Raises ValueError if the path does not have this format."""
    jobset, attempt, seat, pod = path.split("/")
    job, job_index, index = seat.rsplit("-", 2)
    name, _, uid = pod.partition("~")
    return PodPlace(jobset, int(attempt), job, int(job_index), int(index), name, uid)
