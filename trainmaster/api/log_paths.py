"""Where the logs of a Pod are kept once it is gone: a path that says all that a reader wants to select by.

    <JobSet uid>/<attempt>/<replicated job>-<job index>-<completion index>/<Pod name>

Written into the Pod's directory when the Pod is made, so that whoever removes the directory, however late, knows where
its logs belong. Pods that belong to no JobSet have no place: nobody keeps their logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import COMPLETION_INDEX, JOB_INDEX, JOBSET_UID, REPLICATED_JOB_NAME, RESTART_ATTEMPT
from trainmaster.api.training.restarts import read_first


@dataclass(frozen=True, slots=True)
class PodPlace:
    jobset: str
    attempt: int
    """Counted on over all JobSets of a job (`api.training.restarts`)."""
    job: str
    """Name of the replicated job: `node`, `launcher`."""
    job_index: int
    index: int
    pod: str

    def __str__(self) -> str:
        return f"{self.jobset}/{self.attempt}/{self.job}-{self.job_index}-{self.index}/{self.pod}"


def find_place(pod: Mapping[str, Any]) -> PodPlace | None:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    if JOBSET_UID not in labels or REPLICATED_JOB_NAME not in labels:
        return None
    annotations = meta.get("annotations") or {}
    index = labels.get(COMPLETION_INDEX) or annotations.get(COMPLETION_INDEX)
    return PodPlace(
        jobset=labels[JOBSET_UID],
        attempt=read_first(pod) + _number(labels.get(RESTART_ATTEMPT)),
        job=labels[REPLICATED_JOB_NAME],
        job_index=_number(labels.get(JOB_INDEX)),
        index=_number(index),
        pod=meta["name"],
    )


def parse_place(path: str) -> PodPlace:
    """ValueError when the path is none of ours."""
    jobset, attempt, seat, pod = path.split("/")
    job, job_index, index = seat.rsplit("-", 2)
    return PodPlace(jobset, int(attempt), job, int(job_index), int(index), pod)


def _number(text: str | None) -> int:
    return find_count(text) or 0
