"""Which control groups can be used, and what a limit becomes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.shim.protocol import ResourceLimits
from trainmaster.shim.sandbox.cgroups import Hierarchies, PodGroup, list_values, parse_hierarchies

pytestmark = pytest.mark.unit

LIMITS = ResourceLimits(memory=1 << 30, cpu_millis=1500, cpu_shares_millis=500, pids=100)


def make_v2(folder: Path, controllers: str = "cpu io memory pids") -> str:
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text("")
    return f"30 1 0:1 / {folder} rw - cgroup2 cgroup2 rw\n"


def make_v1(folder: Path, names: str) -> str:
    folder.mkdir(parents=True)
    return f"31 1 0:2 / {folder} rw - cgroup cgroup rw,{names}\n"


def test_the_unified_hierarchy_is_used_with_its_controllers(tmp_path: Path) -> None:
    found = parse_hierarchies(make_v2(tmp_path / "v2"), "0::/\n")
    assert (found.mode, found.unified) == ("v2", str(tmp_path / "v2"))
    assert found.limits == {"cpu", "memory", "pids"}


def test_where_our_own_group_is_busy_the_topmost_is_taken(tmp_path: Path) -> None:
    mounts = make_v2(tmp_path / "v2")
    own = tmp_path / "v2" / "session"
    own.mkdir()
    (own / "cgroup.controllers").write_text("cpu memory pids")  # and nothing can be handed down from it
    found = parse_hierarchies(mounts, "0::/session\n")
    assert (found.mode, found.unified) == ("v2", str(tmp_path / "v2"))
    (tmp_path / "v2" / "cgroup.type").write_text("domain")  # of a container: not the machine's topmost group
    found = parse_hierarchies(mounts, "0::/session\n")
    assert (found.mode, found.unified, found.limits) == ("none", str(own), frozenset())


def test_our_own_group_is_where_pods_go(tmp_path: Path) -> None:
    mounts = make_v1(tmp_path / "memory", "memory")
    (tmp_path / "memory" / "user" / "me").mkdir(parents=True)
    found = parse_hierarchies(mounts, "4:memory:/user/me\n0::/\n")
    assert found.v1 == {"memory": str(tmp_path / "memory" / "user" / "me")}


def test_on_mixed_machines_v1_limits_and_v2_kills(tmp_path: Path) -> None:
    mounts = (
        make_v2(tmp_path / "unified", "") + make_v1(tmp_path / "cpu", "cpu,cpuacct") + make_v1(tmp_path / "m", "memory")
    )
    found = parse_hierarchies(mounts, "0::/\n")
    assert (found.mode, found.unified) == ("v1", str(tmp_path / "unified"))
    assert found.limits == {"cpu", "cpuacct", "memory"}
    assert len(found.bases) == 3


def test_nothing_is_found_where_nothing_is_mounted() -> None:
    assert parse_hierarchies("22 1 0:1 / / rw - ext4 /dev/x rw\nbroken\n", "").mode == "none"


def test_limits_become_the_files_of_v2() -> None:
    values = list_values(Hierarchies("/c", frozenset({"cpu", "memory", "pids"})), LIMITS)
    assert values == [
        ("/c", "memory.max", 1 << 30),
        ("/c", "memory.swap.max", 0),
        ("/c", "cpu.max", "150000 100000"),
        ("/c", "cpu.weight", 20),
        ("/c", "pids.max", 100),
    ]


def test_limits_become_the_files_of_v1() -> None:
    values = list_values(Hierarchies(v1={"memory": "/m", "cpu": "/c"}), LIMITS)
    assert values == [
        ("/m", "memory.limit_in_bytes", 1 << 30),
        ("/m", "memory.memsw.limit_in_bytes", 1 << 30),
        ("/c", "cpu.cfs_period_us", 100_000),
        ("/c", "cpu.cfs_quota_us", 150_000),
        ("/c", "cpu.shares", 512),
    ]


def test_a_pod_without_limits_has_groups_only_where_they_kill(tmp_path: Path) -> None:
    for name in ("u", "m"):
        (tmp_path / name).mkdir()
    group = PodGroup(Hierarchies(str(tmp_path / "u"), frozenset(), {"memory": str(tmp_path / "m")}), "pod")
    group.build(ResourceLimits())
    assert [path.name for path in tmp_path.rglob("pod")] == ["pod"]
    group.remove()
    assert not list(tmp_path.glob("*/*"))


def test_usage_is_read_from_v2(tmp_path: Path) -> None:
    pod = tmp_path / "trainmaster" / "pod"
    pod.mkdir(parents=True)
    (pod / "cpu.stat").write_text("usage_usec 1500\nuser_usec 1\n")
    (pod / "memory.current").write_text("4096\n")
    (pod / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    group = PodGroup(Hierarchies(str(tmp_path), frozenset({"cpu", "memory"})), "pod")
    usage = group.read_usage()
    assert (usage.cpu_ns, usage.memory, group.count_oom_kills("")) == (1_500_000, 4096, 2)
