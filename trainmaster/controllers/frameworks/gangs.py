"""The total of a gang: the number of its Pods and the sum of their requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.api.training.steps import list_containers

_MILLI = 1000

Measures: TypeAlias = Mapping[str, tuple[Fraction, str]]
"""By resource: how much, and an amount whose way of writing the total has."""


def sum_members(jobs: Sequence[Object], counts: Mapping[str, int]) -> int:
    return sum(int(job.get("replicas") or 1) * counts.get(job["name"], 1) for job in jobs)


def sum_requests(jobs: Sequence[Object], counts: Mapping[str, int]) -> dict[str, str]:
    return sum_measures((_measure_pod(job), int(job.get("replicas") or 1) * counts.get(job["name"], 1)) for job in jobs)


def sum_measures(parts: Iterable[tuple[Measures, int]]) -> dict[str, str]:
    """Each as often as the number beside it."""
    totals: dict[str, Fraction] = {}
    samples: dict[str, str] = {}
    for measures, times in parts:
        for name, (amount, sample) in measures.items():
            totals[name] = totals.get(name, Fraction(0)) + amount * times
            samples.setdefault(name, sample)
    return {name: _show(total, samples[name]) for name, total in sorted(totals.items())}


def measure(resources: Fields) -> Measures:
    """Amounts that cannot be parsed are left out; the server refuses the Pods."""
    return {name: (quantity.parse(value), str(value)) for name, value in resources.items() if quantity.is_valid(value)}


def _measure_pod(job: Object) -> Measures:
    """As in Kubernetes: the sum of all containers, or the largest init container if that is more."""
    sums: dict[str, tuple[Fraction, str]] = {}
    for container in list_containers(job):
        for name, value in read_fields(container, "resources", "requests").items():
            before = sums.get(name, (Fraction(0), str(value)))
            sums[name] = (before[0] + quantity.parse(value), before[1])
    for container in list_containers(job, "initContainers"):
        for name, value in read_fields(container, "resources", "requests").items():
            amount = quantity.parse(value)
            if amount > sums.get(name, (Fraction(0), ""))[0]:
                sums[name] = (amount, str(value))
    return sums


def _show(total: Fraction, sample: str) -> str:
    """Written with the same family of suffixes as the first request."""
    if sample.endswith("i") and total.denominator == 1:
        whole = total.numerator
        return quantity.canonical(f"{whole // 1024}Ki" if whole % 1024 == 0 else str(whole))
    return quantity.canonical(f"{-(-(total * _MILLI).numerator // (total * _MILLI).denominator)}m")
