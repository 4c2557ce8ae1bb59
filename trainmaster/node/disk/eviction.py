"""Decides which Pods are evicted because of the disk: over their own limit, over the tenant's budget, or DiskPressure.

Pure; `guard` carries it out. A Pod that exceeds its own or its namespace's limit has failed; one that is evicted
because the node's disk runs out was disrupted, as with the kubelet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.formats import quantity
from trainmaster.api.reading import read_fields
from trainmaster.jobs.models.pods import Pod

MIB = 1024**2
LEAST = MIB
"""Growth below this is ignored: logs, small files."""
RESOURCE = "ephemeral-storage"


@dataclass(frozen=True, slots=True)
class PodUse:
    """Disk usage of one Pod."""

    uid: str
    name: str
    namespace: str
    bytes: int
    """What is removed with it: emptyDirs, working directory, writable layers, logs."""
    growth: int = 0
    """Growth of that, and of claims and outputs that it writes, since there was no pressure (or since the last
    check)."""
    limit: int = 0
    request: int = 0
    is_tenants: bool = False
    is_over_budget: bool = False
    """Its namespace exceeds its storage quota."""

    @property
    def is_over_own(self) -> bool:
        return bool(self.limit and self.bytes > self.limit) or bool(self.request and self.bytes > self.request)


@dataclass(frozen=True, slots=True)
class Eviction:
    uid: str
    message: str
    is_disruption: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim of a tenant."""

    name: str
    namespace: str
    bytes: int
    size: int
    growth: int
    users: tuple[str, ...]
    """Uids of the Pods that may write to it."""


def read_amounts(pod: Pod) -> tuple[int, int]:
    """(limit, request), summed over its containers; 0 if there is none."""
    return _add_up(pod, "limits"), _add_up(pod, "requests")


def _add_up(pod: Pod, section: str) -> int:
    found = []
    for container in pod.containers:
        amounts = read_fields(container, "resources", section)
        if RESOURCE in amounts:
            found.append(int(quantity.parse(amounts[RESOURCE])))
    return sum(found)


def show(size: int) -> str:
    return quantity.canonical(f"{-(-size // 1024)}Ki")


def decide_own_limits(pods: Sequence[PodUse]) -> list[Eviction]:
    """Uses upstream's messages."""
    text = "Pod ephemeral local storage usage exceeds the total limit of containers {}. "
    return [Eviction(pod.uid, text.format(show(pod.limit))) for pod in pods if pod.limit and pod.bytes > pod.limit]


def decide_budget(namespace: str, used: int, budget: int, pods: Sequence[PodUse]) -> Eviction | None:
    """The fastest-growing Pod is evicted first; Pods that do not grow may stay."""
    if used <= budget:
        return None
    growing = [pod for pod in pods if pod.namespace == namespace and pod.growth >= LEAST // 16]
    if not growing:
        return None
    worst = max(growing, key=lambda pod: (pod.growth, pod.bytes, pod.uid))
    return Eviction(
        worst.uid,
        f"namespace {namespace} keeps {show(used)} on the disk and may keep {show(budget)} (quota "
        f"trainmaster.dev/storage): Pod {worst.name}, which added {show(worst.growth)}, is stopped. ",
    )


def decide_claims(claims: Sequence[Claim]) -> list[Eviction]:
    """Evicts Pods that may have written to a growing claim that exceeds its size."""
    found = []
    for claim in claims:
        if claim.bytes > claim.size and claim.growth > 0:
            text = f"PersistentVolumeClaim {claim.name} holds {show(claim.bytes)}, more than its {show(claim.size)}. "
            found += [Eviction(uid, text) for uid in claim.users]
    return found


def decide_pressure(free: int, soft: int, hard: int, pods: Sequence[PodUse]) -> Eviction | None:
    """One Pod at a time: one that grew since the disk had space, tenants before the owner. Below `hard` it may also be
    one that only holds much. Pods with little data are never evicted, because that would free nothing."""
    if free >= soft:
        return None
    candidates = [pod for pod in pods if pod.growth >= LEAST or (free < hard and pod.bytes >= LEAST)]
    if not candidates:
        return None
    worst = min(candidates, key=_rank)
    return Eviction(
        worst.uid,
        f"The node was low on resource: {RESOURCE}. Threshold quantity: {show(soft)}, available: {show(free)}. "
        f"Pod {worst.name} was using {show(worst.bytes)}, request is {show(worst.request)}, and added "
        f"{show(max(worst.growth, 0))} since the disk had room. ",
        is_disruption=True,
    )


def _rank(pod: PodUse) -> tuple[bool, bool, bool, bool, int, int, str]:
    return (
        pod.growth < LEAST,
        not pod.is_tenants,
        not pod.is_over_own,
        not pod.is_over_budget,
        -pod.growth,
        -pod.bytes,
        pod.uid,
    )
