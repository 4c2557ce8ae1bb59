"""Handles failed Jobs: a rule of the failure policy decides; by default the whole gang restarts until the limit is
reached.

`maxRestarts: n` allows n restarts, which is n + 1 attempts. The first restart happens at once, the next ones after 1,
2, 4 ... 60 seconds (upstream has no such delay), measured from the stored time at which the Job failed. An attempt that
made progress resets the delay: a new step or a complete checkpoint; of a program that tells neither, ten minutes of
running. If the limit is our default, progress also gives the restarts back (`controllers.budget`). A suspended JobSet
restarts without delay, because its new Jobs do not run until it is resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trainmaster.api import labels
from trainmaster.api.formats.numbers import find_count
from trainmaster.api.formats.patterns import is_found
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items
from trainmaster.api.training import courses
from trainmaster.controllers.budget import Standing
from trainmaster.controllers.jobset.job_indexes import list_job_restarts
from trainmaster.controllers.jobset.status import JobSetDraft
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.kit.timeline import Now

DELAY = BackoffPolicy(first=1.0, cap=60.0)
PROGRESS = 600.0
"""Seconds; an attempt that runs this long was not in a crash loop. The kubelet uses the same time."""

FAIL, RESTART, RESTART_FREELY = "FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"
RESTART_ONE, RESTART_ONE_FREELY = "RestartJob", "RestartJobAndIgnoreMaxRestarts"
_COUNTED = (RESTART, RESTART_ONE)
_SINGLE = (RESTART_ONE, RESTART_ONE_FREELY)


@dataclass(frozen=True, slots=True)
class JobSetFailureVerdict:
    """The action, and the Job and rule that caused it (None: the default, or no policy)."""

    action: str
    job: Job
    rule: str | None = None

    @property
    def suffix(self) -> str:
        return f"(first failed job: {self.job.name})"

    @property
    def index(self) -> int:
        return int(self.job.labels[labels.JOB_INDEX])


def decide(jobset: JobSet, failed: Sequence[Job]) -> JobSetFailureVerdict:
    if not jobset.has_failure_policy:
        return JobSetFailureVerdict(FAIL, _choose_first(failed))
    for rule in jobset.failure_rules:
        matching = [job for job in failed if _applies(rule, job)]
        if matching:
            return JobSetFailureVerdict(rule["action"], _choose_first(matching), rule.get("name", ""))
    return JobSetFailureVerdict(RESTART, _choose_first(failed))


def _applies(rule: Fields, job: Job) -> bool:
    condition = job.find_condition("Failed") or {}
    reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
    targets = rule.get("targetReplicatedJobs")
    if reasons and condition.get("reason", "") not in reasons:
        return False
    if patterns and not any(is_found(pattern, condition.get("message", "")) for pattern in patterns):
        return False
    return bool(job.step) and (not targets or job.step in targets)


def _choose_first(failed: Sequence[Job]) -> Job:
    """The Job that failed first; among several in the same second, the first by name."""
    return min(failed, key=lambda job: (_get_failure_time(job), job.name))


def _find_failure_text(job: Job) -> str | None:
    condition = job.find_condition("Failed")
    assert condition is not None, "only failed Jobs are asked about"
    return condition.get("lastTransitionTime")


def _get_failure_time(job: Job) -> datetime:
    moment = _find_failure_text(job)
    # A condition without a time, written by some other client, counts as the oldest.
    return parse_time(moment) if moment else datetime.min.replace(tzinfo=UTC)


def is_restart(jobset: JobSet, verdict: JobSetFailureVerdict, standing: Standing) -> bool:
    if verdict.action == FAIL or is_pointless(verdict, standing):
        return False
    return not _is_exhausted(jobset, verdict, standing)


def is_pointless(verdict: JobSetFailureVerdict, standing: Standing) -> bool:
    """Whether another attempt would fail in the same way. Only asked of restarts that count against the limit: the
    others have another reason than the program."""
    return verdict.action == RESTART and bool(standing.why_not)


def _is_exhausted(jobset: JobSet, verdict: JobSetFailureVerdict, standing: Standing) -> bool:
    if verdict.action not in _COUNTED:
        return False
    counted = _count_spent(jobset, standing)
    for entry in jobset.replicated_statuses:
        counted += sum(list_items(entry, "jobRestartsCountTowardsMax"))
    return counted >= jobset.max_restarts


def _count_spent(jobset: JobSet, standing: Standing) -> int:
    return 0 if standing.returns_budget else int(jobset.status.get("restartsCountTowardsMax", 0))


def starts_new_series(jobset: JobSet, verdict: JobSetFailureVerdict, standing: Standing) -> bool:
    """Whether the attempt made progress and this has not been stored yet."""
    if verdict.action in _SINGLE or not _count_series(jobset, verdict):
        return False
    return standing.course.progressed if standing.course.knows_progress else _ran_long(verdict.job)


def _count_series(jobset: JobSet, verdict: JobSetFailureVerdict) -> int:
    """Restarts since the last progress: of the Job if it is restarted individually, otherwise of the gang."""
    if verdict.action in _SINGLE:
        if _ran_long(verdict.job):
            return 0
        return list_job_restarts(jobset, verdict.job.step)[verdict.index]
    base = jobset.annotations.get(labels.RESTART_SERIES, "0")
    return max(0, jobset.restarts - (find_count(base) or 0))


def _ran_long(job: Job) -> bool:
    if not job.started_at:
        return False
    return (_get_failure_time(job) - parse_time(job.started_at)).total_seconds() >= PROGRESS


def get_pause_left(jobset: JobSet, verdict: JobSetFailureVerdict, now: Now) -> float:
    """Seconds until the restart; 0 or less if it can happen now."""
    moment = _find_failure_text(verdict.job)
    return now.left(verdict.job.uid, "failed", moment, _get_pause(jobset, verdict)) if moment else 0.0


def describe_end(jobset: JobSet, verdict: JobSetFailureVerdict) -> str:
    """When the delay ends according to the stored times, for messages. Changes of the clock do not extend it."""
    return format_time(_get_failure_time(verdict.job) + timedelta(seconds=_get_pause(jobset, verdict)))


def _get_pause(jobset: JobSet, verdict: JobSetFailureVerdict) -> float:
    return 0.0 if jobset.is_suspended else DELAY.delay(_count_series(jobset, verdict))


def describe_delay(jobset: JobSet, verdict: JobSetFailureVerdict, draft: JobSetDraft, standing: Standing) -> str:
    name = verdict.job.name
    if verdict.action in _SINGLE:
        return f"job {name} is restarted after a pause, because it failed repeatedly"
    which = f"{draft.restarts + 1}"
    if verdict.action == RESTART:
        which = f"{_count_spent(jobset, standing) + 1} of {jobset.max_restarts}"
    return f"restart {which} follows after a pause, because job {name} failed repeatedly"


def apply(jobset: JobSet, verdict: JobSetFailureVerdict, draft: JobSetDraft, standing: Standing) -> None:
    if is_pointless(verdict, standing):
        text = f"{standing.why_not} {verdict.suffix}"
        if standing.course.is_repeated:
            _fail(draft, courses.REPEATED, text)
        else:
            _fail(draft, courses.HOPELESS, text)
    elif not jobset.has_failure_policy:
        _fail(draft, "FailedJobs", f"jobset failed due to one or more job failures {verdict.suffix}")
    elif verdict.action == FAIL:
        text = f"applying FailJobSet failure policy action {verdict.suffix}"
        _fail(draft, "FailJobSetFailurePolicyAction", text)
    elif _is_exhausted(jobset, verdict, standing):
        text = f"jobset failed due to reaching max number of restarts {verdict.suffix}"
        _fail(draft, "ReachedMaxRestarts", text)
    elif verdict.action in _SINGLE:
        _restart_one(jobset, verdict, draft)
    else:
        _restart_all(jobset, verdict, draft, standing)


def _restart_all(jobset: JobSet, verdict: JobSetFailureVerdict, draft: JobSetDraft, standing: Standing) -> None:
    text = f"applying {verdict.action} failure policy action {verdict.suffix}"
    draft.status["restarts"] = draft.restarts + 1
    if verdict.action in _COUNTED:
        draft.status["restartsCountTowardsMax"] = _count_spent(jobset, standing) + 1
    reason = "DefaultFailurePolicy" if verdict.rule is None else f"FailurePolicy_{verdict.rule}"
    draft.set("RestartingJobSet", True, reason, text, warning=True)
    draft.note(jobset, f"{verdict.action}FailurePolicyAction", text, warning=True)


def _restart_one(jobset: JobSet, verdict: JobSetFailureVerdict, draft: JobSetDraft) -> None:
    name = verdict.job.step
    entry = draft.get_counts(name)
    keys = ("jobRestarts", "jobRestartsCountTowardsMax") if verdict.action in _COUNTED else ("jobRestarts",)
    for key in keys:
        counts = list_job_restarts(jobset, name, key)
        counts[verdict.index] += 1
        entry[key] = counts
    text = f"applying {verdict.action} failure policy action {verdict.suffix}"
    draft.note(jobset, f"{verdict.action}FailurePolicyAction", text, warning=True)


def _fail(draft: JobSetDraft, reason: str, message: str) -> None:
    draft.status["terminalState"] = "Failed"
    draft.set("Failed", True, reason, message, warning=True)
    draft.set("RestartingJobSet", False, "JobSetFailed", "jobset failed")
