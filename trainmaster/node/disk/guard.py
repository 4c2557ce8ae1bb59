"""Protects the disk: checks free space every second, measures who uses it, and evicts Pods that use too much.

    every second          free space; when it runs out or falls fast, everybody is measured at once
    every five seconds    Pods with a limit, claims and budgets of namespaces with the quota `trainmaster.dev/storage`;
                          every second while the disk fills

The usage of a namespace is written to `status.used` of that quota, where `tenant list`, REST and admission read it.
Before anything is evicted, leftovers of finished Pods are removed. After an eviction it waits for the space to be
freed. `eviction` makes the decisions; the agent ends the Pods.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.api.formats import quantity
from trainmaster.api.resources import NAMESPACES, PERSISTENT_VOLUMES, RESOURCE_QUOTAS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.tenancy import STORAGE, is_tenant
from trainmaster.client.contract import Client, ListOptions, PatchType
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.quotas import ResourceQuota
from trainmaster.jobs.models.volumes import PersistentVolume
from trainmaster.kit.clock import Clock
from trainmaster.node.disk.eviction import (
    Claim,
    Eviction,
    PodUse,
    decide_budget,
    decide_claims,
    decide_own_limits,
    decide_pressure,
    read_amounts,
    show,
)
from trainmaster.node.disk.usage import FRESH_SECONDS, DiskUsage
from trainmaster.node.host.pressure import decide_thresholds

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_MEASURE_EVERY = 5
"""Checks between two measurements in normal operation."""
_BRISK = 16 << 20
"""If this much was written since the last check, somebody may be filling a budget."""
_AHEAD = 4
"""If this many times the growth since the last check would bring the disk below its threshold, everything is measured
immediately."""
_SELDOM = 60.0
"""Seconds between two measurements of what finished jobs left, which no longer grows."""
_PATIENCE = 15.0
"""Seconds to wait for the space of an evicted Pod."""


@dataclass(frozen=True, slots=True)
class GuardedPod:
    obj: Pod
    directory: str
    is_over: bool
    """None of its processes run any more."""
    results: str = ""
    """Directory of its TrainJob's checkpoints and outputs; empty for none."""
    claims: tuple[str, ...] = ()
    """Directories that it shares with other Pods and may write to: claims, and the cache of the owner's jobs."""

    @property
    def uid(self) -> str:
        return self.obj.uid

    @property
    def namespace(self) -> str:
        return self.obj.namespace


@dataclass(frozen=True, slots=True)
class GuardActions:
    """Callbacks into the agent."""

    list_pods: Callable[[], Awaitable[Sequence[GuardedPod]]]
    evict: Callable[[Eviction], None]
    drop_scratch: Callable[[str], Awaitable[None]]
    """For a finished Pod."""
    list_kept: Callable[[str], Awaitable[Sequence[str]]]
    """Directories that jobs of a namespace left: results and logs."""


@dataclass(slots=True)
class _Seen:
    calm: dict[str, int] = field(default_factory=dict)
    """By path: its size when the disk had space."""
    last: dict[str, int] = field(default_factory=dict)
    """By path: its size at the last check."""
    dropped: set[str] = field(default_factory=set)


