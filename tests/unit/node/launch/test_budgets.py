"""What the quota of a tenant becomes for the kernel."""

from __future__ import annotations

import resource

import pytest

from trainmaster.node.launch.budgets import build_budget, build_rlimits
from trainmaster.shim.protocol import ResourceLimits, SandboxSpec, decode, encode

pytestmark = pytest.mark.unit


def test_the_quota_becomes_limits_of_all_pods_together() -> None:
    budget = build_budget({"limits.memory": "256Mi", "limits.cpu": "1500m", "trainmaster.dev/pids": "64", "pods": "3"})
    assert budget.limits == ResourceLimits(memory=256 << 20, cpu_millis=1500, cpu_shares_millis=1500, pids=64)


@pytest.mark.parametrize(("tenant", "pod"), [("64", 64), ("1k", 1000), ("1500", 1024), ("4096", 2048)])
def test_one_pod_does_not_get_all_pids_of_a_large_tenant(tenant: str, pod: int) -> None:
    assert build_budget({"trainmaster.dev/pids": tenant}).pod_pids == pod


def test_a_quota_of_before_limits_no_pids() -> None:
    budget = build_budget({"count/trainjobs.trainer.kubeflow.org": "100"})
    assert budget.pod_pids == 0
    assert resource.RLIMIT_NPROC not in dict(build_rlimits(budget))


def test_no_quota_means_less_than_one_of_anything() -> None:
    """0 would be no limit."""
    assert build_budget({"limits.memory": "0", "trainmaster.dev/pids": "0"}).limits == ResourceLimits(memory=1, pids=1)


def test_shims_are_told() -> None:
    spec = SandboxSpec(
        "u", "n", "ann", "h", tenant_cgroup="a-tenant-ann", tenant_limits=ResourceLimits(memory=5, pids=6)
    )
    assert decode(SandboxSpec, encode(spec)) == spec
