"""What a failed Job means: restart the whole gang while there is budget, else Failed.

`maxRestarts: n` is n restarts, n + 1 runs. The first restart happens at once, the following after 1, 2, 4 ... 60
seconds (design 11; upstream has no such delay), measured from the stored time at which the Job failed. An attempt that
ran for ten minutes counts as progress and starts the series over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.meta import Object
from trainmaster.controllers.jobset.status import Draft
from trainmaster.kit.backoff import Policy
from trainmaster.kit.clock import parse_time

DELAY = Policy(first=1.0, cap=60.0)
PROGRESS = 600.0
"""Seconds; an attempt that lives this long was not in a crash loop. Kubelets reset their back-off after as long."""


def find_first_failed(failed: Sequence[Object]) -> Object:
    return min(failed, key=lambda job: (_get_failure_time(job), job["metadata"]["name"]))


def _get_failure_time(job: Object) -> datetime:
    condition = find_condition(list_conditions(job), "Failed")
    assert condition is not None, "only failed Jobs are asked about"
    return parse_time(condition["lastTransitionTime"])


def decide_delay(jobset: Object, first: Object, restarts: int, now: datetime) -> float:
    """Seconds that are left before the restart may happen; 0 when it may happen now, or the budget is spent."""
    if restarts == 0 or not has_budget(jobset):
        return 0.0
    failed_at = _get_failure_time(first)
    started = (first.get("status") or {}).get("startTime")
    if started and (failed_at - parse_time(started)).total_seconds() >= PROGRESS:
        return 0.0
    return max(0.0, DELAY.delay(restarts) - (now - failed_at).total_seconds())


def has_budget(jobset: Object) -> bool:
    policy = jobset["spec"].get("failurePolicy")
    counted = (jobset.get("status") or {}).get("restartsCountTowardsMax", 0)
    return policy is not None and counted < policy.get("maxRestarts", 0)


def apply_policy(jobset: Object, first: Object, draft: Draft) -> None:
    suffix = f"(first failed job: {first['metadata']['name']})"
    if jobset["spec"].get("failurePolicy") is None:
        fail(draft, "FailedJobs", f"jobset failed due to one or more job failures {suffix}")
    elif not has_budget(jobset):
        fail(draft, "ReachedMaxRestarts", f"jobset failed due to reaching max number of restarts {suffix}")
    else:
        text = f"applying RestartJobSet failure policy action {suffix}"
        draft.status["restarts"] = draft.restarts + 1
        draft.status["restartsCountTowardsMax"] = draft.status.get("restartsCountTowardsMax", 0) + 1
        draft.set("RestartingJobSet", True, "DefaultFailurePolicy", text, warning=True)
        draft.note("RestartJobSetFailurePolicyAction", text, warning=True)


def fail(draft: Draft, reason: str, message: str) -> None:
    draft.status["terminalState"] = "Failed"
    draft.set("Failed", True, reason, message, warning=True)
    draft.set("RestartingJobSet", False, "JobSetFailed", "jobset failed")
