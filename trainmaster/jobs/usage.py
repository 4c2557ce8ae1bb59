"""What Pods use now, and what they asked for: from the API of metrics (metrics.k8s.io), which kubectl top reads, too.

Works with any client; a cluster needs the metrics-server for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.api.formats import quantity
from trainmaster.api.meta import GVR, Fields
from trainmaster.api.pods.requests import CPU, count_requests, read_amounts
from trainmaster.api.reading import list_items, read_fields
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.models.pods import Pod

POD_METRICS = GVR("metrics.k8s.io", "v1beta1", "pods")


@dataclass(frozen=True, slots=True)
class GpuUsage:
    index: int
    id: str
    percent: int | None = None
    """None if the driver does not report it."""
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class PodMeasurement:
    """What a Pod uses."""

    cpu: float
    """In cores."""
    memory: int
    """In bytes."""
    gpus: tuple[GpuUsage, ...] = ()


@dataclass(frozen=True, slots=True)
class PodShare:
    """What a Pod may use."""

    cpu: float
    """Cores that it requested, or else its limit; 0 for neither."""
    memory: int
    """The limit of its memory in bytes; 0 for none."""


async def measure_pods(
    client: Client, namespace: str, options: ListOptions
) -> Mapping[tuple[str, str], PodMeasurement]:
    """By namespace and name; Pods that were not measured yet are missing. StatusError 404 or 503 if nothing measures
    them."""
    items = (await client.list(POD_METRICS, namespace, options)).items
    return {(item["metadata"].get("namespace", ""), item["metadata"]["name"]): _read_use(item) for item in items}


def _read_use(measured: Fields) -> PodMeasurement:
    return PodMeasurement(float(_add(measured, CPU)), int(_add(measured, "memory")))


def _add(measured: Fields, name: str) -> float:
    usages = (read_fields(container, "usage") for container in list_items(measured, "containers"))
    return float(sum(quantity.parse(usage.get(name, "0")) for usage in usages))


def read_share(pod: Pod) -> PodShare:
    requests, limits = count_requests(pod.spec), _add_limits(pod)
    return PodShare((requests.get(CPU) or limits.get(CPU, 0)) / 1000, limits.get("memory", 0))


def _add_limits(pod: Pod) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod.containers:
        for name, amount in read_amounts(read_fields(container, "resources", "limits")).items():
            total[name] = total.get(name, 0) + amount
    return total
