"""Decides when a JobSet is complete: when all Jobs of the target ReplicatedJobs (by default all) have succeeded, or
any.

As upstream, at least one Job must have succeeded, so a JobSet without Jobs never completes.
"""

from __future__ import annotations

from trainmaster.api.reading import list_items, read_fields
from trainmaster.controllers.jobset.children import ChildJobs
from trainmaster.controllers.jobset.job_indexes import count_replicas
from trainmaster.controllers.jobset.status import JobSetDraft
from trainmaster.jobs.models.jobsets import JobSet


def is_met(jobset: JobSet, buckets: ChildJobs) -> bool:
    policy = read_fields(jobset.spec, "successPolicy")
    every = {replicated["name"]: count_replicas(replicated) for replicated in jobset.replicated_jobs}
    targets = set(list_items(policy, "targetReplicatedJobs") or every)
    done = sum(1 for job in buckets.succeeded if job.step in targets)
    if policy.get("operator") == "Any":
        return done > 0
    return bool(buckets.succeeded) and done >= sum(every.get(name, 0) for name in targets)


def complete(draft: JobSetDraft) -> None:
    draft.status["terminalState"] = "Completed"
    draft.set("Completed", True, "AllJobsCompleted", "jobset completed successfully")
    draft.set("RestartingJobSet", False, "JobSetCompleted", "jobset completed successfully")
