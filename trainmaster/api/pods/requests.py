"""What a Pod takes of a node: Kubernetes' rules for adding up the requests of its containers. Pure.

Containers run together; init containers one after the other, each beside the sidecars (init containers that restart
always) that began before it. Pod-level requests, where given, stand for the sum; overhead comes on top. Every Pod
takes one of `pods`. Amounts are whole numbers: CPU in thousandths, everything else in its own unit, rounded up.

The scheduler and the columns of the Node's allocated resources use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from trainmaster.api.formats import quantity

Amounts = dict[str, int]

CPU = "cpu"
GPU = "nvidia.com/gpu"
PODS = "pods"
_POD_LEVEL = ("cpu", "memory")


def read_amounts(listed: Mapping[str, Any] | None) -> Amounts:
    """A resource list of the wire (`{"cpu": "500m"}`) in whole numbers."""
    return {name: _read(name, str(text)) for name, text in listed.items()} if listed else {}


@lru_cache(maxsize=4096)
def _read(name: str, text: str) -> int:
    value = quantity.parse(text) * (1000 if name == CPU else 1)
    return -(-value.numerator // value.denominator)


def render_amount(name: str, amount: int) -> str:
    """For people: CPU in cores, memory in Mi or Gi."""
    if name == CPU:
        return f"{amount / 1000:g}"
    if name in ("memory", "ephemeral-storage"):
        return _render_bytes(amount)
    return str(amount)


def _render_bytes(amount: int) -> str:
    for suffix, size in (("Gi", 1024**3), ("Mi", 1024**2)):
        if abs(amount) >= size:
            return f"{amount / size:.4g}{suffix}"
    return str(amount)


def add(one: Mapping[str, int], other: Mapping[str, int], times: int = 1) -> Amounts:
    result = dict(one)
    for name, amount in other.items():
        result[name] = result.get(name, 0) + amount * times
    return result


def add_into(target: Amounts, other: Mapping[str, int], times: int = 1) -> None:
    for name, amount in other.items():
        target[name] = target.get(name, 0) + amount * times


def compute_maxima(*lists: Mapping[str, int]) -> Amounts:
    """Of each resource the largest amount."""
    result: Amounts = {}
    for amounts in lists:
        for name, amount in amounts.items():
            if amount > result.get(name, 0):
                result[name] = amount
    return result


def count_requests(spec: Mapping[str, Any]) -> Amounts:
    """All that a Pod of this spec takes, `pods: 1` included."""
    together = _add_all(_read_container(container) for container in spec.get("containers") or ())
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _read_container(container)
        if is_sidecar(container):
            add_into(sidecars, own)
            most = compute_maxima(most, sidecars)
        else:
            most = compute_maxima(most, add(sidecars, own))
    total = compute_maxima(add(together, sidecars), most)
    total.update(_read_pod_level(spec))
    add_into(total, read_amounts(spec.get("overhead")))
    total[PODS] = 1
    return {name: amount for name, amount in total.items() if amount}


def is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def count_devices(container: Mapping[str, Any], resource: str = GPU) -> int:
    return _read_container(container).get(resource, 0)


def _read_container(container: Mapping[str, Any]) -> Amounts:
    """Requests; a limit without a request asks for as much. (Pods are stored so, templates are not.)"""
    resources = container.get("resources")
    if not resources:
        return {}
    return {**read_amounts(resources.get("limits")), **read_amounts(resources.get("requests"))}


def _read_pod_level(spec: Mapping[str, Any]) -> Amounts:
    found = _read_container(spec)
    return {name: amount for name, amount in found.items() if name in _POD_LEVEL or name.startswith("hugepages-")}


def _add_all(lists: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for amounts in lists:
        add_into(total, amounts)
    return total
