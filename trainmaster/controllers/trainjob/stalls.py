"""Whether the steps of a running job stand still, and what happens then.

    what stands still                           for how long it may
    the step, or the phase, since `advancedAt`  twice the longest time that it took before
    the first step, since the program started   twice the longest start before
    the job, if no step was ever reported       no output, CPU or GPU use

Each has a lower bound in the settings. The times are `status.pace` (`api.training.pace`), so the same holds on a
cluster, where reports are all there is. What a machine sees besides (`StallRules.find_sign`) can only excuse a job,
except that it decides alone where no step was ever reported. Time counts from the last excuse, and from when this
server began to take reports.

`status.stalled` is kept until the job advances. A policy acts only on a stall that this process has seen for its full
time, not on a stored one. A restart is one write, which counts it in `status.stalls` and asks for the next attempt
(`api.training.restarts`), so a crash neither loses nor repeats it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from trainmaster.api.lifecycle import stalls
from trainmaster.api.lifecycle.stalls import EVIDENCE, FAIL, OBSERVE, JobSign, StallRules
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.training import restarts
from trainmaster.api.training.pace import JobPace, format_position, is_at_end, read_pace
from trainmaster.api.training.reports import find_started
from trainmaster.api.training.restarts import StallCount
from trainmaster.client.view import View
from trainmaster.controllers.trainjob.status import fail, has_failed_for
from trainmaster.engine.draft import ObjectDraft
from trainmaster.engine.plan import Effect
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

STALLED = "Stalled"
"""The reason of the event, and of the condition Failed if the policy ends the job."""
ADVANCING = "Advancing"
_LOOK_AGAIN = 30.0
"""Seconds after which an idle job is looked at again: what it prints or uses is no change of an object."""
_FACTOR = 2
_EXACT = 1e-6
"""Seconds by which a sum of floats may be wrong."""


@dataclass(frozen=True, slots=True)
class Stand:
    """What has not moved since when."""

    since: str
    """A stored time; "" if none tells it."""
    seconds: float
    """How long it counts so far."""
    bound: float
    """How long it may last; infinite if nothing is known."""
    message: str = ""
    is_idle: bool = False
    """Whether output and use alone tell it."""
    is_busy: bool = False
    """Whether they tell the contrary."""

    @property
    def is_due(self) -> bool:
        return self.seconds >= self.bound - _EXACT


def follow(
    draft: ObjectDraft, rules: StallRules, view: View, trainjob: TrainJob, jobset: JobSet | None, now: Now
) -> None:
    """Updates `status.stalled` in a draft whose status is complete otherwise, and acts as the job's policy says."""
    stored = trainjob.stalled
    if jobset is None or not _is_running(draft, trainjob, jobset):
        draft.status.pop("stalled", None)
        return
    stand = find_stand(rules, view, trainjob, jobset, draft.status, now)
    if stand is None:
        draft.status.pop("stalled", None)
        return
    pace = read_pace({"status": draft.status})
    is_kept = bool(stored) and _is_same(stored, stand)
    if not stand.is_due:
        draft.wake_after(stand.bound - stand.seconds if math.isfinite(stand.bound) else None)
    elif stand.is_idle:
        draft.wake_after(_LOOK_AGAIN)
    if not is_kept and not stand.is_due:
        if draft.status.pop("stalled", None) is not None:
            draft.note(trainjob, ADVANCING, _tell_advance(pace))
        return
    if not is_kept:
        draft.status["stalled"] = _build_status(stand, pace, now)
    message = str(draft.status["stalled"]["message"])
    policy = stalls.read_policy(trainjob.raw, rules.policy)
    if not stand.is_due or policy == OBSERVE:
        if not is_kept:
            draft.note(trainjob, STALLED, message, warning=True)
            if rules.keeps_evidence:
                # The other policies stop the gang, and the node looks at it before that.
                draft.effects.append(Effect(EVIDENCE, {"metadata": dict(trainjob.meta)}))
    elif policy == FAIL:
        _give_up(draft, trainjob, message, now)
    else:
        _restart(draft, trainjob, jobset, pace, message, now)


def _is_running(draft: ObjectDraft, trainjob: TrainJob, jobset: JobSet) -> bool:
    if trainjob.is_suspended or jobset.is_suspended or jobset.is_finished or jobset.is_deleting:
        return False
    return "waiting" not in draft.status and not draft.is_true("Complete") and not draft.is_true("Failed")


def find_stand(
    rules: StallRules, view: View, trainjob: TrainJob, jobset: JobSet, status: Fields, now: Now
) -> Stand | None:
    """None if its program does not run. `status`: the TrainJob's, without what belongs to an earlier attempt."""
    pace = read_pace({"status": status})
    sign = rules.find_sign(trainjob.uid)
    limit = rules.count_watched() if sign is None else min(rules.count_watched(), sign.excused_seconds)
    stand = None
    if pace.advanced_at:
        since = now.since(trainjob.uid, "advanced", pace.advanced_at)
        stand = Stand(pace.advanced_at, min(since, limit), *_get_bound(rules, pace, status))
        if not stand.is_due:
            return stand
    # Rarely needed: the Pods tell whether the program was started again since then.
    started = _find_start(view, trainjob, jobset)
    if not started:
        return None
    if stand is not None and started <= pace.advanced_at:
        return stand
    limit = min(now.since(trainjob.uid, "program", started), limit)
    if pace.was_reported:
        return _judge_start(rules, pace, started, limit)
    return _judge_idle(rules, sign, limit, now)


