"""Reports in each tenant's quota how many processes and threads its Pods have, from the tenant's control group.

Without control groups the quota shows 0.
"""

from __future__ import annotations

import logging
from pathlib import Path

from trainmaster.api.resources import RESOURCE_QUOTAS
from trainmaster.api.status import StatusError
from trainmaster.api.tenancy import NAME, PIDS
from trainmaster.client.contract import Client, ListOptions, PatchType
from trainmaster.jobs.models.quotas import ResourceQuota
from trainmaster.kit.clock import Clock
from trainmaster.node.launch.sandboxes import name_tenant_group
from trainmaster.shim.sandbox import cgroups

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0


class PidsReport:
    """`home`: the prefix of this home's group names."""

    def __init__(self, client: Client, clock: Clock, home: str, hierarchies: cgroups.Hierarchies | None = None) -> None:
        self._client = client
        self._clock = clock
        self._home = home
        self._base = (hierarchies or cgroups.read_hierarchies()).find("pids")

    async def work(self) -> None:
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self.report()
            except StatusError as error:
                log.debug("pids not reported", extra={"error": str(error)})

    async def report(self) -> None:
        page = await self._client.list(RESOURCE_QUOTAS, "", ListOptions())
        for quota in map(ResourceQuota, page.items):
            if quota.name == NAME and PIDS in quota.hard:
                await self._write_used(quota)

    async def _write_used(self, quota: ResourceQuota) -> None:
        used = str(self._read(quota.namespace))
        if quota.used.get(PIDS, "0") == used:
            return
        body = {"status": {"used": {PIDS: used}}}
        await self._client.patch(RESOURCE_QUOTAS, NAME, PatchType.MERGE, body, quota.namespace, subresource="status")

    def _read(self, namespace: str) -> int:
        group = f"{self._base}/{cgroups.NODE_GROUP}/{name_tenant_group(self._home, namespace)}"
        try:
            return int(Path(group, "pids.current").read_text()) if self._base else 0
        except (OSError, ValueError):
            return 0  # none of its Pods is running
