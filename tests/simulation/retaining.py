"""Invariants of retention: no job is deleted early, late, twice, unrecorded or instead of another (I7, I13, I18).

The effective TTL is computed independently of the product's code (`book`), from what the controllers' view shows. The
job itself is taken as it is when it is deleted: an accepted longer TTL counts, and a new job of the same name is
another one. Imported for its checks, which register themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.simulation import quiescence, steps
from tests.simulation.expected_retention import LIMITS, find_term, list_doomed
from tests.simulation.quiescence import Rest, get_name
from tests.simulation.steps import BUCKETS, TRAINING, Step, find_verdict, is_going, show
from tests.simulation.timing import RETENTION, find_verdict_time
from trainmaster.api import labels
from trainmaster.api.lifecycle import policy
from trainmaster.api.meta import Object

_KEEPERS = (*RETENTION, LIMITS)
_LATE = tuple(f"late {name}" for name in _KEEPERS)
_SHORT = 60
"""Seconds; longer TTLs do not end within a run."""
RUNTIME_BUCKET = "trainer.kubeflow.org/clustertrainingruntimes"


# At every write


def _is_deletion(step: Step) -> bool:
    """Whether the step begins the deletion of a TrainJob or a v1 job."""
    if step.bucket not in TRAINING or step.before is None or is_going(step.before):
        return False
    return step.after is None or is_going(step.after)


@steps.invariant("I7")
def check_who_deletes_jobs(step: Step) -> str | None:
    if step.actor in (*_KEEPERS, *_LATE) and step.bucket not in TRAINING:
        return f"{step.actor} touches {show(step)}"
    if not _is_deletion(step) or step.before is None or step.actor == "user":
        return None
    if step.actor not in (*_KEEPERS, *_LATE):
        return f"{show(step)} is deleted by {step.actor}"
    uid, looks = step.before["metadata"]["uid"], step.memory.looks
    known = uid in (looks.ever_doomed if step.actor.endswith(LIMITS) else looks.shown)
    if not find_verdict(step.bucket, step.before) or not known:
        return f"{show(step)} is deleted by {step.actor}, which has never seen that one over"
    return None


@steps.invariant("I13")
def check_retention_is_over(step: Step) -> str | None:
    if step.actor not in RETENTION or not _is_deletion(step) or step.before is None:
        return None
    uid, looks = step.before["metadata"]["uid"], step.memory.looks
    end = find_verdict_time(step.before)
    if end is None or uid not in looks.shown:
        return None
    seconds = find_term(step.before, *looks.shown[uid])
    if seconds is None:
        return f"{show(step)} is deleted although nobody wants it gone"
    wrong = step.memory.timers.judge(end, seconds, step.now, since=looks.moments.get(uid, 0.0))
    return f"{show(step)} is deleted {wrong}" if wrong else None


@steps.invariant("I13")
def check_limits_are_exceeded(step: Step) -> str | None:
    if step.actor != LIMITS or not _is_deletion(step) or step.before is None:
        return None
    within = step.before["metadata"]["uid"] not in step.memory.looks.doomed
    return f"{show(step)} is deleted although it is within the limits" if within else None


@steps.invariant("I18")
def check_record_comes_first(step: Step) -> str | None:
    records = step.memory.looks.records
    if records is None or step.actor == "user" or not _is_deletion(step) or step.before is None:
        return None
    told, verdict = records.get(step.before["metadata"]["uid"]), find_verdict(step.bucket, step.before)
    if told is None:
        return f"{show(step)} is deleted before history has it"
    return f"{show(step)} is {verdict}, and history says {told}" if told != verdict else None


# At rest


def _find_data(rest: Rest) -> Mapping[str, str]:
    found = rest.objects.get(("configmaps", f"{policy.NAMESPACE}/{policy.NAME}"))
    return (found or {}).get("data") or {}


def _list_over(rest: Rest) -> Sequence[Object]:
    return [obj for bucket in TRAINING for obj in rest.list(bucket) if find_verdict(bucket, obj) and not is_going(obj)]


@quiescence.invariant("I13")
def check_no_job_outlives_its_term(rest: Rest) -> Iterable[str]:
    data = _find_data(rest)
    over = _list_over(rest)
    for job in over:
        runtime = (job["spec"].get("runtimeRef") or {}).get("name", "")
        seconds = find_term(job, rest.objects.get((RUNTIME_BUCKET, runtime)), data)
        if seconds is not None and seconds <= _SHORT:
            yield f"{get_name(job)} has outlived its TTL of {seconds} s"
        told = ((job.get("status") or {}).get("retention") or {}).get("ttlSecondsAfterFinished")
        if rest.publishes and told != seconds:
            yield f"{get_name(job)} says that it is kept for {told} s, and is kept for {seconds} s"
    beyond = list_doomed(over, data)
    yield from (f"{get_name(obj)} is beyond the limits" for obj in over if obj["metadata"]["uid"] in beyond)


@quiescence.invariant("I18")
def check_history_has_what_is_over(rest: Rest) -> Iterable[str]:
    for job in _list_over(rest):
        if rest.records is not None and job["metadata"]["uid"] not in rest.records:
            yield f"{get_name(job)} is over and history does not have it"


@quiescence.invariant("I7")
def check_nothing_of_a_gone_job_is_left(rest: Rest) -> Iterable[str]:
    """Not only by owner references: also objects with labels of a deleted JobSet."""
    uids = {obj["metadata"]["uid"] for obj in rest.objects.values()}
    for obj in rest.objects.values():
        gang = (obj["metadata"].get("labels") or {}).get(labels.JOBSET_UID)
        if gang is not None and gang not in uids:
            yield f"{get_name(obj)} is left of a JobSet that is gone"
        for owner in obj["metadata"].get("ownerReferences") or ():
            if BUCKETS.get(owner["kind"]) in TRAINING and owner["uid"] not in uids:
                yield f"{get_name(obj)} is left of {owner['kind']} {owner['name']}, which is gone"
