"""The pace of a job, from its progress reports: how far it is, since when, and how long a step took at most.

`status.pace` is written together with each report. Everything that asks whether a job still gets on reads it: whether
its steps stand still, whether an attempt has come further than the ones before.

The position is the reported step; of a program that reports only a percentage, that. Any change of it counts as an
advance, because programs may count anew in a second phase; the furthest position only grows. So does a change of the
phase that the program says it is in (`find_phase`); how long phases take is learned apart from steps. Durations are
measured by the server. Those that it has not seen as a whole are not learned: reports are lost while it is down, and
while the machine sleeps nothing trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.api.training.reports import STEP, TOTAL
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.timeline import Now, Timeline

_MOST_SECONDS = 2**31 - 1
_MOST_JOBS = 10_000
_MOST_LETTERS = 64
_TOLERANCE = 2.0
"""Stored times have whole seconds."""
_FIELDS = ("position", "phase", "advancedAt", "longestSeconds", "startSeconds", "phaseSeconds", "furthest")
_OF_THE_JOB = ("longestSeconds", "startSeconds", "phaseSeconds", "furthest")
PHASE = "phase"
"""The metric in which a program may say what it does."""
_TRAINING = frozenset({"", "train", "training"})


CountSinceStop: TypeAlias = Callable[[str], float]


def _count_for_ever(uid: str) -> float:
    return math.inf


@dataclass(frozen=True, slots=True)
class JobPace:
    position: float | None = None
    """Of the current attempt; None before its first report."""
    advanced_at: str = ""
    """When position or phase last changed, by the server's clock."""
    longest: int = 0
    """The most seconds from one position to the next, in all attempts."""
    start: int = 0
    """The most seconds from the start of the program to its first position."""
    furthest: float | None = None
    """Of all attempts."""
    phase: str = ""
    """What the program does now, if it says so and it is not training: `evaluation`."""
    phase_longest: int = 0
    """The most seconds in such a phase, or from one position to the next in it."""

    @property
    def has_steps(self) -> bool:
        """Whether the current attempt has reported how far it is."""
        return self.position is not None

    @property
    def was_reported(self) -> bool:
        """Whether any attempt has reported how far it is."""
        return self.furthest is not None


class PaceMeter:
    """Measures the pace of all jobs that report to this process."""

    def __init__(self, clock: Clock, count_since_stop: CountSinceStop = _count_for_ever) -> None:
        """`count_since_stop`: seconds since processes of a job, by its uid, were last seen stopped by a person."""
        self._clock = clock
        self._count_since_stop = count_since_stop
        self._since = clock.boot()
        self._asleep = self._measure_sleep()
        self._timeline: Timeline[str] = Timeline(clock)

    def measure(self, trainjob: Fields, report: Fields, began: str) -> Object | None:
        """`status.pace` for the patch that stores the report. `began`: when the program that reports was started."""
        if len(self._timeline) > _MOST_JOBS:
            # Measured from the wall clock for once.
            self._timeline = Timeline(self._clock)
        uid = trainjob["metadata"]["uid"]
        now = self._timeline.begin_pass(uid)
        pace = follow(trainjob, report, now, began, min(self._count_up(), self._count_since_stop(uid)))
        self._timeline.end_pass(uid, now)
        return to_wire(pace)

    def _count_up(self) -> float:
        """Seconds for which this process has been taking reports without a pause."""
        asleep = self._measure_sleep()
        if asleep - self._asleep > 1.0:
            self._since = self._clock.boot()
        self._asleep = asleep
        return self._clock.boot() - self._since

    def _measure_sleep(self) -> float:
        """It grows by the time for which the machine sleeps."""
        return self._clock.boot() - self._clock.monotonic()


def read_pace(trainjob: Fields) -> JobPace:
    found = read_fields(trainjob, "status", "pace")
    return JobPace(
        read_position(found.get("position")),
        read_text(found, "advancedAt"),
        int(found.get("longestSeconds") or 0),
        int(found.get("startSeconds") or 0),
        read_position(found.get("furthest")),
        read_text(found, "phase"),
        int(found.get("phaseSeconds") or 0),
    )


