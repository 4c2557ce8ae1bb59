"""Validates status updates of Jobs, with upstream's messages, so that clients can rely on the transitions.

Most rules check only what a write changes: if a status already breaks a rule, its other fields can still be written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.fields import OMIT, FieldError
from trainmaster.api.jobs.indexes import check_indexes, parse_indexes
from trainmaster.api.meta import Object
from trainmaster.kit.clock import parse_time

_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")
_PATH = "status.conditions"


def check_status(new: Object, old: Object | None) -> list[FieldError]:
    old = old if old is not None else {**new, "status": {}}
    after, before = new.get("status") or {}, old.get("status") or {}
    errors = [
        fields.invalid(f"status.{name}", after[name], "must be greater than or equal to 0")
        for name in _COUNTS
        if after.get(name, 0) < 0
    ]
    errors += _check_uncounted(after)
    errors += _check_conditions(new, old)
    errors += _check_times(new, old)
    errors += _check_indexes(new, before)
    errors += _check_counts(new, old)
    return errors + _check_transition(new, old)


def _changes(after: Object, before: Object, *names: str) -> bool:
    return any(after.get(name) != before.get(name) for name in names)


def _turns(new: Object, old: Object, *kinds: str) -> bool:
    return any(cells.is_condition_true(new, kind) != cells.is_condition_true(old, kind) for kind in kinds)


def _is_finished(job: Object) -> bool:
    return cells.is_condition_true(job, "Complete") or cells.is_condition_true(job, "Failed")


def _check_uncounted(status: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for kind in ("succeeded", "failed"):
        for index, uid in enumerate((status.get("uncountedTerminatedPods") or {}).get(kind) or ()):
            path = f"status.uncountedTerminatedPods.{kind}[{index}]"
            if not uid:
                errors.append(fields.invalid(path, uid, "must not be empty"))
            elif uid in seen:
                errors.append(fields.duplicate(path, uid))
            seen.add(uid)
    return errors


def _check_conditions(new: Object, old: Object) -> list[FieldError]:
    """Checks conditions that exclude or require each other."""

    def has(kind: str) -> bool:
        return cells.is_condition_true(new, kind)

    complete, failed, target, met = (has(k) for k in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"))
    texts: list[str] = []
    if complete and failed and _turns(new, old, "Complete", "Failed"):
        texts.append("cannot set Complete=True and Failed=true conditions")
    if complete and target and _turns(new, old, "Complete", "FailureTarget"):
        texts.append("cannot set Complete=True and FailureTarget=true conditions")
    if failed and not target and _turns(new, old, "Failed"):
        texts.append("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not met and _turns(new, old, "Complete", "SuccessCriteriaMet"):
        texts.append("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if met and failed:
        texts.append("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if met and target:
        texts.append("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if complete and not met and new["spec"].get("successPolicy"):
        texts.append("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
    return _complain(texts)


def _complain(texts: Iterable[str]) -> list[FieldError]:
    return [fields.invalid(_PATH, OMIT, text) for text in texts]


def _check_times(new: Object, old: Object) -> list[FieldError]:
    after, before = new.get("status") or {}, old.get("status") or {}
    errors: list[FieldError] = []
    complete = cells.is_condition_true(new, "Complete")
    start, end = after.get("startTime"), after.get("completionTime")
    if _turns(new, old, "Complete") or _changes(after, before, "completionTime"):
        if end and not complete:
            text = "cannot set completionTime when there is no Complete=True condition"
            errors.append(fields.invalid("status.completionTime", end, text))
        if complete and not end:
            errors.append(fields.required("status.completionTime", "completionTime is required for Complete jobs"))
    if start and end and _changes(after, before, "startTime", "completionTime") and parse_time(end) < parse_time(start):
        errors.append(fields.invalid("status.completionTime", end, "must be equal to or after `startTime`"))
    ends = _is_finished(new) != _is_finished(old)
    spec = new["spec"]
    is_empty = spec.get("suspend") is True and spec.get("completions") == 0
    if _is_finished(new) and not start and (ends or _changes(after, before, "startTime")) and not is_empty:
        errors.append(fields.required("status.startTime", "startTime is required for finished job"))
    return errors


def _check_indexes(new: Object, before: Object) -> list[FieldError]:
    status, spec = new.get("status") or {}, new["spec"]
    completed, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    completions = spec.get("completions")
    errors: list[FieldError] = []
    if _changes(status, before, "completedIndexes"):
        if completions is not None:
            errors += _check_format("completedIndexes", completed, completions)
        if completed and spec.get("completionMode") != "Indexed":
            text = "cannot set non-empty completedIndexes when non-indexed completion mode"
            errors.append(fields.invalid("status.completedIndexes", completed, text))
    if failed is not None and _changes(status, before, "failedIndexes"):
        if "backoffLimitPerIndex" not in spec:
            text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            errors.append(fields.invalid("status.failedIndexes", failed, text))
        elif completions is not None:
            errors += _check_format("failedIndexes", failed, completions)
    if failed and completed and _changes(status, before, "failedIndexes", "completedIndexes"):
        both = set(parse_indexes(failed, completions)) & set(parse_indexes(completed, completions))
        if both:
            text = f"failedIndexes and completedIndexes overlap at index: {min(both)}"
            errors.append(fields.invalid("status.failedIndexes", failed, text))
    return errors


def _check_format(name: str, text: str, completions: int) -> list[FieldError]:
    _, problem = check_indexes(text, completions)
    return [fields.invalid(f"status.{name}", text, f"error parsing {name}: {problem}")] if problem else []


def _check_counts(new: Object, old: Object) -> list[FieldError]:
    after, before = new.get("status") or {}, old.get("status") or {}
    errors: list[FieldError] = []
    finished = _is_finished(new)
    ends = finished != _is_finished(old)
    for name in ("active", "terminating"):
        if finished and after.get(name, 0) > 0 and (ends or _changes(after, before, name)):
            errors.append(fields.invalid(f"status.{name}", after[name], f"{name}>0 is invalid for finished job"))
    uncounted: dict[str, Any] = after.get("uncountedTerminatedPods") or {}
    if finished and any(uncounted.values()) and (ends or _changes(after, before, "uncountedTerminatedPods")):
        errors.append(fields.invalid("status.uncountedTerminatedPods", uncounted, "must be empty for finished job"))
    if "ready" in after and after["ready"] > after.get("active", 0) and _changes(after, before, "ready", "active"):
        errors.append(fields.invalid("status.ready", after["ready"], "cannot set more ready pods than active"))
    return errors


def _check_transition(new: Object, old: Object) -> list[FieldError]:
    after, before = new.get("status") or {}, old.get("status") or {}
    kinds = ("Failed", "Complete", "FailureTarget")
    lost = [k for k in kinds if cells.is_condition_true(old, k) and not cells.is_condition_true(new, k)]
    errors = _complain(f"cannot disable the terminal {kind}=True condition" for kind in lost)
    spec = new["spec"]
    is_elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for name in ("failed", "succeeded"):
        if after.get(name, 0) < before.get(name, 0) and not (name == "succeeded" and is_elastic):
            errors.append(fields.invalid(f"status.{name}", after.get(name, 0), f"cannot decrease the {name} counter"))
    end, was = after.get("completionTime"), before.get("completionTime")
    if end and was and end != was:
        errors.append(fields.invalid("status.completionTime", end, "field is immutable"))
    resumes = cells.is_condition_true(old, "Suspended") and not cells.is_condition_true(new, "Suspended")
    if before.get("startTime") and _changes(after, before, "startTime") and not spec.get("suspend") and not resumes:
        text = "field is immutable for unsuspended job once set"
        errors.append(fields.invalid("status.startTime", after.get("startTime"), text))
    if cells.is_condition_true(old, "SuccessCriteriaMet") and not cells.is_condition_true(new, "SuccessCriteriaMet"):
        errors += _complain(["cannot disable the SuccessCriteriaMet=True condition"])
    return errors