class StorageGuard:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        usage: DiskUsage,
        actions: GuardActions,
        *,
        disk: Path,
        claims: Path,
        environments: Path,
        min_free: int,
    ) -> None:
        self._client = client
        self._clock = clock
        self._usage = usage
        self._actions = actions
        self._disk = disk
        self._claims = claims
        self._environments = environments
        self._min_free = min_free
        self._free: int | None = None
        self._looks = 0
        self._fresh = FRESH_SECONDS
        """How old a measurement may be."""
        self._seen = _Seen()
        self._kept: dict[str, tuple[float, int]] = {}
        """By path of what finished jobs left: when it was measured, and its size."""
        self._waits: tuple[str, float] | None = None
        """The Pod that was evicted last, and until when to wait for its space."""

    async def work(self) -> None:
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self.check()
            except (StatusError, OSError) as error:
                log.warning("disk not guarded", extra={"action": "node.disk_unguarded", "error": str(error)})

    async def check(self) -> None:
        free, total = _read_space(self._disk)
        soft, hard = decide_thresholds(total, self._min_free)
        taken = 0 if self._free is None else max(0, self._free - free)
        self._free = free
        urgent = free < soft or free - _AHEAD * taken < soft
        self._looks += 1
        brisk = taken > _BRISK
        if not urgent and not brisk and self._looks % _MEASURE_EVERY:
            return
        self._fresh = LOOK_SECONDS if brisk else FRESH_SECONDS
        pods = await self._actions.list_pods()
        if urgent and await self._drop_leftovers(pods):
            return
        budgets = await self._list_budgets()
        tenants = await self._list_tenants({pod.namespace for pod in pods})
        over = await self._keep_budgets(budgets, pods)
        uses = await self._measure_pods(pods, tenants, over, budgets, urgent=urgent)
        for eviction in (*decide_own_limits(uses), *decide_claims(await self._measure_claims(pods, tenants))):
            self._evict(eviction)
        if free >= soft:
            for use in uses:
                self._seen.calm[use.uid] = self._seen.last.get(use.uid, use.bytes)
        elif not self._is_waiting(pods):
            worst = decide_pressure(_read_space(self._disk)[0], soft, hard, uses)
            if worst is not None:
                self._waits = (worst.uid, self._clock.monotonic() + _PATIENCE)
                self._evict(worst)
        self._forget({pod.uid for pod in pods})

    def _evict(self, eviction: Eviction) -> None:
        log.warning("pod evicted", extra={"action": "node.evicted", "uid": eviction.uid, "why": eviction.message})
        self._actions.evict(eviction)

    def _is_waiting(self, pods: Sequence[GuardedPod]) -> bool:
        if self._waits is None:
            return False
        uid, until = self._waits
        if self._clock.monotonic() < until and any(pod.uid == uid and not pod.is_over for pod in pods):
            return True
        self._waits = None
        return False

    async def _drop_leftovers(self, pods: Sequence[GuardedPod]) -> bool:
        """Removes what finished Pods left, before evicting anything. Returns whether there was something."""
        found = [pod for pod in pods if pod.is_over and pod.uid not in self._seen.dropped]
        for pod in found:
            self._seen.dropped.add(pod.uid)
            await self._actions.drop_scratch(pod.uid)
            self._usage.forget(pod.directory)
        return bool(found)

    # Measuring

    async def _measure_pods(
        self,
        pods: Sequence[GuardedPod],
        tenants: set[str],
        over: set[str],
        budgets: Mapping[str, ResourceQuota],
        *,
        urgent: bool,
    ) -> list[PodUse]:
        uses = []
        for pod in pods:
            if pod.is_over:
                continue
            limit, request = read_amounts(pod.obj)
            if not (urgent or limit or pod.namespace in budgets):
                continue
            own = await self._measure(pod.directory, urgent=urgent)
            whole = own
            for path in (pod.results, *pod.claims):
                whole += await self._measure(path, urgent=urgent) if path else 0
            before = self._seen.calm.get(pod.uid, 0)
            self._seen.last[pod.uid] = whole
            name = pod.obj.name
            is_tenants, is_over = pod.namespace in tenants, pod.namespace in over
            uses.append(PodUse(pod.uid, name, pod.namespace, own, whole - before, limit, request, is_tenants, is_over))
        return uses

    async def _measure(self, path: str, *, urgent: bool = False) -> int:
        if urgent:
            self._usage.forget(path)
        return (await self._usage.measure(path, fresh=self._fresh)).bytes

    async def _measure_seldom(self, path: str) -> int:
        known, now = self._kept.get(path), self._clock.monotonic()
        if known is None or now - known[0] > _SELDOM:
            known = self._kept[path] = (now, await self._measure(path))
        return known[1]

    async def _list_tenants(self, names: set[str]) -> set[str]:
        found = set()
        for name in names:
            try:
                if is_tenant(await self._client.get(NAMESPACES, name)):
                    found.add(name)
            except NotFound:
                continue
        return found

    # Budgets of namespaces

    async def _list_budgets(self) -> dict[str, ResourceQuota]:
        """By namespace: the quota that limits its storage."""
        page = await self._client.list(RESOURCE_QUOTAS, "", ListOptions())
        return {quota.namespace: quota for quota in map(ResourceQuota, page.items) if STORAGE in quota.hard}

    async def _keep_budgets(self, budgets: Mapping[str, ResourceQuota], pods: Sequence[GuardedPod]) -> set[str]:
        """Measures and reports usage, and evicts growing Pods of namespaces over their quota. Returns those
        namespaces."""
        over = set()
        volumes = await self._list_volumes() if budgets else []
        for namespace, quota in budgets.items():
            own = [pod for pod in pods if pod.namespace == namespace]
            held = {path: await self._measure(path) for path in await self._list_paths(namespace, own, volumes)}
            grown = [self._note_growth(pod, held) for pod in own if not pod.is_over]
            used = sum(held.values())
            live = {pod.results for pod in own}
            for path in await self._actions.list_kept(namespace):
                used += 0 if path in live else await self._measure_seldom(path)
            budget = int(quantity.parse(quota.hard[STORAGE]))
            await self._write_used(quota, used)
            if used <= budget:
                continue
            over.add(namespace)
            eviction = decide_budget(namespace, used, budget, grown)
            if eviction is not None:
                self._evict(eviction)
        return over

    def _note_growth(self, pod: GuardedPod, held: Mapping[str, int]) -> PodUse:
        """Growth since the budget was last checked, from the same measurement; anything newer counts the next time."""
        own = held[pod.directory]
        whole = own + sum(held.get(path, 0) for path in (pod.results, *pod.claims))
        key = f"budget {pod.uid}"
        before = self._seen.last.get(key, 0)
        self._seen.last[key] = whole
        return PodUse(pod.uid, pod.obj.name, pod.namespace, own, whole - before)

    async def _list_paths(
        self, namespace: str, pods: Sequence[GuardedPod], volumes: Sequence[PersistentVolume]
    ) -> list[str]:
        paths = [pod.directory for pod in pods]
        for volume in volumes:
            if volume.claim.get("namespace") == namespace:
                paths.append(self._find_directory(volume))
        paths += [pod.results for pod in pods if pod.results]
        try:
            uid = (await self._client.get(NAMESPACES, namespace))["metadata"]["uid"]
            paths.append(str(self._environments / "namespaces" / uid))
        except NotFound:
            log.debug("namespace gone", extra={"namespace": namespace})
        return list(dict.fromkeys(paths))

    async def _list_volumes(self) -> list[PersistentVolume]:
        page = await self._client.list(PERSISTENT_VOLUMES, "", ListOptions())
        return [volume for volume in map(PersistentVolume, page.items) if volume.is_ours]

    def _find_directory(self, volume: PersistentVolume) -> str:
        return str(self._claims / os.path.basename(volume.handle or "none"))

    async def _measure_claims(self, pods: Sequence[GuardedPod], tenants: set[str]) -> list[Claim]:
        """Claims of tenants that a Pod is using."""
        used = {path for pod in pods if not pod.is_over and pod.namespace in tenants for path in pod.claims}
        claims = []
        for volume in await self._list_volumes() if used else ():
            path, ref = self._find_directory(volume), volume.claim
            if path not in used or ref.get("namespace") not in tenants:
                continue
            held = await self._measure(path)
            before = self._seen.last.get(path, 0)
            self._seen.last[path] = held
            size = int(quantity.parse(volume.capacity.get("storage", "0")))
            users = tuple(pod.uid for pod in pods if path in pod.claims and not pod.is_over)
            claims.append(Claim(str(ref.get("name")), str(ref.get("namespace")), held, size, held - before, users))
        return claims

    async def _write_used(self, quota: ResourceQuota, used: int) -> None:
        text = show(used)
        if quota.used.get(STORAGE) == text:
            return
        body = {"status": {"used": {STORAGE: text}}}
        await self._client.patch(
            RESOURCE_QUOTAS, quota.name, PatchType.MERGE, body, quota.namespace, subresource="status"
        )

    def _forget(self, present: set[str]) -> None:
        seen = self._seen
        seen.dropped &= present
        seen.calm = {uid: held for uid, held in seen.calm.items() if uid in present}
        seen.last = {
            key: held for key, held in seen.last.items() if key.startswith("/") or key.split(" ")[-1] in present
        }


def _read_space(path: Path) -> tuple[int, int]:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
