"""Programs that behave badly, and machines that run short: a clear state each time, and everything clean afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.node.bench import Bench, find_status, get_ended, is_over, run
from tests.node.sandboxes import ORDINARY, Sandboxes, run_sandboxed
from tests.node.shims import make_spec
from tests.support.leaks import nothing_left
from tests.support.small_disk import DEVICE
from trainmaster.client.contract import LogOptions
from trainmaster.node.shims.supervisor import SupervisorError
from trainmaster.shim.protocol import FULL, HOST_NETWORK, PLAIN

pytestmark = pytest.mark.node

LOG_BYTES = int(os.environ.get("TRAINMASTER_LOG_BYTES", str(230 << 20)))
"""More than is kept, so that pieces are dropped; the promise is checked with 1 << 30."""
KEPT = 4 * (50 << 20)
ROUGH = r"""printf '\000\377\376 binary \033[2J\n'; (setsid sleep 300 &); setsid sh -c 'trap "" TERM; sleep 300' &
exec <&- >&- 2>&-; i=0; while [ $i -lt 20 ]; do echo lost; i=$((i+1)); done; exit 6"""


@pytest.fixture
def mark() -> str:
    return f"t{uuid4().hex[:10]}"


@pytest.fixture
def small_disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tm-") as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}", DEVICE, name], check=True)
        try:
            yield Path(name)
        finally:
            # Lazily: a zygote that was told to end may be on its way out still.
            subprocess.run(["umount", "--lazy", name], check=True)


@pytest.mark.parametrize("level", [PLAIN, FULL])
def test_closed_streams_binary_output_and_daemons_do_no_harm(tmp_path: Path, level: str, mark: str) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent(level=level) as agent:
            made = await bench.create(ROUGH, main={"env": [{"name": "MARK", "value": mark}]})
            pod = await bench.wait_for(is_over)
            assert (get_ended(pod)["exitCode"], get_ended(pod)["reason"]) == (6, "Error")
            pieces = agent.logs.read(pod, "main", LogOptions())
            assert b"".join([piece async for piece in pieces]) == b"\0\xff\xfe binary \033[2J\n"
            await bench.remove()
            await bench.wait_until(lambda: not Path(bench.get_paths(made).directory).exists())

    with nothing_left(mark):
        run(tmp_path, test)


def test_a_flood_of_output_is_kept_to_its_limit_and_holds_nobody_up(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent() as agent:
            script = f"head -c {LOG_BYTES} /dev/zero | tr '\\0' x | fold -w 2000; echo; echo the end; exit 4"
            made = await bench.create(script)
            pod = await bench.wait_for(is_over)
            assert get_ended(pod)["exitCode"] == 4
            folder = Path(bench.get_paths(made).log("main", 0)).parent
            assert sum(path.stat().st_size for path in folder.iterdir()) < KEPT + (1 << 20)
            assert await bench.read_log(agent, pod, tail_lines=1) == "the end\n"
            await bench.remove()

    run(tmp_path, test)


@pytest.mark.parametrize("small_disk", ["8m"], indirect=True)
def test_a_disk_that_is_full_holds_pods_up_until_there_is_room(small_disk: Path, mark: str) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            script = "head -c 20m /dev/zero > big; i=0; "
            script += "while [ $i -lt 50 ]; do echo more; i=$((i+1)); done; exit 5"
            await bench.create(script, name="greedy", main={"env": [{"name": "MARK", "value": mark}]})
            assert get_ended(await bench.wait_for(is_over, "greedy"))["exitCode"] == 5
            await bench.create("exit 3", name="next")
            waiting = await bench.wait_for(lambda pod: find_status(pod).get("state", {}).get("waiting"), "next")
            shown = find_status(waiting)["state"]["waiting"]
            assert shown["reason"] in ("ContainerCreating", "CreateContainerError")
            await bench.wait_for(
                lambda pod: "pace" in str(find_status(pod).get("state", {}).get("waiting", {}).get("message")), "next"
            )
            await bench.remove("greedy")
            assert get_ended(await bench.wait_for(is_over, "next"))["exitCode"] == 3
            await bench.remove("next")

    with nothing_left(mark):
        run(small_disk, test)


async def wait_until_steady() -> list[int]:
    """The user's processes once no more come or go: the zygote makes spare shims after each start."""
    seen: list[int] = []
    while not seen or seen != list_processes(ORDINARY):
        seen = list_processes(ORDINARY)
        await asyncio.sleep(0.5)
    return seen


def test_a_user_without_processes_left_is_told_so_and_goes_on_later(mark: str) -> None:
    async def test(pods: Sandboxes) -> None:
        first = pods.make_pod("j", 0, 3, network=HOST_NETWORK, cgroup="")
        await pods.start(first, make_spec(pods.root, "exit 2"))
        assert (await pods.wait_ended(first.uid)).exited.code == 2
        mine = await wait_until_steady()
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        for pid in mine:
            resource.prlimit(pid, resource.RLIMIT_NPROC, (1, hard))
        second = pods.make_pod("j", 1, 3, network=HOST_NETWORK, cgroup="")
        try:
            await pods.start(second, make_spec(pods.root, "exit 2"))
            said = (await pods.wait_ended(second.uid)).exited.error
        except SupervisorError as error:
            said = str(error)
        assert "temporarily unavailable" in said, said
        for pid in list_processes(ORDINARY):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (soft, hard))
        third = pods.make_pod("j", 2, 3, network=HOST_NETWORK, cgroup="")
        await pods.start(third, make_spec(pods.root, "exit 7"))
        assert (await pods.wait_ended(third.uid)).exited.code == 7

    with tempfile.TemporaryDirectory(prefix="tm-") as folder:
        os.chmod(folder, 0o755)
        run_sandboxed(Path(folder), PLAIN, mark, test)


def list_processes(user: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                found.append(int(name))
        except FileNotFoundError:
            continue
    return found
