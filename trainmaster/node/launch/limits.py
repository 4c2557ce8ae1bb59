"""Converts resources of containers to kernel limits. Pure; the node reports whether a level can enforce them."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_fields
from trainmaster.jobs.models.pods import Pod
from trainmaster.shim.protocol import ResourceLimits


def build_limits(container: Fields) -> ResourceLimits:
    limits, requests = read_fields(container, "resources", "limits"), read_fields(container, "resources", "requests")
    return ResourceLimits(
        memory=_amount(limits, "memory", 1),
        cpu_millis=_amount(limits, "cpu", 1000),
        cpu_shares_millis=_count_shares(limits, requests),
    )


def build_pod_limits(pod: Pod, pids: int = 0) -> ResourceLimits:
    """The sum over the containers, or the largest init container if that is more. There is no limit if any container
    has none, and the usual share of the CPUs if no container requests any: the small request of an init container must
    not slow down a program that runs for days. `pids`: how many processes and threads the Pod may have; Kubernetes has
    no field for it."""
    main = [build_limits(entry) for entry in pod.containers]
    first = [build_limits(entry) for entry in pod.init_containers]
    shares = sum(entry.cpu_shares_millis for entry in main)
    return ResourceLimits(
        memory=_combine((entry.memory for entry in main), (entry.memory for entry in first)),
        cpu_millis=_combine((entry.cpu_millis for entry in main), (entry.cpu_millis for entry in first)),
        cpu_shares_millis=max(shares, *(entry.cpu_shares_millis for entry in first), 0) if shares else 0,
        pids=pids,
    )


def _combine(main: Iterable[int], first: Iterable[int]) -> int:
    amounts, before = list(main), list(first)
    if not all(amounts) or not all(before):
        return 0
    return max(sum(amounts), *before, 0)


def _count_shares(limits: Fields, requests: Fields) -> int:
    """As in the kubelet: a request of 0 has the least weight, a missing one that of the limit."""
    return max(1, _amount(requests, "cpu", 1000)) if "cpu" in requests else _amount(limits, "cpu", 1000)


def _amount(amounts: Fields, name: str, scale: int) -> int:
    if name not in amounts:
        return 0
    value = quantity.parse(amounts[name]) * scale
    return int(-(-value.numerator // value.denominator))
