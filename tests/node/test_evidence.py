"""Programs that hang in real ways, at every isolation level: what is found names where they are."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.sandboxes import LEVELS, Sandboxes, run_sandboxed
from tests.node.shims import Shims, make_spec, run
from trainmaster import progress
from trainmaster.node.evidence.examination import ContainerExaminer, ExaminationError, find_spy
from trainmaster.shim.evidence import dumps, spy
from trainmaster.shim.loop import get_monotonic
from trainmaster.shim.protocol import FULL, ResourceLimits
from trainmaster.shim.sandbox.cgroups import read_hierarchies, read_memory

pytestmark = pytest.mark.node

PYTHON = "/usr/bin/python3"
BYTES = 64 << 10
UP = "up"
LOADER = """
import time
def load_batch():
    print("up", flush=True)
    time.sleep(600)
load_batch()
"""
LOCK = """
import threading, time
lock = threading.Lock()
def hold_lock():
    with lock:
        time.sleep(600)
def want_lock():
    print("up", flush=True)
    lock.acquire()
threading.Thread(target=hold_lock, name="holder").start()
time.sleep(0.1)
want_lock()
"""
C_LOOP = """
import re
def match_forever():
    print("up", flush=True)
    re.match("(a+)+$", "a" * 60 + "b")  # in C, and the GIL is never released
match_forever()
"""
STOPPED_PIPE = """
import os, signal, subprocess
source = subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE)
os.kill(source.pid, signal.SIGSTOP)
def read_sample():
    print("up", flush=True)
    return os.read(source.stdout.fileno(), 1)
read_sample()
"""
CHILDREN = """
import multiprocessing, time
def decode_image(): time.sleep(600)
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    child = multiprocessing.Process(target=decode_image)
    child.start()
    time.sleep(1)
    print("up", flush=True)
    child.join()
"""
PRIVATE = """
import ctypes, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # not dumpable: nobody without privileges may look into its memory
def keep_secret():
    print("up", flush=True)
    time.sleep(600)
keep_secret()
"""
OFFERS = f"""
import sys, time
sys.path.append("FOLDER")
import progress
progress.offer_stacks()
{LOADER}
"""


def find_functions(found: dict[str, Any]) -> list[str]:
    """Of all threads of all processes, the innermost first."""
    stacks = [thread for process in found["processes"] for thread in process.get("stacks", ())]
    return [frame["function"] for thread in stacks for frame in thread["frames"]]


def find_main(found: dict[str, Any]) -> dict[str, Any]:
    process: dict[str, Any] = found["processes"][0]
    return process


async def examine(shims: Shims, uid: str = "u", program: str | None = None, most: int = BYTES) -> dict[str, Any]:
    return await ContainerExaminer(shims.supervisor, program).examine(uid, "main", 1.5, most)


async def start(shims: Shims, program: str) -> None:
    await shims.create("u", make_spec(shims.root, "", argv=(PYTHON, "-c", program)))
    await shims.wait_for_log("u", UP)


def run_program(tmp_path: Path, program: str, test: Callable[[Shims], Awaitable[None]]) -> None:
    async def main(shims: Shims) -> None:
        await start(shims, program)
        await test(shims)

    run(tmp_path / "pods", main)


@pytest.mark.parametrize(
    ("program", "function", "state"),
    [
        pytest.param(LOADER, "load_batch", "S", id="sleeps in its loader"),
        pytest.param(LOCK, "want_lock", "S", id="waits for a lock"),
        pytest.param(C_LOOP, "match_forever", "R", id="loops in C"),
        pytest.param(STOPPED_PIPE, "read_sample", "S", id="reads a pipe whose writer is stopped"),
    ],
)
def test_the_stack_names_the_function(tmp_path: Path, program: str, function: str, state: str) -> None:
    async def test(shims: Shims) -> None:
        found = await examine(shims)
        main = find_main(found)
        names = [frame["function"] for frame in main["stacks"][0]["frames"]]
        assert function in names[:2], found
        assert (main["state"], main["source"], main["error"]) == (state, "py-spy", "")
        assert state == "R" or main["cpu_percent"] < 50

    run_program(tmp_path, program, test)


def test_every_thread_is_shown_and_who_holds_the_lock(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        threads = {thread["name"]: thread for thread in find_main(await examine(shims))["stacks"]}
        assert threads["holder"]["frames"][0]["function"] == "hold_lock"
        assert threads["MainThread"]["state"] == "S" and threads["MainThread"]["waits_in"]

    run_program(tmp_path, LOCK, test)


def test_a_stopped_process_is_told_from_one_that_sleeps(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        found = await examine(shims)
        states = {process["name"]: process["state"] for process in found["processes"]}
        assert states["sleep"] == "T"
        assert "stacks" not in found["processes"][1], "it is no Python process"
        assert "pipe" in find_main(found)["waits_in"]

    run_program(tmp_path, STOPPED_PIPE, test)


def test_the_processes_that_a_program_started_are_examined_too(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(CHILDREN)

    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(shims.root, "", argv=(PYTHON, str(script))))
        await shims.wait_for_log("u", UP)
        assert "decode_image" in find_functions(await examine(shims))

    run(tmp_path / "pods", test)


def test_what_is_found_fits_into_the_bytes(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        whole, small = await examine(shims), await examine(shims, most=1200)
        assert len(str(small)) < 1500 < len(str(whole))
        assert find_main(small)["pid"] == find_main(whole)["pid"], "the states stay"

    deep = """
