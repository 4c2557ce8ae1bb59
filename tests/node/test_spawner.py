"""Real processes: how they start, end, are signalled, and are found again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from trainmaster.node.launch import Launch, LaunchError
from trainmaster.node.spawner import Exit, Identity, Supervisor, read_boot_id, read_start_ticks

pytestmark = pytest.mark.node

ENV = {"PATH": "/usr/bin:/bin", "GREETING": "hello"}


class Bench:
    """A supervisor and one log file; `start` runs a shell script."""

    def __init__(self, supervisor: Supervisor, directory: Path) -> None:
        self.supervisor = supervisor
        self.directory = directory
        self.log = directory / "log"

    def start(self, script: str, directory: Path | None = None) -> tuple[Identity, asyncio.Future[Exit]]:
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        try:
            launch = Launch(("/bin/sh", "-c", script), ENV, str(directory or self.directory))
            return self.supervisor.start(launch, output, ended.set_result), ended
        finally:
            os.close(output)

    async def wait_for_output(self, text: str) -> None:
        async with asyncio.timeout(20):
            while text not in (self.log.read_text() if self.log.exists() else ""):
                await asyncio.sleep(0.01)


def run(tmp_path: Path, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Supervisor() as supervisor:
            await test(Bench(supervisor, tmp_path))

    asyncio.run(main())


async def wait_until_dead(pid: int) -> None:
    """Killed is not yet dead, and dead is not yet collected by whoever inherited it: a zombie counts as dead."""
    async with asyncio.timeout(20):
        while True:
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                return
            if stat.rpartition(")")[2].split()[0] == "Z":
                return
            await asyncio.sleep(0.01)


def test_a_process_has_its_directory_environment_session_and_output(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        who, ended = bench.start('pwd; echo "$GREETING"; echo err >&2; ps -o sid= -p $$; exit 7')
        assert await ended == Exit(7)
        lines = bench.log.read_text().split()
        assert lines == [str(tmp_path), "hello", "err", str(who.pid)]

    run(tmp_path, test)


def test_a_signal_is_reported_as_128_plus_its_number(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        _, ended = bench.start("kill -SEGV $$")
        assert await ended == Exit(128 + signal.SIGSEGV, signal.SIGSEGV)

    run(tmp_path, test)


def test_the_polite_signal_reaches_the_whole_group(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        who, ended = bench.start("trap 'echo stopped; exit 3' TERM; sleep 1000 & echo child $!; wait")
        await bench.wait_for_output("child")
        bench.supervisor.send(who.pid, force=False)
        assert await ended == Exit(3)
        await wait_until_dead(int(bench.log.read_text().split()[1]))

    run(tmp_path, test)


def test_what_ignores_the_polite_signal_is_killed_with_its_children(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        who, ended = bench.start("trap '' TERM; sleep 1000 & echo child $!; while :; do sleep 1000; done")
        await bench.wait_for_output("child")
        bench.supervisor.send(who.pid, force=False)
        bench.supervisor.send(who.pid, force=True)
        assert await ended == Exit(137, 9)
        await wait_until_dead(int(bench.log.read_text().split()[1]))

    run(tmp_path, test)


def test_a_child_left_behind_dies_with_its_leader(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        _, ended = bench.start("sleep 1000 & echo child $!; exit 0")
        assert await ended == Exit(0)
        await wait_until_dead(int(bench.log.read_text().split()[1]))

    run(tmp_path, test)


def test_another_supervisor_adopts_a_running_process_and_sees_its_end(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        who, _ = bench.start("read line < fifo; exit 0")
        os.mkfifo(tmp_path / "other")
        async with Supervisor() as second:
            ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
            assert second.adopt(who, ended.set_result)
            second.send(who.pid, force=True)
            assert (await ended).code in (137, None)

    os.mkfifo(tmp_path / "fifo")
    run(tmp_path, test)


def test_a_pid_that_belongs_to_somebody_else_is_not_adopted(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        ticks = read_start_ticks(os.getpid())
        assert ticks is not None
        for who in (
            Identity(os.getpid(), ticks + 1, read_boot_id()),
            Identity(os.getpid(), ticks, "another boot"),
            Identity(2**22 - 1, 1, read_boot_id()),
        ):
            assert not bench.supervisor.adopt(who, lambda _: None)

    run(tmp_path, test)


def test_a_directory_that_is_gone_is_an_error_of_the_process(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        _, ended = bench.start("true", tmp_path / "missing")
        assert (await ended).code not in (0, None)

    run(tmp_path, test)


def test_an_environment_that_the_kernel_refuses_is_a_launch_error(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        output = os.open(bench.log, os.O_WRONLY | os.O_CREAT)
        try:
            with pytest.raises(LaunchError, match="Argument list too long"):
                launch = Launch(("/bin/true",), {"A": "x" * 10_000_000}, str(tmp_path))
                bench.supervisor.start(launch, output, lambda _: None)
        finally:
            os.close(output)

    run(tmp_path, test)
