"""The kernel limits of all Pods of a tenant together, from the quota of its namespace.

Read at every start of a Pod, so a changed quota applies from the next Pod on. Admission keeps the sum of Pods within
the quota; the tenant's control group is a second line of defence, and the only one for pids.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields
from trainmaster.api.resources import RESOURCE_QUOTAS
from trainmaster.api.status import NotFound
from trainmaster.api.tenancy import NAME, PIDS
from trainmaster.client.contract import Client
from trainmaster.jobs.models.quotas import ResourceQuota
from trainmaster.shim.protocol import ResourceLimits

_POD_PIDS = 1024
"""One Pod gets half of the tenant's pids, but at least this many."""
_OPEN_FILES = 65_536
_PENDING_SIGNALS = 16_384
"""Includes timers; the kernel counts both per Unix user."""


@dataclass(frozen=True, slots=True)
class TenantBudget:
    limits: ResourceLimits
    """For all Pods together."""

    @property
    def pod_pids(self) -> int:
        """Processes and threads of one Pod; 0 is no limit."""
        return min(self.limits.pids, max(_POD_PIDS, self.limits.pids // 2))


async def find_budget(client: Client, namespace: str) -> TenantBudget | None:
    """None if the namespace belongs to the owner."""
    try:
        quota = await client.get(RESOURCE_QUOTAS, NAME, namespace)
    except NotFound:
        return None
    return build_budget(ResourceQuota(quota).hard)


def build_budget(hard: Fields) -> TenantBudget:
    return TenantBudget(
        ResourceLimits(
            memory=_read(hard, "limits.memory", 1),
            cpu_millis=_read(hard, "limits.cpu", 1000),
            cpu_shares_millis=_read(hard, "limits.cpu", 1000),
            pids=_read(hard, PIDS, 1),
        )
    )


def build_rlimits(budget: TenantBudget) -> tuple[tuple[int, int], ...]:
    """For programs that run as the tenant's own Unix user: limits that the kernel counts per user or per process."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_SIGPENDING: _PENDING_SIGNALS,
    }
    if budget.limits.pids:
        wanted[resource.RLIMIT_NPROC] = budget.limits.pids
    return tuple(sorted(wanted.items()))


def _read(hard: Fields, name: str, scale: int) -> int:
    if name not in hard:
        return 0
    value = quantity.parse(hard[name]) * scale
    return max(1, int(value))
