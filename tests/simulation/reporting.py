"""Invariants of progress reports (I19): those of the current attempt stay, those of earlier attempts are removed.

Reports contain their sender, so the first is checked at every write, without a clock. The second is checked at rest, by
the stored times. Imported for its checks, which register themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.simulation import quiescence, steps
from tests.simulation.quiescence import Rest, get_name
from tests.simulation.steps import JOB_SETS, JOBS, TRAIN_JOBS, Step, find_verdict, get_number, show
from trainmaster.api import labels
from trainmaster.api.meta import Object


def find_report(trainjob: Object | None) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = ((trainjob or {}).get("status") or {}).get("trainerStatus")
    return found


def read_marks(report: Mapping[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in report.get("metrics") or ()}


@steps.invariant("I19")
def check_words_stay(step: Step) -> str | None:
    """Reports of the current attempt are never removed."""
    before = find_report(step.before)
    if step.bucket != TRAIN_JOBS or before is None or step.after is None or find_report(step.after) is not None:
        return None
    jobset = step.shadow.get((JOB_SETS, step.name))
    marks = read_marks(before)
    if jobset is None or jobset["metadata"]["uid"] != marks["jobset"]:
        return None
    if int(marks["attempt"]) < get_number(jobset, "restarts"):
        return None
    if not any(bucket == JOBS and obj["metadata"]["uid"] == marks["job"] for (bucket, _), obj in step.shadow.items()):
        return None  # somebody deleted the Job, and the attempt begins once more
    return f"{show(step)}: {step.actor} takes away what attempt {marks['attempt']} said, and it is the present one"


@quiescence.invariant("I19")
def check_words_of_the_past_are_gone(rest: Rest) -> Iterable[str]:
    for trainjob in rest.list(TRAIN_JOBS):
        report, jobset = find_report(trainjob), rest.find_jobset(trainjob)
        if report is None or jobset is None or find_verdict(TRAIN_JOBS, trainjob):
            continue
        began = _find_beginning(rest, jobset)
        if began and report["lastUpdatedTime"] <= began:
            yield f"{get_name(trainjob)} still shows what was said before {began}"


def _find_beginning(rest: Rest, jobset: Object) -> str:
    restarts = get_number(jobset, "restarts")
    if not restarts:
        return str(jobset["metadata"]["creationTimestamp"])
    jobs = rest.list_owned(JOBS, jobset)
    new = [job for job in jobs if job["metadata"].get("labels", {}).get(labels.RESTART_ATTEMPT) == str(restarts)]
    return min((str(job["metadata"]["creationTimestamp"]) for job in new), default="")
