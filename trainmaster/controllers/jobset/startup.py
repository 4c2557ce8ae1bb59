"""Decides what can start now: `dependsOn` (a ReplicatedJob waits for others) and the older startupPolicy InOrder.

Dependencies are checked against the counts of this pass, so a restart of the gang runs the whole sequence again.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_text
from trainmaster.controllers.jobset.job_indexes import count_replicas
from trainmaster.controllers.jobset.status import JobSetDraft
from trainmaster.jobs.models.jobsets import JobSet


def is_in_order(jobset: JobSet) -> bool:
    return read_text(jobset.spec, "startupPolicy", "startupPolicyOrder") == "InOrder"


def is_started(replicated: Fields, draft: JobSetDraft) -> bool:
    counts = draft.get_counts(replicated["name"])
    return bool(counts["failed"] + counts["ready"] + counts["succeeded"] == count_replicas(replicated))


def may_start(jobset: JobSet, replicated: Fields, draft: JobSetDraft) -> bool:
    """Whether all dependencies are Ready or Complete, whichever is required."""
    others = {other["name"]: other for other in jobset.replicated_jobs}
    for dependency in list_items(replicated, "dependsOn"):
        other = others.get(dependency["name"])
        if other is None:
            return False
        if dependency["status"] == "Complete":
            if draft.get_counts(other["name"])["succeeded"] != count_replicas(other):
                return False
        elif not is_started(other, draft):
            return False
    return True


def note_progress(draft: JobSetDraft) -> None:
    text = "in order startup policy is in progress"
    draft.set("StartupPolicyInProgress", True, "InOrderStartupPolicyInProgress", text)


def note_end(draft: JobSetDraft) -> None:
    text = "in order startup policy has completed"
    draft.set("StartupPolicyCompleted", True, "InOrderStartupPolicyCompleted", text)
