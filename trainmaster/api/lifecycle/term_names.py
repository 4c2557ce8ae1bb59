"""The names of TTL and deadline: fields of a TrainJob, or annotations if the cluster's CRD has no such fields."""

from __future__ import annotations

TTL_FIELD = "ttlSecondsAfterFinished"
DEADLINE_FIELD = "activeDeadlineSeconds"
TTL_ANNOTATION = "trainmaster.dev/ttl-seconds-after-finished"
"""On TrainJobs and runtimes, by their author."""
DEADLINE_ANNOTATION = "trainmaster.dev/active-deadline-seconds"
"""On TrainJobs and runtimes, by their author."""
ENFORCED_ANNOTATION = "trainmaster.dev/ttl-enforced"
"""On runtimes, by the administrator: "true" makes their TTL the most that a TrainJob may ask for."""
