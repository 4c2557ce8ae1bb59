"""SIGKILL of the control plane and of the zygote while Pods are launched and run: nothing lost, nothing run twice.

`TRAINMASTER_CRASH_ROUNDS=200 pytest tests/crash/test_pods_crash.py` runs it for longer; a round is about 3 s.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.pods_child import LINES, get_uid, make_container, make_pod
from tests.node.shims import Shims, make_spec, supervising
from tests.support.leaks import nothing_left
from trainmaster.shim.processes import is_alive, kill_quietly, read_start_ticks
from trainmaster.shim.protocol import FULL, PLAIN, ContainerSpec, Exited, ProcessIdentity

pytestmark = pytest.mark.crash

ROUNDS = int(os.environ.get("TRAINMASTER_CRASH_ROUNDS", "1"))
COUNT = 20


def read_zygote(root: Path) -> ProcessIdentity | None:
    path = root / "pods" / ".zygote" / "zygote.json"
    return ProcessIdentity(**json.loads(path.read_bytes())) if path.exists() else None


def run_victim(root: Path, level: str, rng: random.Random, *, with_zygote: bool) -> int:
    """Dies after so many launches, or in the midst of the first; how many it had announced."""
    command = [sys.executable, "-m", "tests.crash.pods_child", str(root), level, str(COUNT)]
    announced, wanted = 0, rng.randrange(COUNT + 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as victim:
        try:
            assert victim.stdout is not None
            while announced < wanted:
                assert victim.stdout.readline(), "the victim ended by itself"
                announced += 1
            if wanted == 0:
                time.sleep(rng.uniform(0.3, 0.8))
        finally:
            zygote = read_zygote(root)
            first, second = (victim.pid, zygote.pid if zygote and with_zygote else 0)
            if rng.random() < 0.5:
                first, second = second, first
            for pid in (first, second):
                if pid:
                    kill_quietly(pid, signal.SIGKILL)
    return announced


async def settle(shims: Shims, root: Path, level: str) -> dict[int, Exited]:
    """Adopts what there is, launches what was not begun (as the agent would), and waits for all ends."""
    ends: dict[int, Exited] = {}
    for number in range(COUNT):
        uid = get_uid(number)
        found = await shims.supervisor.adopt(uid)
        newest = found.get_newest().get("main")
        assert found.list_lost() == [], "the shims were left alone"
        if newest is None or not newest.begun:
            await shims.supervisor.create(uid, make_pod(uid, level), [make_container(root, number, level)[0]])
        if newest is not None and newest.exited is not None:
            ends[number] = newest.exited
    for number in range(COUNT):
        if number not in ends:
            ends[number] = (await shims.wait_ended(get_uid(number))).exited
    return ends


@pytest.mark.parametrize("with_zygote", [False, True], ids=["control plane", "and zygote"])
@pytest.mark.parametrize("level", [PLAIN, FULL])
def test_every_pod_runs_once_and_ends_as_it_would_have(
    tmp_path: Path, level: str, with_zygote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{level} {with_zygote}")
    for round_number in range(ROUNDS):
        root = tmp_path / f"round-{round_number}"
        mark = f"{os.getpid()}-{level}-{with_zygote:d}-{round_number}"
        monkeypatch.setenv("CRASH_MARK", mark)
        for number in range(COUNT):
            (root / "work" / str(number)).mkdir(parents=True)
        with nothing_left(get_uid(0).rpartition("-")[0]):
            run_victim(root, level, rng, with_zygote=with_zygote)
            asyncio.run(check(root, level))


async def check(root: Path, level: str) -> None:
    async with supervising(root / "pods", level=level) as shims:
        ends = await settle(shims, root, level)
        for number in range(COUNT):
            starts = (root / "work" / str(number) / "starts").read_text().split()
            assert len(starts) == 1, f"Pod {number} was started {len(starts)} times"
            assert ends[number].code == make_container(root, number, level)[1], f"Pod {number}: {ends[number]}"
            lines = shims.read_log(get_uid(number)).splitlines()
            assert lines == [f"line {line}" for line in range(LINES)], f"the log of Pod {number}"


def test_when_shims_are_killed_nothing_of_their_pods_survives(tmp_path: Path) -> None:
    async def main() -> None:
        async with supervising(tmp_path) as shims:
            pids = []
            for number in range(10):
                uid = f"u{number}"
                await shims.create(uid, make_daemons(tmp_path))
                pids += [int(word) for word in (await shims.wait_for_log(uid, "up")).split()[:-1]]
            for number in range(10):
                kill_quietly(shims.read_shim(f"u{number}").pid, signal.SIGKILL)
            for number in range(10):
                await shims.wait_lost(f"u{number}")
            assert [pid for pid in pids if read_start_ticks(pid) is not None] == []
            found = await shims.supervisor.adopt("u0")
            assert [attempt.container for attempt in found.list_lost()] == ["main"]

    asyncio.run(main())


def test_when_all_are_killed_at_once_the_next_control_plane_clears_up(tmp_path: Path) -> None:
    """Shims, zygote and control plane together: nobody was left to do it at the time."""

    async def first() -> list[int]:
        async with supervising(tmp_path, close=False) as shims:
            await shims.create("u", make_daemons(tmp_path))
            pids = [int(word) for word in (await shims.wait_for_log("u", "up")).split()[:-1]]
            zygote = ProcessIdentity(**json.loads((tmp_path / ".zygote" / "zygote.json").read_bytes()))
            for who in (zygote, shims.read_shim("u")):
                assert is_alive(who)
                os.kill(who.pid, signal.SIGSTOP)
            for who in (zygote, shims.read_shim("u")):
                os.kill(who.pid, signal.SIGKILL)
            return pids

    async def second(pids: list[int]) -> None:
        async with supervising(tmp_path) as shims:
            found = await shims.supervisor.adopt("u")
            assert not found.alive and len(found.list_lost()) == 1
            assert [pid for pid in pids if read_start_ticks(pid) is not None] == []

    asyncio.run(second(asyncio.run(first())))


def make_daemons(root: Path) -> ContainerSpec:
    """Prints the pids of two processes that have detached themselves, then `up`."""
    daemon = "(setsid sh -c 'echo $$; exec sleep 300' &)"
    return make_spec(root, f"setsid sleep 300 & echo $!; {daemon}; sleep 0.1; echo up; wait")
