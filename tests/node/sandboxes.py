"""Pods at each isolation level, for tests: as root, and as an ordinary user in a child of the test process.

The ordinary user is a uid without an account. Its zygote is forked from the test process and not executed, because
that user may not be able to reach the interpreter (which may lie in somebody's home); from there on everything is as
in production.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - the ordinary user may not be able to import it later
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.node.shims import Shims, make_spec, wait_until_dead
from tests.support.leaks import assert_nothing_left, take_stock
from trainmaster.node.shims.zygotes import get_fingerprint
from trainmaster.shim import zygote
from trainmaster.shim.protocol import (
    FULL,
    OWN_NETWORK,
    USER,
    ZYGOTE_FOLDER,
    ContainerSpec,
    Mount,
    ProcessIdentity,
    SandboxSpec,
    decode,
)
from trainmaster.shim.sandbox import linux

ORDINARY = 61234
LEVELS = (FULL, USER)
HOME = "/workspace"

Test = Callable[["Sandboxes"], Awaitable[None]]


class Sandboxes(Shims):
    """A supervisor at one level. Pods are told apart by the test's mark, so that leaks can be found."""

    def __init__(self, root: Path, level: str, mark: str) -> None:
        super().__init__(root, level)
        self.level = level
        self.mark = mark

    def make_pod(self, name: str, number: int, peers: int = 1, **fields: Any) -> SandboxSpec:
        """Number `number` of `peers` Pods of the job `name`; all of them know each other."""
        base = 10 + 16 * (sum(name.encode()) % 1000)
        lines = [(f"10.244.{(base + i) // 250}.{(base + i) % 250 + 1}", i) for i in range(peers)]
        ordered = [lines[number], *(line for line in lines if line[1] != number)]
        hosts = tuple(
            (address, f"{name}-{i}.{name}.default.svc.cluster.local", f"{name}-{i}.{name}", f"{name}-{i}")
            for address, i in ordered
        )
        uid = f"{self.mark}-{name}-{number}"
        values: dict[str, Any] = {
            "hostname": f"{name}-{number}",
            "domain": f"{name}.default.svc.cluster.local",
            "level": self.level,
            "network": OWN_NETWORK,
            "address": lines[number][0],
            "hosts": hosts,
            "cgroup": uid,
            "hide": (str(self.root),),
        }
        return SandboxSpec(uid, f"{name}-{number}", "default", **{**values, **fields})

    def make_container(self, pod: SandboxSpec, script: str, **fields: Any) -> ContainerSpec:
        """With a directory of its own at /workspace, which is where it starts."""
        work = self.root / f"work-{pod.uid}"
        work.mkdir(exist_ok=True)
        mounts = (Mount(HOME, str(work)), *fields.pop("mounts", ()))
        return make_spec(self.root, script, **{"directory": HOME, "mounts": mounts, **fields})

    async def start(self, pod: SandboxSpec, *containers: ContainerSpec) -> None:
        await self.supervisor.create(pod.uid, pod, containers)

    async def replace_zygote(self) -> None:
        """Kills it; the next Pod gets a new one, which an ordinary user must fork here."""
        file = self.root / ZYGOTE_FOLDER / "zygote.json"
        who = decode(ProcessIdentity, file.read_bytes())
        os.kill(who.pid, signal.SIGKILL)
        await wait_until_dead(who.pid)
        if self.level == USER:
            fork_zygote(self.root, self.level)

    async def finish(self, pod: SandboxSpec, script: str, **fields: Any) -> str:
        """Runs the script to its end, which must be a success; its output."""
        await self.start(pod, self.make_container(pod, script, **fields))
        ended = await self.wait_ended(pod.uid)
        output = self.read_log(pod.uid)
        assert ended.exited.code == 0, (ended.exited, output)
        return output


def run_sandboxed(folder: Path, level: str, mark: str, test: Test) -> None:
    """At FULL as root, else as the ordinary user. Nothing may be left of it."""
    root = folder / mark
    user = ORDINARY if level != FULL else None
    before = take_stock(mark, user)
    if level == FULL:
        asyncio.run(_run(root, level, mark, test))
    else:
        root.mkdir()
        os.chown(root, ORDINARY, ORDINARY)
        _run_as(ORDINARY, lambda: asyncio.run(_run(root, level, mark, test)), root, level)
    assert_nothing_left(before, mark, user)


async def _run(root: Path, level: str, mark: str, test: Test) -> None:
    sandboxes = Sandboxes(root, level, mark)
    async with sandboxes.supervisor:
        try:
            await test(sandboxes)
        finally:
            for uid in sandboxes.supervisor.list_uids():
                await sandboxes.supervisor.close(uid)
                await sandboxes.supervisor.remove(uid)


def _run_as(user: int, work: Callable[[], None], root: Path, level: str) -> None:
    """In a child; what it raises is shown by its output, and fails the test."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            linux.set_dumpable(True)
            fork_zygote(root, level)
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - this process must not go on as a second test run
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "see the output of the child"


def fork_zygote(root: Path, level: str) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writer, 1)
            zygote.main([str(root), level, get_fingerprint()])
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    assert b"ready" in said, said
