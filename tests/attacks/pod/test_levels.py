"""What a Pod may take of the machine, as root and as an ordinary user to whom nobody gave control groups.

There the kernel counts a container's processes in its user namespace, and the shim looks once a second how much memory
the Pod uses: also memory that no process has mapped.
"""

from __future__ import annotations

import resource
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.pod.hostile import FORKS, WAYS, build_forks
from tests.node.sandboxes import LEVELS, Sandboxes, run_sandboxed
from trainmaster.shim.protocol import USER, ContainerSpec, ResourceLimits, SandboxSpec

pytestmark = [pytest.mark.attacks, pytest.mark.parametrize("level", LEVELS)]

PYTHON = "/usr/bin/python3"
MEMORY = ResourceLimits(memory=100 << 20)
PIDS = 64
CALM = "import time\nheld = bytearray(b'x' * (40 << 20))\nprint('up', flush=True)\ntime.sleep(600)"
ORPHANS = textwrap.dedent(
    """
    import glob, os, time
    for _ in range(10):
        if not os.fork():
            os.setsid()
            if not os.fork():
                held = bytearray(b"x" * (40 << 20))
                time.sleep(600)
            os._exit(0)
        os.wait()
    time.sleep(1.5)
    large = 0
    for name in glob.glob("/proc/[0-9]*/statm"):
        large += int(open(name).read().split()[1]) * 4096 > 30 << 20
    print("large", large)
    """
)


def build(it: Sandboxes, pod: SandboxSpec, code: str, **fields: Any) -> ContainerSpec:
    return it.make_container(pod, "", argv=(PYTHON, "-c", code), limits=pod.limits, **fields)


def test_memory_in_every_form_ends_the_pod_that_takes_it_and_no_other(folder: Path, level: str) -> None:
    async def test(it: Sandboxes) -> None:
        calm = it.make_pod("calm", 0, limits=MEMORY)
        await it.start(calm, build(it, calm, CALM))
        await it.wait_for_log(calm.uid, "up")
        takers = {way: it.make_pod(f"taker{number}", 0, limits=MEMORY) for number, way in enumerate(WAYS)}
        for way, pod in takers.items():
            await it.start(pod, build(it, pod, f"{WAYS[way]}\nimport time; time.sleep(20); print('got through')"))
        for way, pod in takers.items():
            ended = await it.wait_ended(pod.uid)
            assert (ended.exited.code, ended.exited.oom_killed) == (137, True), (way, it.read_log(pod.uid))
        assert (await it.supervisor.request(calm.uid, "stats"))[0]["pids"] == 1

    run_sandboxed(folder, level, f"memory-{level}", test)


def test_memory_of_orphans_counts_too(folder: Path, level: str) -> None:
    """Control groups kill one process after the other, the shim the whole container."""

    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("orphans", 0, limits=MEMORY)
        await it.start(pod, build(it, pod, ORPHANS))
        ended = await it.wait_ended(pod.uid)
        printed = it.read_log(pod.uid)
        assert ended.exited.oom_killed or int(printed.split()[1]) <= 2, (ended.exited, printed)

    run_sandboxed(folder, level, f"orphans-{level}", test)


def test_processes_and_threads_end_at_the_pods_number(folder: Path, level: str) -> None:
    """Each Pod has all of its own, whatever others of the same Unix user have."""
    rlimits = ((resource.RLIMIT_NPROC, PIDS),)

    async def test(it: Sandboxes) -> None:
        pods = {
            way: it.make_pod(f"fork{number}", 0, limits=ResourceLimits(pids=PIDS)) for number, way in enumerate(FORKS)
        }
        for way, pod in pods.items():
            await it.start(pod, build(it, pod, f"{build_forks(way)}\nos._exit(0)", rlimits=rlimits))
        for way, pod in pods.items():
            ended = await it.wait_ended(pod.uid)
            printed = it.read_log(pod.uid)
            assert ended.exited.code == 0, (way, ended.exited, printed)
            # Of orphans only those that were started first are counted.
            assert (20 if way == "orphans" else PIDS - 8) < int(printed.split()[1]) < PIDS, (way, printed)

    run_sandboxed(folder, level, f"forks-{level}", test)


def test_containers_of_a_pod_have_its_number_together(folder: Path, level: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("two", 0, limits=ResourceLimits(pids=PIDS))
        names = ("one", "two")
        code = f"{build_forks('processes')}\ntime.sleep(2)\nos._exit(0)"
        await it.start(pod, *(build(it, pod, code, name=name) for name in names))
        ends = [(await it.wait_ended(pod.uid, name)).exited for name in names]
        if level == USER:
            assert any(f"more than {PIDS} processes and threads" in end.message for end in ends), ends
        else:
            assert sum(int(it.read_log(pod.uid, name).split()[1]) for name in names) < PIDS

    run_sandboxed(folder, level, f"two-{level}", test)


def test_log_lines_without_end_stay_within_their_bound(folder: Path, level: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("chatty", 0)
        script = "head -c 20000000 /dev/zero | tr '\\0' x | fold -w 2000; echo; echo the end"
        await it.start(pod, it.make_container(pod, script, log_max_bytes=1 << 20, log_keep=2))
        assert (await it.wait_ended(pod.uid)).exited.code == 0
        log = Path(it.supervisor.get_paths(pod.uid).log("main", 0))
        pieces = sorted(path.name for path in log.parent.iterdir())
        assert pieces == [log.name, f"{log.name}.1", f"{log.name}.2"]
        # A piece is full when what was read at once has been written to it.
        assert sum(path.stat().st_size for path in log.parent.iterdir()) < 3 * (1 << 20) + 3 * (1 << 17)
        # The last line may be the one that filled a piece.
        assert any("the end" in path.read_text() for path in (log, log.with_name(f"{log.name}.1")))

    run_sandboxed(folder, level, f"chatty-{level}", test)
