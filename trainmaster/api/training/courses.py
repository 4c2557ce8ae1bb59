"""How the failures of a job compare with one another: `status.repeated`. Pure.

A job that fails with the same exception at the same place, again and again, without a new step or complete checkpoint
in between, is not helped by another restart. The course counts such attempts. Attempts that ended otherwise (a signal,
a lost node, an error that only follows from another rank's) neither count nor begin the count anew; progress does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.training.failures import describe_cause, read_failure_cause
from trainmaster.api.training.pace import format_position, read_pace, read_position

MOST = 3
"""How many attempts may end with the same error, without progress in between."""
REPEATED = "RepeatedFailure"
"""Reason of a job that is not restarted although restarts are left."""
HOPELESS = "NotRestartable"
"""The same of a program that cannot even begin."""
_FIELDS = ("attempt", "count", "error", "furthest", "checkpoint", "progressed")
_LONGEST = 256
_BEFORE_THE_BEGINNING = ("SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError")
_ELIDED = "..."
"""In place of lines of a long traceback."""
_NOT_ITS_OWN = frozenset({"OOMKilled", "Evicted", "NodeLost", "DeadlineExceeded"})
"""Reasons of Pods that ended because of the machine or a policy."""
_LAUNCHER = "torchrun: "


@dataclass(frozen=True, slots=True)
class FailureCourse:
    attempt: int = -1
    """The last attempt that failed."""
    count: int = 0
    """How many attempts in a row ended with the same error, without progress in between."""
    error: str = ""
    """That error: `ValueError at train.py:12 in step`."""
    progressed: bool = False
    """Whether that attempt came further than all before it."""
    furthest: float | None = None
    checkpoint: str = ""
    """The newest complete checkpoint when it ended."""

    @property
    def is_repeated(self) -> bool:
        return self.count >= MOST

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compare a later failure with."""
        return not self.count and not self.knows_progress

    @property
    def knows_progress(self) -> bool:
        """Whether the job reports steps or saves checkpoints."""
        return self.furthest is not None or bool(self.checkpoint)


def read_course(trainjob: Fields) -> FailureCourse:
    found = read_fields(trainjob, "status", "repeated")
    if not found:
        return FailureCourse()
    return FailureCourse(
        int(found.get("attempt") or 0),
        int(found.get("count") or 0),
        read_text(found, "error"),
        bool(found.get("progressed")),
        read_position(found.get("furthest")),
        read_text(found, "checkpoint"),
    )


def follow_failure(
    trainjob: Fields, attempt: int, first: int, failure: Fields | None, checkpoint: str = ""
) -> FailureCourse:
    """The course after that attempt has failed; the same however often it is asked. `first`: the first attempt since a
    person restarted the job, which begins the count anew. `checkpoint`: the newest complete one; "" if unknown."""
    before = read_course(trainjob)
    if attempt <= before.attempt:
        return before
    if before.attempt < first:
        before = replace(before, count=0, error="")
    furthest = read_pace(trainjob).furthest
    is_further = furthest is not None and (before.furthest is None or furthest > before.furthest)
    progressed = is_further or checkpoint not in ("", before.checkpoint)
    count = 0 if progressed else before.count
    error = before.error if count else ""
    own = name_error(failure)
    if own:
        count, error = (count + 1, error) if own == error else (1, own)
    return FailureCourse(attempt, count, error, progressed, furthest, checkpoint or before.checkpoint)


def build_note(course: FailureCourse) -> Object:
    """For a merge patch of the status: null for what it does not have."""
    wire = to_wire(course)
    return {"repeated": {name: wire.get(name) for name in _FIELDS}}


def to_wire(course: FailureCourse) -> Object:
    wire: Object = {"attempt": course.attempt, "count": course.count}
    texts = {"error": course.error, "furthest": format_position(course.furthest), "checkpoint": course.checkpoint}
    wire |= {name: text for name, text in texts.items() if text}
    return {**wire, "progressed": True} if course.progressed else wire


def name_error(failure: Fields | None) -> str:
    """The exception and its place, by which failures are compared; "" if the program did not fail by itself. The
    exception's text is left out, because it may contain numbers that differ."""
    if failure is None or failure.get("signal") or failure.get("reason") in _NOT_ITS_OWN:
        return ""
    cause = read_failure_cause(failure)
    if not cause.is_certain or cause.is_consequence or not cause.place or cause.error.startswith(_LAUNCHER):
        return ""
    return f"{cause.error.partition(':')[0]} at {cause.place}"[:_LONGEST]


def is_hopeless(failure: Fields | None) -> bool:
    """Whether the program cannot even begin: it is no valid Python, or an import of its main module fails."""
    if failure is None or failure.get("signal"):
        return False
    cause = read_failure_cause(failure)
    if not cause.is_certain or cause.error.partition(":")[0].strip() not in _BEFORE_THE_BEGINNING:
        return False
    lines = [text.strip() for text in cause.trace]
    frames = [text for text in lines if text.startswith('File "')]
    return bool(frames) and _ELIDED not in lines and all(_is_at_import(text) for text in frames)


def _is_at_import(frame: str) -> bool:
    """Whether the line of a traceback is at the level of a module, and not in a function that it calls. The line that
    cannot be parsed has no level; Python's own functions run the module."""
    return frame.startswith('File "<frozen ') or frame.endswith(", in <module>") or ", in " not in frame


def explain_end(course: FailureCourse, failure: Fields | None) -> str:
    """Why a job is not restarted. `failure`: the last one."""
    cause = describe_cause(read_failure_cause(failure or {}))
    if course.is_repeated:
        text = f"the same error has ended {course.count} attempts in a row, without a new step or checkpoint in between"
        return f"{text}, so the job is not restarted again: {cause}"
    return f"the program cannot begin, and a restart would not change that: {cause}"