def find_position(report: Fields) -> float | None:
    """None if the report does not say how far the program is, or says no finite number."""
    for metric in list_items(report, "metrics"):
        if metric.get("name") == STEP:
            return read_position(metric.get("value"))
    return read_position(report.get("progressPercentage"))


def find_phase(report: Fields) -> str:
    """What the program says it does, if that is not training; "" otherwise."""
    for metric in list_items(report, "metrics"):
        if metric.get("name") == PHASE:
            text = str(metric.get("value") or "")
            return "" if text.lower() in _TRAINING else text[:_MOST_LETTERS]
    return ""


def is_at_end(report: Fields) -> bool:
    """Whether the last step is done: what follows, such as saving the model, has no steps."""
    values = {one.get("name"): one.get("value") for one in list_items(report, "metrics")}
    try:
        if float(values[STEP]) >= float(values[TOTAL]) > 0:
            return True
    except (KeyError, TypeError, ValueError):
        pass
    percent = report.get("progressPercentage")
    return isinstance(percent, int) and percent >= 100


def follow(trainjob: Fields, report: Fields, now: Now, began: str, up_seconds: float) -> JobPace:
    """The pace after that report. `began`: when its program was started, "" if unknown; `up_seconds`: for how long
    nothing has kept reports from being sent and taken."""
    before, position, phase = read_pace(trainjob), find_position(report), find_phase(report)
    moved = position is not None and position != before.position
    if not moved and phase == before.phase:
        return _remember(trainjob, before, now, began)
    uid = trainjob["metadata"]["uid"]
    running = now.since(uid, "began", began) if began else math.inf
    stood = now.since(uid, "advanced", before.advanced_at) if before.advanced_at else math.inf
    pace = before
    if before.phase and stood <= running:
        pace = replace(pace, phase_longest=_learn(pace.phase_longest, stood, up_seconds))
    elif moved and before.has_steps and stood <= running and not phase:
        pace = replace(pace, longest=_learn(pace.longest, stood, up_seconds))
    if moved and (not before.has_steps or stood > running):
        pace = replace(pace, start=_learn(pace.start, running, up_seconds))
    if moved and position is not None:
        furthest = position if before.furthest is None else max(position, before.furthest)
        pace = replace(pace, position=position, furthest=furthest)
    return _remember(trainjob, replace(pace, phase=phase, advanced_at=format_time(now.wall)), now, began)


def _learn(known: int, seconds: float, up_seconds: float) -> int:
    """The greater one, if nothing interfered in all that time."""
    if seconds > up_seconds + _TOLERANCE:
        return known
    return max(known, min(math.ceil(seconds), _MOST_SECONDS))


def _remember(trainjob: Fields, pace: JobPace, now: Now, began: str) -> JobPace:
    """Anchors the times now, so that a later change of the wall clock does not make the next step longer or shorter."""
    uid = trainjob["metadata"]["uid"]
    if pace.advanced_at:
        now.since(uid, "advanced", pace.advanced_at)
    if began:
        now.since(uid, "began", began)
    return pace


def to_wire(pace: JobPace) -> Object | None:
    """For a merge patch: all fields, null for those that it does not have; None if it has none."""
    if pace == JobPace():
        return None
    values = (
        format_position(pace.position),
        pace.phase or None,
        pace.advanced_at or None,
        pace.longest or None,
        pace.start or None,
        pace.phase_longest or None,
        format_position(pace.furthest),
    )
    return dict(zip(_FIELDS, values, strict=True))


def leave_attempt(status: Mapping[str, Any]) -> Object:
    """`status.pace` when an attempt has ended: what is true of the job, without the position."""
    kept = read_fields(status, "pace")
    return {name: kept[name] for name in _OF_THE_JOB if name in kept}


def read_position(value: Any) -> float | None:
    """None for what is no finite number."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def format_position(number: float | None) -> str | None:
    """As text, because Kubernetes objects have no fractions: 1200, 0.25."""
    if number is None:
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
