"""The usage of a Pod by resource name of ResourceQuotas. Pure.

Containers are added up; init containers run one after the other before them. Limits and requests are separate.
Used by the API server and by `explain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object

MUST_BE_SPECIFIED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")

Usage = dict[str, Fraction]


def list_unspecified(spec: Object, hard: Mapping[str, Any]) -> list[str]:
    """Resources that the quota limits but some container does not specify, although it has to."""
    missing: list[str] = []
    for resource in sorted(set(hard) & set(MUST_BE_SPECIFIED)):
        group, _, name = resource.rpartition(".")
        section = group or "requests"
        without = [
            container["name"]
            for container in spec.get("containers", [])
            if name not in (container.get("resources", {}).get(section) or {})
        ]
        if without:
            missing.append(f"{resource} for: {','.join(without)}")
    return missing


def measure_pod(spec: Object) -> Usage:
    usage: Usage = {name: Fraction(0) for name in MUST_BE_SPECIFIED}
    for section in ("requests", "limits"):
        total = _sum(spec.get("containers") or [], section)
        for container in spec.get("initContainers") or []:
            # One after the other, and before the others.
            for name, value in _amounts(container, section).items():
                total[name] = max(total.get(name, Fraction(0)), value)
        for name, value in total.items():
            usage[f"{section}.{name}"] = value
            if section == "requests" and name in ("cpu", "memory"):
                usage[name] = value
    return usage


def _amounts(container: Object, section: str) -> Usage:
    found: Mapping[str, Any] = (container.get("resources") or {}).get(section) or {}
    return {name: quantity.parse(value) for name, value in found.items()}


def _sum(containers: Sequence[Object], section: str) -> Usage:
    total: Usage = {}
    for container in containers:
        for name, value in _amounts(container, section).items():
            total[name] = total.get(name, Fraction(0)) + value
    return total
