"""How many GPUs and CPUs one node of a job has, from requests and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object

_MOST = 2**31 - 1
"""Nobody has more, and programs count in 32 bits."""


def count_gpus(resources: Mapping[str, Any]) -> int:
    """Any resource with `gpu` in its name counts, requests before limits, as upstream."""
    for side in ("requests", "limits"):
        for name, amount in sorted((resources.get(side) or {}).items()):
            if "gpu" in name.lower() and (count := _round_up(amount)):
                return count
    return 0


def count_cpus(resources: Mapping[str, Any]) -> int:
    for side in ("requests", "limits"):
        count = _round_up((resources.get(side) or {}).get("cpu", 0))
        if count:
            return count
    return 0


def _round_up(amount: Any) -> int:
    """A CPU or device count rounded up; what is no such count is zero (admission has refused it)."""
    try:
        value = quantity.parse(str(amount))
    except ValueError:
        return 0
    return min(-(-value.numerator // value.denominator), _MOST)


def merge_resources(low: Mapping[str, Any], high: Mapping[str, Any]) -> Object:
    """Per resource name, `high` wins; a side that only one has is kept."""
    merged = dict(low)
    for side in ("limits", "requests"):
        if high.get(side):
            merged[side] = {**(low.get(side) or {}), **high[side]}
    return canonical_resources(merged)


def canonical_resources(resources: Mapping[str, Any]) -> Object:
    """With quantities as a typed client writes them: 8 becomes "8", 0.5 becomes "500m"."""
    result = dict(resources)
    for side in ("limits", "requests"):
        if result.get(side):
            result[side] = {
                name: quantity.canonical(value) if quantity.is_valid(value) else value
                for name, value in result[side].items()
            }
    return result
