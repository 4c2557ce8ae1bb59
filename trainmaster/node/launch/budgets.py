"""What a tenant's Pods may take of the machine together: the quota of its namespace as limits for the kernel.

Read at every start of a Pod, so a changed quota holds from the next Pod on. Admission sees to it that the sum of what
Pods may use stays within the quota; the tenant's control group is the second wall, and the only one for pids.
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
"""One Pod alone gets half of the tenant's pids, or this many where that is more."""
_OPEN_FILES = 65_536
_PENDING_SIGNALS = 16_384
"""Timers count as well; both are counted per Unix user."""


@dataclass(frozen=True, slots=True)
class TenantBudget:
    limits: ResourceLimits
    """Of all Pods together."""

    @property
    def pod_pids(self) -> int:
        """Processes and threads of one Pod; 0 is no limit."""
        return min(self.limits.pids, max(_POD_PIDS, self.limits.pids // 2))


async def find_budget(client: Client, namespace: str) -> TenantBudget | None:
    """None where the namespace is nobody's but the owner's."""
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
    """For programs that run as the tenant's own Unix user: what the kernel counts per user or per process."""
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
