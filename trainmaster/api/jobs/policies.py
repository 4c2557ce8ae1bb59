"""Validates spec.podFailurePolicy and spec.successPolicy of a Job, with upstream's messages."""

from __future__ import annotations

from trainmaster.api import fields
from trainmaster.api.fields import OMIT, FieldError
from trainmaster.api.jobs.indexes import check_indexes
from trainmaster.api.meta import Object
from trainmaster.api.validation import names

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_MOST_RULES = 20
_MOST_PATTERNS = 20
_MOST_CODES = 255
_LONGEST_INDEXES = 64 * 1024


def check_failure_policy(spec: Object, path: str) -> list[FieldError]:
    rules = spec["podFailurePolicy"].get("rules") or ()
    errors: list[FieldError] = []
    if len(rules) > _MOST_RULES:
        errors.append(fields.too_many(f"{path}.rules", len(rules), _MOST_RULES))
    pod = spec["template"]["spec"]
    containers = {
        container.get("name") for kind in ("containers", "initContainers") for container in pod.get(kind) or ()
    }
    for index, rule in enumerate(rules):
        errors += _check_rule(spec, rule, f"{path}.rules[{index}]", containers)
    return errors


def _check_rule(spec: Object, rule: Object, path: str, containers: set[str | None]) -> list[FieldError]:
    errors = _check_action(spec, rule.get("action", ""), f"{path}.action")
    codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        errors += _check_exit_codes(codes, f"{path}.onExitCodes", containers)
    if len(patterns) > _MOST_PATTERNS:
        errors.append(fields.too_many(f"{path}.onPodConditions", len(patterns), _MOST_PATTERNS))
    for index, pattern in enumerate(patterns):
        errors += _check_pattern(pattern, f"{path}.onPodConditions[{index}]")
    if codes is not None and patterns:
        text = "specifying both OnExitCodes and OnPodConditions is not supported"
        errors.append(fields.invalid(path, OMIT, text))
    if codes is None and not patterns:
        text = "specifying one of OnExitCodes and OnPodConditions is required"
        errors.append(fields.invalid(path, OMIT, text))
    return errors


def _check_action(spec: Object, action: str, path: str) -> list[FieldError]:
    if not action:
        return [fields.required(path, _list_values(_ACTIONS))]
    if action == "FailIndex":
        if "backoffLimitPerIndex" not in spec:
            return [fields.invalid(path, action, "requires the backoffLimitPerIndex to be set")]
        return []
    return [] if action in _ACTIONS else [fields.not_supported(path, action, _ACTIONS)]


def _check_exit_codes(codes: Object, path: str, containers: set[str | None]) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        errors.append(fields.required(f"{path}.operator", _list_values(_OPERATORS)))
    elif operator not in _OPERATORS:
        errors.append(fields.not_supported(f"{path}.operator", operator, _OPERATORS))
    if "containerName" in codes and codes["containerName"] not in containers:
        text = "must be one of the container or initContainer names in the pod template"
        errors.append(fields.invalid(f"{path}.containerName", codes["containerName"], text))
    if not values:
        errors.append(fields.invalid(f"{path}.values", codes.get("values"), "at least one value is required"))
    elif len(values) > _MOST_CODES:
        errors.append(fields.too_many(f"{path}.values", len(values), _MOST_CODES))
    for index, value in enumerate(values):
        if value == 0 and operator == "In":
            errors.append(fields.invalid(f"{path}.values[{index}]", 0, "must not be 0 for the In operator"))
        if value in values[:index]:
            errors.append(fields.duplicate(f"{path}.values[{index}]", value))
    if values != sorted(values):
        errors.append(fields.invalid(f"{path}.values", values, "must be ordered"))
    return errors


def _check_pattern(pattern: Object, path: str) -> list[FieldError]:
    kind, status = pattern.get("type", ""), pattern.get("status", "")
    errors = [fields.invalid(f"{path}.type", kind, text) for text in names.qualified(kind)]
    if not status:
        errors.append(fields.required(f"{path}.status", _list_values(_STATUSES)))
    elif status not in _STATUSES:
        errors.append(fields.not_supported(f"{path}.status", status, _STATUSES))
    return errors


def _list_values(values: tuple[str, ...]) -> str:
    words = " ".join(f'"{value}"' for value in values)
    return f"valid values: [{words}]"


def check_success_policy(spec: Object, path: str) -> list[FieldError]:
    """For an Indexed Job. Missing completions are reported elsewhere."""
    rules = spec["successPolicy"].get("rules") or ()
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        return [fields.required(f"{path}.rules", text)]
    errors: list[FieldError] = []
    if len(rules) > _MOST_RULES:
        errors.append(fields.too_many(f"{path}.rules", len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        errors += _check_success_rule(rule, f"{path}.rules[{index}]", spec.get("completions", 0))
    return errors


def _check_success_rule(rule: Object, path: str, completions: int) -> list[FieldError]:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        return [fields.required(path, "at least one of succeededCount or succeededIndexes must be specified")]
    errors: list[FieldError] = []
    total = 0
    if indexes is not None:
        if len(indexes) > _LONGEST_INDEXES:
            errors.append(fields.too_long(f"{path}.succeededIndexes", _LONGEST_INDEXES))
        total, problem = check_indexes(indexes, completions)
        if problem:
            text = f"error parsing succeededIndexes: {problem}"
            errors.append(fields.invalid(f"{path}.succeededIndexes", indexes, text))
    if count is None:
        return errors
    limit = "must be less than or equal to"
    where = f"{path}.succeededCount"
    if count < 0:
        errors.append(fields.invalid(where, count, "must be greater than or equal to 0"))
    if count > completions:
        errors.append(fields.invalid(where, count, f"{limit} {completions} (the number of specified completions)"))
    if indexes is not None and count > total:
        text = f"{limit} {total} (the number of indexes in the specified succeededIndexes field)"
        errors.append(fields.invalid(where, count, text))
    return errors