def _get_bound(rules: StallRules, pace: JobPace, status: Fields) -> tuple[float, str]:
    """How long its position and phase may stay, and what to say if they stay longer."""
    bound = max(rules.seconds, float(_FACTOR * pace.longest))
    long = max(bound, rules.phase_seconds)
    last = f"step {format_position(pace.position)}" if pace.has_steps else "the first step"
    if pace.phase:
        bound = max(long, float(_FACTOR * pace.phase_longest))
        return bound, f"the phase {pace.phase!r} has lasted longer than {_tell(bound)}"
    if is_at_end(read_fields(status, "trainerStatus")):
        return long, f"the program has not ended within {_tell(long)} after its last step, {last}"
    if not pace.has_steps:
        return long, f"{last} has not come within {_tell(long)}"
    if not pace.longest:
        return long, f"no step has come after {last} within {_tell(long)}"
    return bound, f"no step has come after {last} within {_tell(bound)}; until then one took at most {pace.longest} s"


def _judge_start(rules: StallRules, pace: JobPace, started: str, seconds: float) -> Stand:
    """Before the first step of an attempt, or of the time after a suspension."""
    if not pace.start:
        bound = max(rules.seconds, rules.phase_seconds)
        return Stand(started, seconds, bound, f"no step has come within {_tell(bound)} after the start")
    bound = max(rules.seconds, float(_FACTOR * pace.start))
    text = f"no step has come within {_tell(bound)} after the start; before, it took at most {pace.start} s"
    return Stand(started, seconds, bound, text)


def _judge_idle(rules: StallRules, sign: JobSign | None, limit: float, now: Now) -> Stand:
    """If no step was ever reported. `limit`: the most seconds that may count."""
    if sign is None or sign.idle_seconds is None:
        # Nobody has looked at it yet, or nobody ever will.
        return Stand("", 0.0, rules.seconds if rules.sees_use else math.inf, is_idle=True)
    text = f"no output, and no use of CPU or GPU, for {_tell(rules.seconds)}"
    seconds, is_busy = min(sign.idle_seconds, limit), sign.idle_seconds <= 0
    since = format_time(now.wall - timedelta(seconds=seconds))
    return Stand(since, seconds, rules.seconds, text, is_idle=True, is_busy=is_busy)


def _find_start(view: View, trainjob: TrainJob, jobset: JobSet) -> str:
    """When the program of the last rank started, or was resumed; "" if none runs. Only of the step that trains:
    initializers report no steps."""
    step = trainjob.choose_main_step([str(entry["name"]) for entry in trainjob.steps])
    found = (find_started(pod.raw) for pod in _list_pods(view, jobset) if pod.is_running and pod.step in ("", step))
    started = max(found, default="")
    # Pods of before a suspension may still end.
    resumed = read_text(trainjob.find_condition("Suspended"), "lastTransitionTime")
    return max(started, resumed) if started else ""


def _list_pods(view: View, jobset: JobSet) -> Iterator[Pod]:
    for job in map(Job, view.owned(JOBS, jobset.namespace, jobset.uid)):
        yield from map(Pod, view.owned(PODS, job.namespace, job.uid))


def _is_same(stored: Fields, stand: Stand) -> bool:
    """Whether the job still stands as it did when the stall was stored, or that is not known after a start."""
    return not stand.is_busy if stand.is_idle else read_text(stored, "since") == stand.since


def has_failed(trainjob: TrainJob) -> bool:
    """Whether this controller failed the job because of a stall."""
    return has_failed_for(trainjob, STALLED)


def _build_status(stand: Stand, pace: JobPace, now: Now) -> Object:
    position = format_position(pace.position)
    return {"since": stand.since, **({"position": position} if position else {}), "message": stand.message}


def _tell_advance(pace: JobPace) -> str:
    return f"the job goes on: step {format_position(pace.position)}" if pace.has_steps else "the job goes on"


def _tell(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60} minutes" if whole >= 120 and whole % 60 == 0 else f"{whole} s"


# What the policies do


def _give_up(draft: ObjectDraft, trainjob: TrainJob, message: str, now: Now) -> None:
    """The following passes delete the JobSet."""
    since = read_text(draft.status["stalled"], "since")
    text = f"{message}; nothing has moved since {since}"
    draft.note(trainjob, STALLED, text, warning=True)
    fail(draft, STALLED, text, now.wall)


def _restart(draft: ObjectDraft, trainjob: TrainJob, jobset: JobSet, pace: JobPace, message: str, now: Now) -> None:
    """Counts a restart and asks for it in one write. The following passes replace the JobSet."""
    count, most = restarts.read_count(trainjob.raw), jobset.max_restarts
    furthest = format_position(pace.furthest) or ""
    if furthest != count.furthest:
        count = StallCount(furthest=furthest)
    if count.restarts >= most:
        tried = f"{count.restarts} restarts because of that did not help, and " if count.restarts else ""
        _give_up(draft, trainjob, f"{message}; {tried}maxRestarts is {most}", now)
        return
    count = replace(count, restarts=count.restarts + 1, attempt=restarts.decide_next(trainjob.raw, jobset.raw))
    draft.status["stalls"] = count.to_wire()
    text = f"{message}; the job is restarted ({count.restarts} of at most {most} times without progress)"
    draft.note(trainjob, STALLED, text, warning=True)
