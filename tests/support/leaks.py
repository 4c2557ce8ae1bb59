"""What Pods may leave on a machine, as a set that a test compares before and after.

Mounts of this mount namespace, network interfaces of this network, control groups, processes. Groups and processes
count when they carry the test's mark (in a Pod's uid, in the path of the Pods' root) or belong to the test's own user,
so that others may use the machine at the same time; the small disks of other tests do not count. `assert_nothing_left`
waits, because the kernel takes namespaces down in its own time, and processes of the marked Pods hold all there are of
them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.small_disk import DEVICE
from trainmaster.shim.sandbox.cgroups import NODE_GROUP, read_hierarchies

_PATIENCE = 30.0


def take_stock(mark: str, user: int | None = None) -> set[str]:
    """Everything that exists now and could belong to the test."""
    return {
        *_list_mounts(),
        *(f"interface {name}" for name in os.listdir("/sys/class/net")),
        *_list_groups(mark),
        *_list_processes(mark, user),
    }


def _list_mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, device = after.split()[:2]
        if device != DEVICE:
            yield f"mount {kind} on {before.split()[4]}"


def _list_groups(mark: str) -> Iterator[str]:
    for base in read_hierarchies().bases:
        for folder, names, _ in os.walk(f"{base}/{NODE_GROUP}"):
            yield from (f"group {folder}/{name}" for name in names if mark in f"{folder}/{name}")


def _list_processes(mark: str, user: int | None) -> Iterator[str]:
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes() + Path(f"/proc/{name}/environ").read_bytes()
            owner = os.stat(f"/proc/{name}").st_uid
            status = Path(f"/proc/{name}/stat").read_text()
        except OSError:
            continue
        if status.rpartition(")")[2].split()[0] not in "ZX" and (mark.encode() in words or owner == user):
            yield f"process {name} {status.partition('(')[2].rpartition(')')[0]}"


@contextmanager
def nothing_left(mark: str, user: int | None = None) -> Iterator[None]:
    """Checks that everything that the Pods of a test created is gone afterwards."""
    before = take_stock(mark, user)
    yield
    assert_nothing_left(before, mark, user)


def list_marked(mark: str) -> list[str]:
    """Control groups and processes with the mark."""
    return sorted((*_list_groups(mark), *_list_processes(mark, None)))


def assert_nothing_left(before: set[str], mark: str, user: int | None = None) -> None:
    deadline = time.monotonic() + _PATIENCE
    while left := sorted(take_stock(mark, user) - before):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.02)
