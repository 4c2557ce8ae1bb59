"""Tenants that write too fast are paused until the mean is right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.kit.clock import SystemClock
from trainmaster.node.disk.write_pacing import MOST_SECONDS, WritePace, WritePacer, read_written
from trainmaster.node.shims.link import ShimError
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

MIB = 1 << 20


def make_pace() -> WritePace:
    return WritePace(rate=64.0 * MIB, level=16.0 * MIB, at=100.0)


def test_a_burst_is_free_and_what_is_above_the_rate_is_waited_for() -> None:
    pace = make_pace()
    assert pace.note({1: 16 * MIB}, 100.0) == 0.0
    assert pace.note({1: 16 * MIB + 64 * MIB // 10}, 100.1) == 0.0, "as fast as it may"
    assert pace.note({1: 16 * MIB + 64 * MIB // 5 + 6_400_000}, 100.2) == pytest.approx(6_400_000 / (64 * MIB))
    assert pace.note(pace.seen, 101.2) == 0.0
    assert pace.level == 16 * MIB, "who was quiet gets no more than one burst"


def test_one_pause_is_short_however_much_was_written_and_the_debt_stays() -> None:
    pace = make_pace()
    assert pace.note({1: 400 * MIB}, 100.0) == MOST_SECONDS
    assert pace.note(pace.seen, 100.0 + MOST_SECONDS) == MOST_SECONDS


def test_processes_are_counted_from_their_birth_and_only_once() -> None:
    pace = make_pace()
    assert pace.note({1: 10 * MIB, 2: 4 * MIB}, 100.0) == 0.0
    assert pace.level == 2 * MIB
    pace.note({1: 10 * MIB, 3: 1 * MIB}, 100.0)
    assert pace.level == 1 * MIB, "the second has ended, the third was born"
    pace.note({1: MIB // 2}, 100.0)
    assert pace.level == MIB // 2, "another process has its number now"


def test_what_processes_of_a_group_wrote_is_read(tmp_path: Path) -> None:
    group = tmp_path / "pod" / "main"
    group.mkdir(parents=True)
    (tmp_path / "cgroup.procs").write_text("")
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n999999999\n")
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(MIB))
    before, found, after = read_own(), read_written(str(tmp_path)), read_own()
    assert set(found) == {os.getpid()}
    assert before <= found[os.getpid()] <= after


def read_own() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


def test_only_the_pods_of_that_tenant_are_paused(tmp_path: Path) -> None:
    """One shim that cannot pause does not keep the others from it."""
    for name in ("home-tenant-ann", "home-tenant-bob", "other-tenant-eve"):
        (tmp_path / "trainmaster" / name).mkdir(parents=True)
    written = {"ann": {1: 0}, "bob": {2: 0}}
    paused: list[tuple[str, float]] = []

    async def pause(uid: str, seconds: float) -> None:
        if uid == "ann-0":
            raise ShimError("unknown operation")
        paused.append((uid, seconds))

    async def main() -> None:
        pacer = WritePacer(
            SystemClock(),
            lambda namespace: [f"{namespace}-0", f"{namespace}-1"],
            pause,
            rate=64 * MIB,
            base=str(tmp_path),
            prefix="home-tenant-",
        )
        assert set(pacer._read_all()) == {"ann", "bob"}
        pacer._read_all = lambda: written  # type: ignore[method-assign]
        await pacer.check()
        assert paused == []
        written["ann"] = {1: 1000 * MIB}
        await pacer.check()
        assert paused == [("ann-1", MOST_SECONDS)]

    run_virtual(main())
