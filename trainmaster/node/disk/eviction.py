"""Which Pod has to go because of the disk: over its own limit, over its tenant's budget, or under DiskPressure. Pure.

Carried out by `storage_guard`. A Pod that took more than it or its namespace may have has failed by its own doing; one
that goes because the disk of the node runs out was disrupted, as with the kubelet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.formats import quantity
from trainmaster.api.reading import read_fields
from trainmaster.jobs.models.pods import Pod

MIB = 1024**2
LEAST = MIB
"""Growth below this is nobody's fault: logs, small files."""
RESOURCE = "ephemeral-storage"


@dataclass(frozen=True, slots=True)
class PodUse:
    """What one Pod takes of the disk."""

    uid: str
    name: str
    namespace: str
    bytes: int
    """What goes with it: emptyDirs, working directory, writable layers, logs."""
    growth: int = 0
    """Of that, and of claims and outputs that it writes, since all was well (or since the last look)."""
    limit: int = 0
    request: int = 0
    is_tenants: bool = False
    is_over_budget: bool = False
    """Its namespace keeps more on the disk than it may."""

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
    """(limit, request) of its containers together; 0 where none names one."""
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
    """Upstream's words."""
    text = "Pod ephemeral local storage usage exceeds the total limit of containers {}. "
    return [Eviction(pod.uid, text.format(show(pod.limit))) for pod in pods if pod.limit and pod.bytes > pod.limit]


def decide_budget(namespace: str, used: int, budget: int, pods: Sequence[PodUse]) -> Eviction | None:
    """The Pod that grows most goes first; whoever does not grow may stay, and may tidy up."""
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
    """Whoever may have written to a claim that holds more than its size, while it grows."""
    found = []
    for claim in claims:
        if claim.bytes > claim.size and claim.growth > 0:
            text = f"PersistentVolumeClaim {claim.name} holds {show(claim.bytes)}, more than its {show(claim.size)}. "
            found += [Eviction(uid, text) for uid in claim.users]
    return found


def decide_pressure(free: int, soft: int, hard: int, pods: Sequence[PodUse]) -> Eviction | None:
    """One Pod at a time: who grew since the disk had room, tenants before the owner. Below `hard` it may also be one
    that only holds much. Nobody goes who takes next to nothing: that would free nothing."""
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
