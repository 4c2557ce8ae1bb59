"""A training job of any kind: its state in one word and one sentence, its end, its failure, its progress, its Pods.

The command line, REST, history, retention, logs and `explain` work with this and know no kind. A kind is a subclass,
and a line in `jobs.kinds`. Conditions say how a job ended; that it waits or runs is read from `status.waiting` and
from what the kind counts (docs/states.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import NOTHING
from trainmaster.api.training.failures import summarize_failure
from trainmaster.jobs.models.objects import ObjectModel

if TYPE_CHECKING:
    from trainmaster.jobs.models.jobsets import JobSet
    from trainmaster.jobs.models.ranks import PodPlace

DELETING, FAILED, COMPLETE, SUSPENDED = "Deleting", "Failed", "Complete", "Suspended"
WAITING, RUNNING, STARTING = "Waiting", "Running", "Starting"
STATES = (STARTING, WAITING, RUNNING, SUSPENDED, COMPLETE, FAILED, DELETING)
_JOB = r'^job "[^"]*": (?=waiting for |the job |Pod )'


class TrainingState(NamedTuple):
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


class TrainingJob(ObjectModel):
    __slots__ = ()

    gvr: ClassVar[GVR]
    ends: ClassVar[Mapping[str, str]] = {COMPLETE: COMPLETE, FAILED: FAILED}
    """Types of the conditions that end it, and what each means: Complete or Failed."""
    pod_label: ClassVar[str]
    """The label of its Pods that has its name."""
    has_jobset: ClassVar[bool] = False
    """Its Pods belong to a JobSet of its name; otherwise it controls them itself."""

    @staticmethod
    def find_place(pod: Fields) -> PodPlace | None:
        """Which rank of a job of this kind a Pod is; None for one that belongs to another kind, or to no job."""
        raise NotImplementedError

    @property
    def word(self) -> str:
        """Its kind, as kubectl and our commands name one of them: trainjob."""
        return self.gvr.plural.removesuffix("s")

    # What it asks for

    @property
    def nodes(self) -> int | None:
        """How many ranks; None where something else decides."""
        raise NotImplementedError

    @property
    def runtime(self) -> Fields:
        """The reference to its runtime; empty for a kind that has none."""
        return NOTHING

    @property
    def is_suspended(self) -> bool:
        """Whether somebody wants it to be; that it is says its condition."""
        return bool(self.spec.get("suspend"))

    @staticmethod
    def build_suspension(suspend: bool) -> Object:
        """The merge patch that suspends it, or lets it go on."""
        return {"spec": {"suspend": suspend}}

    # How it stands

    @property
    def is_active(self) -> bool:
        """Some of its Pods are there and not over."""
        raise NotImplementedError

    @property
    def is_ready(self) -> bool:
        """Some of its Pods are ready."""
        raise NotImplementedError

    def read_attempts(self, jobset: JobSet | None) -> tuple[int, int, int | None]:
        """(number of the present attempt, restarts that count against the limit, the limit); the limit is None where
        nobody has set one yet. `jobset`: None for a kind that has none, and while there is none."""
        return 0, 0, None

    @property
    def waiting(self) -> Fields:
        """`status.waiting`; empty when it waits for nothing."""
        waiting: Fields = self.status.get("waiting") or NOTHING
        return waiting

    @property
    def waiting_reason(self) -> str:
        return str(self.waiting.get("reason") or "")

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
        return self.end_condition is not None

    @property
    def end(self) -> tuple[str, str] | None:
        """(Complete or Failed, when); None while it is not over."""
        condition = self.end_condition
        if condition is None:
            return None
        # A controller that leaves the time out has at least made the object before it ended.
        return self.ends[condition["type"]], condition.get("lastTransitionTime") or self.meta["creationTimestamp"]

    @property
    def end_condition(self) -> Fields | None:
        """The condition that says how it ended; None while it has not."""
        for condition in self.conditions:
            if condition.get("type") in self.ends and condition.get("status") == "True":
                return condition
        return None

    @property
    def state(self) -> TrainingState:
        if not self.is_deleting:
            return self.state_until_gone
        ended = self._find_final_state()
        return ended._replace(word=DELETING) if ended else TrainingState(DELETING)

    @property
    def state_until_gone(self) -> TrainingState:
        """The same for those who tell beside it that the job is being deleted: it has a state until it is gone."""
        ended = self._find_final_state()
        if ended is not None:
            return ended
        if self.is_true(SUSPENDED):
            return TrainingState(SUSPENDED)
        if self.waiting:
            return TrainingState(WAITING, self.waiting_reason, self.waiting.get("message", ""))
        if self.is_ready:
            return TrainingState(RUNNING)
        # On a cluster nobody counts readiness before all Pods of a Job are ready; active is the best there is.
        return TrainingState(STARTING, message="Pods are being started" if self.is_active else "")

    def _find_final_state(self) -> TrainingState | None:
        condition = self.end_condition
        if condition is None:
            return None
        word, reason = self.ends[condition["type"]], condition.get("reason", "")
        return TrainingState(word, reason, condition.get("message", ""), self._find_verdict(word, reason))

    def _find_verdict(self, word: str, reason: str) -> str:
        """A deadline ends a job whatever rank failed before."""
        failure = self.failure
        return "" if word != FAILED or failure is None or reason == "DeadlineExceeded" else summarize_failure(failure)


def shorten_waiting(message: str) -> str:
    """Without the Job that a JobSet names first, where that is all of them: a reader of the job knows it."""
    return re.sub(_JOB, "", message)
