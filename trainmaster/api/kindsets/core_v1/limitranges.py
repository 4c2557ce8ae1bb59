"""LimitRange: defaults and bounds for single objects of a namespace."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import READ, Kind, UpdateRules
from trainmaster.api.fields import FieldError
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

_TYPES = {"Pod", "Container", "PersistentVolumeClaim"}


def default(limit_range: Object) -> None:
    """For containers, the default limit is the maximum, and the default request is the default limit."""
    if not limit_range.get("spec"):
        limit_range["spec"] = {"limits": []}
    for item in limit_range["spec"].get("limits") or ():
        if item.get("type") != "Container":
            continue
        limits = dict(item.get("max") or {}) | (item.get("default") or {})
        requests = dict(item.get("min") or {}) | limits | (item.get("defaultRequest") or {})
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, item in enumerate((new.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", item.get("type", "")
        complaints = names.qualified(kind)
        errors += [fields.invalid(f"{path}.type", kind, text) for text in complaints]
        if not complaints and "/" not in kind and kind not in _TYPES:
            errors.append(fields.invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified"))
        if kind in seen:
            errors.append(fields.duplicate(f"{path}.type", kind))
        seen.add(kind)
        if kind == "Pod":
            text = "may not be specified when `type` is 'Pod'"
            errors += [
                fields.forbidden(f"{path}.{name}", text) for name in ("default", "defaultRequest") if name in item
            ]
        errors += _check_order(item, path)
    return errors


def _check_order(item: Object, path: str) -> list[FieldError]:
    """min <= defaultRequest <= default <= max, for each resource that names both."""
    errors: list[FieldError] = []
    pairs = (
        ("min", "max", "min value {low} is greater than max value {high}"),
        ("defaultRequest", "max", "default request value {low} is greater than max value {high}"),
        ("defaultRequest", "default", "default request value {low} is greater than default limit value {high}"),
        ("default", "max", "default value {low} is greater than max value {high}"),
        ("min", "defaultRequest", "min value {low} is greater than default request value {high}"),
        ("min", "default", "min value {low} is greater than default value {high}"),
    )
    for lower, upper, text in pairs:
        low, high = item.get(lower) or {}, item.get(upper) or {}
        for name in low:
            if name in high and quantity.parse(low[name]) > quantity.parse(high[name]):
                detail = text.format(low=low[name], high=high[name])
                errors.append(fields.invalid(f"{path}.{lower}[{name}]", low[name], detail))
    return errors


LIMIT_RANGE = Kind(
    group="",
    version="v1",
    kind="LimitRange",
    plural="limitranges",
    singular="limitrange",
    namespaced=True,
    definition="io.k8s.api.core.v1.LimitRange",
    load=partial(load, "io.k8s.api.core.v1.LimitRange"),
    short_names=("limits",),
    columns=(cells.NAME, cells.CREATED),
    default=default,
    validate=validate,
    generation=False,
    updates=UpdateRules(creates=True),
    roles={"view": {"": READ}, "tenant": {"": READ}},
    fidelity={**OBJECT, "spec": H},
)
