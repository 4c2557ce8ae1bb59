"""A training job of any kind: its state in one word and one sentence, its end, its failure, its progress, its Pods.

The command line, REST, history, retention, logs and `explain` use this class and do not depend on the kind. A kind is a
subclass and a line in `jobs.kinds`. Conditions say how a job ended; whether it is waiting or running is read from
`status.waiting` and from the kind's counts (docs/states.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from trainmaster.api.labels import IDLE_GPUS_SINCE, SUSPENDED_BY_DRAIN
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import NOTHING, read_text
from trainmaster.api.training.failing.courses import HOPELESS, MOST, REPEATED
from trainmaster.api.training.failing.failures import summarize_failure
from trainmaster.api.training.restarts import read_wanted
from trainmaster.jobs.models.objects import ObjectModel

if TYPE_CHECKING:
    from trainmaster.jobs.models.jobsets import JobSet
    from trainmaster.jobs.models.ranks import PodPlace

DELETING, FAILED, COMPLETE, SUSPENDED = "Deleting", "Failed", "Complete", "Suspended"
WAITING, RUNNING, STARTING = "Waiting", "Running", "Starting"
DEADLINE_EXCEEDED, STALLED = "DeadlineExceeded", "Stalled"
DRAINED = "Drained"
"""The reason of a suspended job that continues by itself."""
DRAINED_TEXT = "the machine has been drained since {}; the job continues where it was after `trainmaster undrain`"
IDLE_GPUS = "IdleGPUs"
"""The reason of a running job that should be looked at."""
IDLE_GPUS_TEXT = "its GPUs have done nothing since {}"
STATES = (STARTING, WAITING, RUNNING, SUSPENDED, COMPLETE, FAILED, DELETING)
_NOT_RESTARTED = {
    REPEATED: f"; the same in {MOST} attempts in a row, without progress",
    HOPELESS: "; not restarted, because that would not help",
}
_JOB = r'^job "[^"]*": (?=waiting for |the job |Pod )'


class TrainingState(NamedTuple):
    word: str
    """One of STATES."""
    reason: str = ""
    """CamelCase, for programs."""
    message: str = ""
    """For programs. For a failed job it includes the last lines of the rank, so it may have many lines."""
    failure: Fields | None = None
    """For a job that failed because of a rank: which one and how."""

    @property
    def sentence(self) -> str:
        """For people; empty for a job that succeeded."""
        if self.word == COMPLETE:
            return ""
        if self.failure is not None:
            return summarize_failure(self.failure) + _NOT_RESTARTED.get(self.reason, "")
        return ": ".join(part for part in (self.reason, shorten_waiting(self.message)) if part)

    @property
    def is_final(self) -> bool:
        return self.word in (COMPLETE, FAILED)


_SUSPENDED = TrainingState(SUSPENDED)


class TrainingJob(ObjectModel):
    __slots__ = ()

    gvr: ClassVar[GVR]
    ends: ClassVar[Mapping[str, str]] = {COMPLETE: COMPLETE, FAILED: FAILED}
    """The types of its final conditions, and what each means: Complete or Failed."""
    pod_label: ClassVar[str]
    """The label of its Pods that contains its name."""
    has_jobset: ClassVar[bool] = False
    """Whether its Pods belong to a JobSet with its name; otherwise it controls them itself."""

    @classmethod
    def find_place(cls, pod: Fields) -> PodPlace | None:
        """Which rank of a job of this kind a Pod is; None if it belongs to another kind or to no job."""
        raise NotImplementedError

    @classmethod
    def choose_main_step(cls, steps: Collection[str]) -> str:
        """The step (replicated job or replica type) whose program a user means who names none; "" if there are none."""
        return min(steps, default="")

    @property
    def word(self) -> str:
        """The singular name of its kind in kubectl and our commands: trainjob."""
        return self.gvr.plural.removesuffix("s")

    @property
    def reference(self) -> str:
        """Its kind and name as commands accept them: trainjob/my-job."""
        return f"{self.word}/{self.name}"

    @property
    def label(self) -> str:
        """How messages and suggested commands name it: my-job if it is a TrainJob, otherwise with its kind."""
        return self.reference

    # Its spec

    @property
    def nodes(self) -> int | None:
        """The number of ranks; None if the job does not set it."""
        raise NotImplementedError

    @property
    def runtime(self) -> Fields:
        """The reference to its runtime; empty for a kind without runtimes."""
        return NOTHING

    @property
    def memory_limit(self) -> str:
        """The memory that each rank may use; "" if the job does not limit it."""
        return read_text(self.spec, "trainer", "resourcesPerNode", "limits", "memory")

    @property
    def wanted_attempt(self) -> int:
        """The number of the attempt that a user asked for last; 0 if the annotation is not a number."""
        return read_wanted(self.raw)

    @property
    def is_suspended(self) -> bool:
        """Whether it should be suspended; the condition says whether it is."""
        return bool(self.spec.get("suspend"))

    @property
    def drained_since(self) -> str:
        """When the drain began that has suspended it and will resume it; "" if none has."""
        return self.annotations.get(SUSPENDED_BY_DRAIN, "")

    @property
    def idle_gpus_since(self) -> str:
        """Since when none of its GPUs has done anything, if that was long enough to report; "" otherwise."""
        return self.annotations.get(IDLE_GPUS_SINCE, "")

    @staticmethod
    def build_suspension(suspend: bool) -> Object:
        """The merge patch that suspends or resumes it."""
        return {"spec": {"suspend": suspend}}

    # Its status

    @property
    def is_active(self) -> bool:
        """Whether it has active Pods."""
        raise NotImplementedError

    @property
    def is_ready(self) -> bool:
        """Whether it has ready Pods."""
        raise NotImplementedError

    @property
    def active_since(self) -> str:
        """When its deadline began to count: when it was created or last resumed."""
        return read_text(self.find_condition(SUSPENDED), "lastTransitionTime") or self.created_at

    def read_attempts(self, jobset: JobSet | None) -> tuple[int, int, int | None]:
        """(number of the current attempt, restarts that count against the limit, the limit); the limit is None if it is
        not set yet. `jobset`: None for a kind without JobSets, and while there is none."""
        return 0, 0, None

    def decide_next_attempt(self, jobset: JobSet | None) -> int:
        """The number for the next restart that a user asks for, after all attempts so far."""
        raise NotImplementedError

    @property
    def waiting(self) -> Fields:
        """`status.waiting`; empty if it is not waiting."""
        waiting: Fields = self.status.get("waiting") or NOTHING
        return waiting

    @property
    def waiting_reason(self) -> str:
        return str(self.waiting.get("reason") or "")

    @property
    def stalled(self) -> Fields:
        """`status.stalled`: since when its steps stand still; empty if they do not, or nothing is known about it."""
        stalled: Fields = self.status.get("stalled") or NOTHING
        return stalled

    @property
    def report(self) -> Fields:
        """`status.trainerStatus`: the progress that the program reported."""
        report: Fields = self.status.get("trainerStatus") or NOTHING
        return report

    @property
    def progress(self) -> tuple[int | None, int | None]:
        """(percent, seconds left), each None if the job does not report it."""
        percent, left = self.report.get("progressPercentage"), self.report.get("estimatedRemainingSeconds")
        return (percent if isinstance(percent, int) else None), (left if isinstance(left, int) else None)

    @property
    def retention(self) -> Fields:
        """`status.retention`: when it will be deleted, and what determines that."""
        retention: Fields = self.status.get("retention") or NOTHING
        return retention

    @property
    def failure(self) -> Fields | None:
        """`status.failure`: which rank failed first, and how; None if none has."""
        return self.status.get("failure") or None

    @property
    def is_finished(self) -> bool:
        return self.end_condition is not None

    @property
    def end(self) -> tuple[str, str] | None:
        """(Complete or Failed, when); None if it has not ended."""
        condition = self.end_condition
        if condition is None:
            return None
        # Some controllers omit the time; use the creation time then.
        return self.ends[condition["type"]], condition.get("lastTransitionTime") or self.meta["creationTimestamp"]

    @property
    def end_condition(self) -> Fields | None:
        """The condition that says how it ended; None if it has not."""
        for condition in self.conditions:
            if condition.get("type") in self.ends and condition.get("status") == "True":
                return condition
        return None

    @property
    def state(self) -> TrainingState:
        if not self.is_deleting:
            return self.state_ignoring_deletion
        ended = self._find_final_state()
        return ended._replace(word=DELETING) if ended else TrainingState(DELETING)

    @property
    def state_ignoring_deletion(self) -> TrainingState:
        """The state regardless of deletion, for callers that show separately that the job is being deleted."""
        ended = self._find_final_state()
        if ended is not None:
            return ended
        if self.is_true(SUSPENDED):
            drained = self.drained_since if self.is_suspended else ""
            return TrainingState(SUSPENDED, DRAINED, DRAINED_TEXT.format(drained)) if drained else _SUSPENDED
        if self.waiting:
            return TrainingState(WAITING, self.waiting_reason, self.waiting.get("message", ""))
        if self.stalled:
            return TrainingState(RUNNING, STALLED, read_text(self.stalled, "message"))
        if self.is_ready:
            since = self.idle_gpus_since
            return TrainingState(RUNNING, IDLE_GPUS, IDLE_GPUS_TEXT.format(since)) if since else TrainingState(RUNNING)
        # On a cluster a Job does not count ready Pods until all are ready, so active is the best information available.
        return TrainingState(STARTING, message="Pods are being started" if self.is_active else "")

    def _find_final_state(self) -> TrainingState | None:
        condition = self.end_condition
        if condition is None:
            return None
        word, reason = self.ends[condition["type"]], self._read_end_reason(condition)
        # A deadline or a stall is the reason even if a rank failed before.
        failure = self.failure if word == FAILED and reason not in (DEADLINE_EXCEEDED, STALLED) else None
        return TrainingState(word, reason, condition.get("message", ""), failure)

    def _read_end_reason(self, condition: Fields) -> str:
        """DEADLINE_EXCEEDED for a deadline, whatever the kind writes into the condition."""
        return read_text(condition, "reason")


def shorten_waiting(message: str) -> str:
    """Removes the name of the Job at the beginning if the rest is about the whole job or names a Pod."""
    return re.sub(_JOB, "", message)
