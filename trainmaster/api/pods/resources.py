"""Requests and limits: the rules of a container's resources, and the class of service that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.validation import names

STANDARD = {"cpu", "memory", "ephemeral-storage"}
_CONTAINER_ONLY = "must be a standard resource for containers"


def is_standard(name: str) -> bool:
    return name in STANDARD or name.startswith("hugepages-")


def check(resources: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    limits: Mapping[str, str] = resources.get("limits") or {}
    requests: Mapping[str, str] = resources.get("requests") or {}
    named = {*limits, *requests}
    if any(name.startswith("hugepages-") for name in named) and not named & {"cpu", "memory"}:
        errors.append(fields.forbidden(path, "HugePages require cpu or memory"))
    for name, value in limits.items():
        errors += _check_one(f"{path}.limits[{name}]", name, value)
    for name, value in requests.items():
        errors += _check_one(f"{path}.requests[{name}]", name, value)
        limit = limits.get(name)
        if limit == value:
            continue
        if not _may_exceed(name):
            if limit is None:
                text = "Limit must be set for non overcommitable resources"
                errors.append(fields.required(f"{path}.limits", text))
            elif quantity.parse(limit) != quantity.parse(value):
                errors.append(fields.invalid(f"{path}.requests", value, f"must be equal to {name} limit of {limit}"))
        elif limit is not None and quantity.parse(value) > quantity.parse(limit):
            text = f"must be less than or equal to {name} limit of {limit}"
            errors.append(fields.invalid(f"{path}.requests", value, text))
    return errors


def _may_exceed(name: str) -> bool:
    """Whether a request may be lower than its limit. Devices and huge pages can not be overcommitted."""
    return "/" not in name and not name.startswith("hugepages-")


def _check_one(path: str, name: str, value: str) -> list[FieldError]:
    amount = quantity.parse(value)
    if name in STANDARD and amount >= 0:
        return []
    errors = [fields.invalid(path, name, text) for text in names.qualified(name)]
    if not errors and "/" not in name and not is_standard(name):
        errors.append(fields.invalid(path, name, "must be a standard resource type or fully qualified"))
        errors.append(fields.invalid(path, name, _CONTAINER_ONLY))
    if amount < 0:
        errors.append(fields.invalid(path, value, "must be greater than or equal to 0"))
    elif "/" in name and amount.denominator != 1:
        errors.append(fields.invalid(path, value, "must be an integer"))
    return errors


def quality_of_service(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, from CPU and memory of all containers."""
    guaranteed, anything = True, False
    for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            anything = anything or _is_positive(limits, name) or _is_positive(requests, name)
            if not _is_positive(limits, name) or requests.get(name, limits.get(name)) != limits.get(name):
                guaranteed = False
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _is_positive(amounts: Mapping[str, str], name: str) -> bool:
    return name in amounts and quantity.parse(amounts[name]) > 0
