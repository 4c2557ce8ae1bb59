"""When a JobSet is complete: all Jobs of the target ReplicatedJobs (default: all of them), or any one of them.

At least one Job must have succeeded, so a JobSet without Jobs never completes, as upstream.
"""

from __future__ import annotations

from trainmaster.api.meta import Object
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.jobset.places import count_replicas, list_replicated
from trainmaster.controllers.jobset.status import Draft, get_replicated_name


def is_met(jobset: Object, buckets: ChildJobs) -> bool:
    policy = jobset["spec"].get("successPolicy") or {}
    every = {replicated["name"]: count_replicas(replicated) for replicated in list_replicated(jobset)}
    targets = set(policy.get("targetReplicatedJobs") or every)
    done = sum(1 for job in buckets.succeeded if get_replicated_name(job) in targets)
    if policy.get("operator") == "Any":
        return done > 0
    return bool(buckets.succeeded) and done >= sum(every.get(name, 0) for name in targets)


def complete(draft: Draft) -> None:
    draft.status["terminalState"] = "Completed"
    draft.set("Completed", True, "AllJobsCompleted", "jobset completed successfully")
    draft.set("RestartingJobSet", False, "JobSetCompleted", "jobset completed successfully")