import threading, time
def go_deeper(depth):
    if depth: go_deeper(depth - 1)
    else: time.sleep(600)
for _ in range(20): threading.Thread(target=go_deeper, args=(200,)).start()
print("up", flush=True)
"""
    run_program(tmp_path, deep, test)


def test_the_program_goes_on_undisturbed(tmp_path: Path) -> None:
    counting = """
import signal, time
for number in signal.valid_signals():
    if number not in (9, 19, 32, 33): signal.signal(number, lambda number, _: print("signal", number, flush=True))
print("up", flush=True)
time.sleep(600)
"""

    async def test(shims: Shims) -> None:
        await asyncio.gather(*(examine(shims) for _ in range(3)))
        await examine(shims, program="")
        assert "signal" not in shims.read_log("u")

    run_program(tmp_path, counting, test)


# Without py-spy, and where it is not permitted


def test_the_signal_and_the_file_are_the_same_on_both_sides() -> None:
    assert (progress.STACKS, progress.STACKS_SIGNAL) == (dumps.NAME, dumps.SIGNAL)
    assert signal.SIGRTMIN < dumps.SIGNAL < signal.SIGRTMAX


@pytest.mark.parametrize("program", [OFFERS, OFFERS.replace("time.sleep(600)", "while True: pass")])
def test_without_py_spy_a_program_that_reports_writes_its_stacks(tmp_path: Path, program: str) -> None:
    async def test(shims: Shims) -> None:
        for _ in range(2):
            found = await examine(shims, program="")
            assert find_main(found)["source"] == "faulthandler"
            assert find_functions(found)[0] == "load_batch"

    run_program(tmp_path, program.replace("FOLDER", str(Path(progress.__file__).parent)), test)


def test_without_py_spy_any_other_program_is_left_alone(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        main = find_main(await examine(shims, program=""))
        assert main["state"] == "S"
        assert main["error"] == (
            "py-spy is not installed with the server, and it does not report progress, so it cannot be asked for its "
            "stacks either"
        )
        assert find_main(await examine(shims))["stacks"], "it still runs"

    run_program(tmp_path, LOADER, test)


def test_py_spy_is_a_part_of_the_servers_environment() -> None:
    assert find_spy()


def test_what_has_ended_says_so(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.run("u", "true")
        with pytest.raises(ExaminationError, match="it had ended"):
            await examine(shims)
        await shims.supervisor.close("u")
        with pytest.raises(ExaminationError, match="it had ended"):
            await examine(shims)

    run(tmp_path / "pods", test)


def test_an_examination_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        shim = shims.read_shim("u").pid
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await examine(shims)  # two looks, which are further apart
        children = Path(f"/proc/{shim}/task/{shim}/children")
        async with asyncio.timeout(10):
            while len(children.read_text().split()) > 1:
                await asyncio.sleep(0.01)

    run_program(tmp_path, LOADER, test)


def test_a_py_spy_that_prints_without_end_is_stopped(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        main = find_main(await examine(shims, program="/usr/bin/yes"))
        assert main["state"] == "S" and main["error"].startswith("py-spy cannot read it")

    run_program(tmp_path, LOADER, test)


def test_a_py_spy_that_hangs_costs_its_time_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> None:
        time.sleep(60)
        os._exit(0)

    monkeypatch.setattr(spy, "_execute", hang)
    found = spy.read_stacks(0, [os.getpid(), os.getppid()], get_monotonic() + 0.1)
    assert {run.error for run in found.values()} == {"there was no time for it"}
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


# Levels


def run_level(folder: Path, level: str, program: str, test: Callable[[Sandboxes, str], Awaitable[None]]) -> None:
    mark = f"ev-{uuid.uuid4().hex[:8]}"

    async def main(sandboxes: Sandboxes) -> None:
        pod = sandboxes.make_pod("hang", 0)
        user = {"run_as_user": 54321, "run_as_group": 54321} if level == FULL else {}
        await sandboxes.start(pod, sandboxes.make_container(pod, "", argv=(PYTHON, "-c", program), **user))
        await sandboxes.wait_for_log(pod.uid, UP)
        await test(sandboxes, pod.uid)

    run_sandboxed(folder, level, mark, main)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that an ordinary user can reach."""
    with tempfile.TemporaryDirectory(prefix="tm-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("level", LEVELS)
def test_in_a_sandbox(folder: Path, level: str) -> None:
    async def test(sandboxes: Sandboxes, uid: str) -> None:
        found = await examine(sandboxes, uid)
        assert find_functions(found)[0] == "load_batch", found
        assert len(found["processes"]) == 1, "neither the shim nor the visitor"

    run_level(folder, level, LOADER, test)


@pytest.mark.skipif("memory" not in read_hierarchies().limits, reason="needs a control group for memory")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_kernels_record_of_a_program_that_was_killed(folder: Path) -> None:
    most = 64 << 20

    async def main(sandboxes: Sandboxes) -> None:
        pod = sandboxes.make_pod("oom", 0)
        greedy = (PYTHON, "-c", "ballast = bytearray(b'x') * (256 << 20)")
        limits = ResourceLimits(memory=most)
        await sandboxes.start(pod, sandboxes.make_container(pod, "", argv=greedy, limits=limits))
        ended = await sandboxes.wait_ended(pod.uid)
        record = read_memory(sandboxes.supervisor.get_paths(pod.uid), "main")
        assert ended.exited.oom_killed and record is not None
        assert record.oom_kills >= 1 and record.limit == most
        assert record.peak is None or most // 2 < record.peak <= most

    run_sandboxed(folder, FULL, f"ev-{uuid.uuid4().hex[:8]}", main)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_program_that_nobody_may_look_into_says_so(folder: Path) -> None:
    async def test(sandboxes: Sandboxes, uid: str) -> None:
        main = find_main(await examine(sandboxes, uid))
        assert "stacks" not in main or main["error"].startswith("the kernel does not permit it"), main

    run_level(folder, FULL, PRIVATE, test)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("level", LEVELS)
def test_a_visitor_has_the_pods_user_and_cannot_be_looked_into(folder: Path, level: str) -> None:
    spying = """
import os, time
print("up", flush=True)
seen = set()
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            try:
                status = open(f"/proc/{name}/status").read()
                users = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
                # It may be seen before it has changed its user, too.
                if (name, *users) in seen:
                    continue
                seen.add((name, *users))
                try:
                    os.close(os.open(f"/proc/{name}/mem", os.O_RDONLY))
                    print("READ", flush=True)
                except PermissionError:
                    print("visitor", *sorted(set(users)), os.getuid(), flush=True)
            except (FileNotFoundError, ProcessLookupError, StopIteration):
                pass
"""

    async def test(sandboxes: Sandboxes, uid: str) -> None:
        for _ in range(10):
            await examine(sandboxes, uid, program="")
        log = await sandboxes.wait_for_log(uid, "visitor")
        assert "READ" not in log
        assert any(line.split()[1:-1] == line.split()[-1:] for line in log.splitlines() if line.startswith("visitor"))

    run_level(folder, level, spying, test)
