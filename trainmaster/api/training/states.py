"""The state of a TrainJob in one word and one sentence, from the object alone. Pure.

Upstream's conditions say how a job ended; that it waits or runs is read from `status.waiting` and the counts of its
Jobs (docs/states.md). Used by commands and by whoever shows jobs to people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.training.failures import summarize_failure

DELETING, FAILED, COMPLETE, SUSPENDED = "Deleting", "Failed", "Complete", "Suspended"
WAITING, RUNNING, STARTING = "Waiting", "Running", "Starting"
_JOB = re.compile(r'^job "[^"]*": (?=waiting for |the job |Pod )')
STATES = (STARTING, WAITING, RUNNING, SUSPENDED, COMPLETE, FAILED, DELETING)


@dataclass(frozen=True, slots=True)
class TrainJobState:
    word: str
    """One of STATES."""
    reason: str = ""
    """CamelCase, for programs."""
    message: str = ""
    """Of a failed job with the last words of the rank, many lines: for programs."""
    verdict: str = ""
    """Of a job that a rank failed: who and how, in one line."""

    @property
    def sentence(self) -> str:
        """For people: of a job that ended well there is nothing to say."""
        if self.word == COMPLETE or self.verdict:
            return self.verdict
        return ": ".join(part for part in (self.reason, shorten_waiting(self.message)) if part)

    @property
    def is_final(self) -> bool:
        return self.word in (COMPLETE, FAILED)


def read_state(trainjob: Mapping[str, Any]) -> TrainJobState:
    status = trainjob.get("status") or {}
    conditions = list_conditions(dict(trainjob))
    ended = None
    for kind in (FAILED, COMPLETE):
        condition = find_condition(conditions, kind)
        if condition is not None and condition.get("status") == "True":
            ended = TrainJobState(
                kind, condition.get("reason", ""), condition.get("message", ""), _find_verdict(kind, trainjob)
            )
    if trainjob["metadata"].get("deletionTimestamp"):
        return replace(ended, word=DELETING) if ended else TrainJobState(DELETING)
    if ended is not None:
        return ended
    suspended = find_condition(conditions, SUSPENDED)
    if suspended is not None and suspended.get("status") == "True":
        return TrainJobState(SUSPENDED)
    waiting = status.get("waiting")
    if waiting:
        return TrainJobState(WAITING, waiting.get("reason", ""), waiting.get("message", ""))
    counts = status.get("jobsStatus") or ()
    if any(entry.get("ready") for entry in counts):
        return TrainJobState(RUNNING)
    # On a cluster nobody counts readiness before all Pods of a Job are ready; active is the best there is.
    return TrainJobState(
        STARTING, message="Pods are being started" if any(entry.get("active") for entry in counts) else ""
    )


def shorten_waiting(message: str) -> str:
    """Without the Job that a JobSet names first, where that is all of them: a reader of the TrainJob knows it."""
    return _JOB.sub("", message)


def _find_verdict(kind: str, trainjob: Mapping[str, Any]) -> str:
    """A deadline ends a job whatever rank failed before."""
    status = trainjob.get("status") or {}
    condition = find_condition(list_conditions(dict(trainjob)), kind) or {}
    if kind != FAILED or not status.get("failure") or condition.get("reason") == "DeadlineExceeded":
        return ""
    return summarize_failure(status["failure"])


def count_nodes(trainjob: Mapping[str, Any]) -> int | None:
    """What the TrainJob asks for; None leaves it to the runtime."""
    nodes = ((trainjob.get("spec") or {}).get("trainer") or {}).get("numNodes")
    return nodes if isinstance(nodes, int) else None


def read_progress(trainjob: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """(percent, seconds left), each None where the job does not say."""
    report = (trainjob.get("status") or {}).get("trainerStatus") or {}
    percent, left = report.get("progressPercentage"), report.get("estimatedRemainingSeconds")
    return (percent if isinstance(percent, int) else None), (left if isinstance(left, int) else None)
