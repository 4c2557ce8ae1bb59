"""How many processes a tenant has is shown in its quota."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.api.resources import RESOURCE_QUOTAS
from trainmaster.api.tenancy import PIDS, Allowance
from trainmaster.node.host.pids_report import PidsReport
from trainmaster.shim.sandbox.cgroups import Hierarchies
from trainmaster.tenancy.tenants import TenantRegister
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def test_the_tenants_control_group_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await TenantRegister(cluster.client, cluster.clock).add("ann", Allowance(), walled=True)
            report = PidsReport(cluster.client, cluster.clock, "home", Hierarchies(v1={"pids": str(tmp_path)}))
            group = tmp_path / "trainmaster" / "home-tenant-ann"
            group.mkdir(parents=True)
            for found in ("17", "3"):
                (group / "pids.current").write_text(f"{found}\n")
                await report.report()
                quota = await cluster.client.get(RESOURCE_QUOTAS, "tenant", "ann")
                assert quota["status"]["used"][PIDS] == found
            (group / "pids.current").unlink()
            await report.report()
            quota = await cluster.client.get(RESOURCE_QUOTAS, "tenant", "ann")
            assert quota["status"]["used"][PIDS] == "0"

    run_virtual(main())
