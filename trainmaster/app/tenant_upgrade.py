"""Adds new limits to tenants of an earlier version, once, at the first start of this version.

Existing limits are not changed: only resources that the quota does not name are added, with the defaults of
`tenant add`, or with twice the current usage if that is more. A completed quota is marked, so that limits which an
administrator removes later are not added again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from trainmaster.api import tenancy
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_annotations, read_fields
from trainmaster.api.resources import LIMIT_RANGES, NAMESPACES, RESOURCE_QUOTAS
from trainmaster.api.status import NotFound
from trainmaster.api.tenancy import (
    ALL_KEYS,
    COMPLETED,
    EVENTS_KEY,
    JOBS_KEY,
    NAME,
    OBJECT_BYTES,
    OBJECT_KEYS,
    V1_JOB_KEYS,
    Allowance,
)
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.quotas import list_counts
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.client.contract import Client, ListOptions, PatchType
from trainmaster.tenancy.register import Register

log = logging.getLogger(__name__)

_COUNTED = (*OBJECT_KEYS, *V1_JOB_KEYS, EVENTS_KEY)


async def upgrade_tenants(client: Client, registry: ObjectRegistry) -> int:
    """Returns the number of completed quotas. Idempotent."""
    carried = await Register(client).carry_over()
    if carried:
        log.info("tenants carried over", extra={"action": "tenants.carried_over", "count": carried})
    done = 0
    namespaces = await client.list(NAMESPACES, options=ListOptions(label_selector=tenancy.TENANT))
    for namespace in namespaces.items:
        name = namespace["metadata"]["name"]
        if await _complete(client, registry, name):
            log.info("quota completed", extra={"action": "tenants.completed", "tenant": name})
            done += 1
    return done


async def _complete(client: Client, registry: ObjectRegistry, name: str) -> bool:
    try:
        quota = await client.get(RESOURCE_QUOTAS, NAME, name)
    except NotFound:
        return False  # `tenant add` was interrupted; repeating it completes the tenant
    completed, before = read_annotations(quota).get(COMPLETED), read_fields(quota, "spec", "hard")
    if completed == ALL_KEYS:
        return False
    used = _count(registry, name)
    if completed is None:
        hard = build_completion(before, used)
        await _complete_limits(client, name, hard)
    else:
        hard = limit_v1_jobs(before, used)
    patch = {"metadata": {"annotations": {COMPLETED: ALL_KEYS}}, "spec": {"hard": hard}}
    await client.patch(RESOURCE_QUOTAS, NAME, PatchType.MERGE, patch, name)
    return True


def build_completion(hard: Mapping[str, str], used: Mapping[str, int]) -> dict[str, str]:
    """The quota completed with the missing resources. `used`: the current numbers of objects and bytes."""
    found = dict(hard)
    for name, usual in Allowance().to_hard().items():
        if name not in V1_JOB_KEYS:
            found.setdefault(name, _choose_limit(usual, used.get(name, 0)))
    found = limit_v1_jobs(found, used)
    for resource in ("cpu", "memory"):
        if f"requests.{resource}" in hard:
            found.setdefault(f"limits.{resource}", hard[f"requests.{resource}"])
    return found


def limit_v1_jobs(hard: Mapping[str, str], used: Mapping[str, int]) -> dict[str, str]:
    """The quota with the limit of TrainJobs for jobs of each v1 kind, if it has one."""
    if JOBS_KEY not in hard:
        return dict(hard)
    return {**{name: _choose_limit(hard[JOBS_KEY], used.get(name, 0)) for name in V1_JOB_KEYS}, **hard}


def _choose_limit(usual: str, used: int) -> str:
    return usual if quantity.parse(usual) >= 2 * used else str(2 * used)


def _count(registry: ObjectRegistry, namespace: str) -> dict[str, int]:
    used = {OBJECT_BYTES: registry.store.measure(namespace)}
    for kind in registry.catalogue.kinds:
        if kind.namespaced:
            number = registry.store.count(stored.bucket(kind), f"{namespace}/")
            used |= {name: number for name in list_counts(kind) if name in _COUNTED}
    return used


async def _complete_limits(client: Client, name: str, hard: Mapping[str, str]) -> None:
    """Adds default limits to the LimitRange where it has default requests, because a quota on limits requires them."""
    wanted = tenancy.build_limit_range(hard)
    if wanted is None:
        return
    try:
        found = await client.get(LIMIT_RANGES, NAME, name)
    except NotFound:
        await client.create(LIMIT_RANGES, wanted, name)
        return
    limits: list[Object] = [dict(entry) for entry in list_items(found, "spec", "limits")]
    given = wanted["spec"]["limits"][0]["default"]
    for entry in limits:
        if entry.get("type") == "Container":
            requests = read_fields(entry, "defaultRequest")
            wanted_limits = {key: requests.get(key, amount) for key, amount in given.items()}
            entry["default"] = {**wanted_limits, **read_fields(entry, "default")}
    await client.patch(LIMIT_RANGES, NAME, PatchType.MERGE, {"spec": {"limits": limits}}, name)
