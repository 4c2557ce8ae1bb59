"""A TrainJob: what it asks for, its state in one word and one sentence, its end, its failure, its progress.

Upstream's conditions say how a job ended; that it waits or runs is read from `status.waiting` and the counts of its
Jobs (docs/states.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.api.training.ends import FINISHED, find_end
from trainmaster.api.training.failures import summarize_failure
from trainmaster.api.training.restarts import read_wanted
from trainmaster.jobs.models.objects import ObjectModel

DELETING, FAILED, COMPLETE, SUSPENDED = "Deleting", "Failed", "Complete", "Suspended"
WAITING, RUNNING, STARTING = "Waiting", "Running", "Starting"
STATES = (STARTING, WAITING, RUNNING, SUSPENDED, COMPLETE, FAILED, DELETING)
_JOB = re.compile(r'^job "[^"]*": (?=waiting for |the job |Pod )')


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


class TrainJob(ObjectModel):
    __slots__ = ()

    # What it asks for

    @property
    def trainer(self) -> Fields:
        """`spec.trainer`."""
        trainer: Fields = self.spec.get("trainer") or NOTHING
        return trainer

    @property
    def nodes(self) -> int | None:
        """None leaves it to the runtime."""
        nodes = self.trainer.get("numNodes")
        return nodes if isinstance(nodes, int) else None

    @property
    def runtime(self) -> Fields:
        """`spec.runtimeRef`."""
        reference: Fields = self.spec.get("runtimeRef") or NOTHING
        return reference

    @property
    def runtime_key(self) -> tuple[str, str]:
        """Namespace, or "" for a runtime of the cluster, and name."""
        is_namespaced = self.runtime.get("kind") == "TrainingRuntime"
        return self.namespace if is_namespaced else "", str(self.runtime.get("name", ""))

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def wanted_attempt(self) -> int:
        """The first attempt that its JobSet shall have; what is no number asks for nothing."""
        return read_wanted(self.raw)

    # How it stands

    @property
    def waiting(self) -> Fields:
        """`status.waiting`; empty when it waits for nothing."""
        waiting: Fields = self.status.get("waiting") or NOTHING
        return waiting

    @property
    def waiting_reason(self) -> str:
        return str(self.waiting.get("reason") or "")

    @property
    def steps(self) -> Sequence[Fields]:
        """`status.jobsStatus`: how many Jobs of each step are ready, active, ended."""
        return self.status.get("jobsStatus") or ()

    @property
    def report(self) -> Fields:
        """`status.trainerStatus`: what the program said about its progress."""
        report: Fields = self.status.get("trainerStatus") or NOTHING
        return report

    @property
    def progress(self) -> tuple[int | None, int | None]:
        """(percent, seconds left), each None where the job does not say."""
        percent, left = self.report.get("progressPercentage"), self.report.get("estimatedRemainingSeconds")
        return (percent if isinstance(percent, int) else None), (left if isinstance(left, int) else None)

    @property
    def retention(self) -> Fields:
        """`status.retention`: when it will be deleted, and by whose word."""
        retention: Fields = self.status.get("retention") or NOTHING
        return retention

    @property
    def failure(self) -> Fields | None:
        """`status.failure`: which rank failed first, and how; None when none has."""
        return self.status.get("failure") or None

    @property
    def is_finished(self) -> bool:
        return any(self.is_true(end) for end in FINISHED)

    @property
    def end(self) -> tuple[str, str] | None:
        """(Complete or Failed, when); None while it is not over."""
        return find_end(self.raw)

    @property
    def end_condition(self) -> Fields | None:
        """The condition that says how it ended; None while it has not."""
        for end in FINISHED:
            condition = self.find_condition(end)
            if condition is not None and condition.get("status") == "True":
                return condition
        return None

    @property
    def state(self) -> TrainJobState:
        if not self.is_deleting:
            return self.state_until_gone
        ended = self._find_final_state()
        return replace(ended, word=DELETING) if ended else TrainJobState(DELETING)

    @property
    def state_until_gone(self) -> TrainJobState:
        """The same for those who tell beside it that the job is being deleted: it has a state until it is gone."""
        ended = self._find_final_state()
        if ended is not None:
            return ended
        if self.is_true(SUSPENDED):
            return TrainJobState(SUSPENDED)
        if self.waiting:
            return TrainJobState(WAITING, self.waiting_reason, self.waiting.get("message", ""))
        if any(step.get("ready") for step in self.steps):
            return TrainJobState(RUNNING)
        # On a cluster nobody counts readiness before all Pods of a Job are ready; active is the best there is.
        is_active = any(step.get("active") for step in self.steps)
        return TrainJobState(STARTING, message="Pods are being started" if is_active else "")

    def _find_final_state(self) -> TrainJobState | None:
        condition = self.end_condition
        if condition is None:
            return None
        kind, reason = condition["type"], condition.get("reason", "")
        return TrainJobState(kind, reason, condition.get("message", ""), self._find_verdict(kind, reason))

    def _find_verdict(self, kind: str, reason: str) -> str:
        """A deadline ends a job whatever rank failed before."""
        failure = self.failure
        return "" if kind != FAILED or failure is None or reason == "DeadlineExceeded" else summarize_failure(failure)


def shorten_waiting(message: str) -> str:
    """Without the Job that a JobSet names first, where that is all of them: a reader of the TrainJob knows it."""
    return _JOB.sub("", message)
