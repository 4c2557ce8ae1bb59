"""Whose process it is: of a Pod, found through its shim, or of somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.node.devices.users import GpuUser, GpuUsers, describe_process
from trainmaster.shim.processes import list_ancestors, read_boot_id, read_start_ticks
from trainmaster.shim.protocol import Paths, ProcessIdentity, SandboxSpec, encode

pytestmark = pytest.mark.unit

NOBODY = 2**30


def write_pod(pods: Path, uid: str, shim: int, start_ticks: int | None = None) -> None:
    (pods / uid).mkdir(parents=True)
    paths = Paths(str(pods / uid))
    ticks = start_ticks if start_ticks is not None else read_start_ticks(shim)
    Path(paths.identity).write_bytes(encode(ProcessIdentity(shim, ticks or 0, read_boot_id())))
    Path(paths.pod).write_bytes(encode(SandboxSpec(uid, f"pod-{uid}", "team", "host")))


def test_a_process_below_a_shim_belongs_to_its_pod(tmp_path: Path) -> None:
    write_pod(tmp_path, "a", NOBODY, 7)
    write_pod(tmp_path, "b", os.getppid())
    (tmp_path / ".cache").mkdir()
    user = GpuUsers(tmp_path).find_user(os.getpid())
    assert user is not None and user.pod == ("team", "pod-b", "b")
    assert user.text.endswith(" of Pod team/pod-b") and user.text.startswith(f"process {os.getpid()} (")


def test_a_pid_that_was_a_shims_before_is_nobodys(tmp_path: Path) -> None:
    write_pod(tmp_path, "b", os.getppid(), 1)
    user = GpuUsers(tmp_path).find_user(os.getpid())
    assert user == GpuUser(os.getpid(), describe_process(os.getpid()))


def test_a_process_that_has_ended_belongs_to_nobody(tmp_path: Path) -> None:
    assert GpuUsers(tmp_path).find_user(NOBODY) is None
    assert GpuUsers().find_user(NOBODY) is None
    assert not GpuUsers().is_running(NOBODY) and GpuUsers().is_running(os.getpid())


def test_a_process_is_described_by_name_and_owner() -> None:
    text = describe_process(os.getpid())
    assert text.startswith(f"process {os.getpid()} (") and " of " in text
    assert describe_process(NOBODY) == f"process {NOBODY}"


def test_ancestors_end_at_the_top() -> None:
    ancestors = list_ancestors(os.getpid())
    assert ancestors[0] == os.getppid() and len(set(ancestors)) == len(ancestors)
    assert list_ancestors(NOBODY) == []
