"""A supervisor on a root of its own, and what tests of real shims ask again and again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from trainmaster.node.shims.supervisor import AttemptEnded, Began, Lost, ShimEvent, Supervisor
from trainmaster.shim.log_sink import HEAD_BYTES
from trainmaster.shim.processes import read_start_ticks
from trainmaster.shim.protocol import PLAIN, ContainerSpec, ProcessIdentity, SandboxSpec, decode

LIMIT = 40.0


class Shims:
    """What happened is kept; `wait` looks at it from the beginning, so that nothing is missed."""

    def __init__(self, root: Path, level: str = PLAIN) -> None:
        self.root = root
        self.level = level
        self.happened: list[ShimEvent] = []
        self._news = asyncio.Event()
        self.supervisor = Supervisor(root, self._note, level)

    def _note(self, happening: ShimEvent) -> None:
        self.happened.append(happening)
        self._news.set()

    async def wait(self, wanted: Callable[[ShimEvent], Any]) -> ShimEvent:
        async with asyncio.timeout(LIMIT):
            while True:
                for happening in self.happened:
                    if wanted(happening):
                        return happening
                self._news.clear()
                await self._news.wait()

    async def wait_began(self, uid: str, container: str = "main", attempt: int = 0) -> Began:
        found = await self.wait(lambda it: isinstance(it, Began) and get_key(it) == (uid, container, attempt))
        assert isinstance(found, Began)
        return found

    async def wait_ended(self, uid: str, container: str = "main", attempt: int = 0) -> AttemptEnded:
        found = await self.wait(lambda it: isinstance(it, AttemptEnded) and get_key(it) == (uid, container, attempt))
        assert isinstance(found, AttemptEnded)
        return found

    async def wait_lost(self, uid: str) -> None:
        await self.wait(lambda it: isinstance(it, Lost) and it.uid == uid)

    async def create(self, uid: str, *specs: ContainerSpec) -> None:
        await self.supervisor.create(uid, SandboxSpec(uid, uid, "default", "host", level=self.level), specs)

    async def run(self, uid: str, script: str, **fields: Any) -> AttemptEnded:
        await self.create(uid, make_spec(self.root, script, **fields))
        return await self.wait_ended(uid)

    def read_log(self, uid: str, container: str = "main", attempt: int = 0) -> str:
        content = Path(self.supervisor.get_paths(uid).log(container, attempt)).read_bytes()
        return "".join(line[HEAD_BYTES:].decode(errors="replace") + "\n" for line in content.split(b"\n")[:-1])

    async def wait_for_log(self, uid: str, text: str, container: str = "main") -> str:
        """All of the log, once it contains `text`."""
        path = Path(self.supervisor.get_paths(uid).log(container, 0))
        async with asyncio.timeout(LIMIT):
            while not path.exists() or text not in self.read_log(uid, container):
                await asyncio.sleep(0.01)
        return self.read_log(uid, container)

    def read_shim(self, uid: str) -> ProcessIdentity:
        return decode(ProcessIdentity, Path(self.supervisor.get_paths(uid).identity).read_bytes())


def get_key(happening: Began | AttemptEnded) -> tuple[str, str, int]:
    return happening.uid, happening.container, happening.attempt


def make_spec(root: Path, script: str, *, name: str = "main", attempt: int = 0, **fields: Any) -> ContainerSpec:
    fields = {"env": {"PATH": os.defpath}, "argv": ("/bin/sh", "-c", script), "directory": str(root), **fields}
    return ContainerSpec(name, attempt, **fields)


@asynccontextmanager
async def supervising(root: Path, *, level: str = PLAIN, close: bool = True) -> AsyncIterator[Shims]:
    """Closes all Pods at the end, so that a failing test leaves nothing behind."""
    shims = Shims(root, level)
    async with shims.supervisor:
        try:
            yield shims
        finally:
            if close:
                for uid in shims.supervisor.list_uids():
                    await shims.supervisor.close(uid)


def run(root: Path, test: Callable[[Shims], Awaitable[None]], level: str = PLAIN) -> None:
    async def main() -> None:
        async with supervising(root, level=level) as shims:
            await test(shims)

    asyncio.run(main())


async def wait_until_dead(*pids: int) -> None:
    async with asyncio.timeout(LIMIT):
        for pid in pids:
            while read_start_ticks(pid) is not None:
                await asyncio.sleep(0.005)
