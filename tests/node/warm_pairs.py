"""Runs programs twice, executed and as forks of a warm interpreter, and returns what both wrote.

The zygote's imports are some of the standard library, so that no framework is needed.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.node.shims import Shims, supervising
from trainmaster.node.images import layers
from trainmaster.node.shims.supervisor import AttemptEnded, Began
from trainmaster.node.shims.warm import WarmZygote
from trainmaster.shim.protocol import ENVIRON, HOST_NETWORK, PLAIN, ContainerSpec, Mount, SandboxSpec

IMPORTS = ("decimal", "json", "logging", "multiprocessing.pool", "tempfile", "random", "concurrent.futures")


_ADDRESS = re.compile(" at 0x[0-9a-f]+")


@dataclass
class Pair:
    """A supervisor with a warm zygote; every program is run cold and warm."""

    shims: Shims
    wish: WarmZygote
    work: Path
    count: int = 0

    def make_spec(self, *arguments: str, **fields: Any) -> ContainerSpec:
        env = {
            "PATH": f"{self.wish.prefix}/bin:{os.defpath}",
            "HOME": str(self.work),
            **ENVIRON,
            **fields.pop("env", {}),
        }
        spec = ContainerSpec("main", 0, (f"{self.wish.prefix}/bin/python", *arguments), env, str(self.work))
        if self.shims.level != PLAIN:
            # The environment below the layer may lie where a sandbox shows nothing of the machine.
            shown = (self.wish.prefix, os.path.realpath(sys.prefix), str(self.work))
            mounts = tuple(Mount(path, path) for path in shown)
            spec = replace(spec, mounts=mounts)
        return replace(spec, **fields)

    async def start(self, spec: ContainerSpec, *, warm: bool) -> str:
        self.count += 1
        uid = f"pod-{self.count}"
        pod = SandboxSpec(uid, uid, "default", "host", level=self.shims.level, network=HOST_NETWORK)
        if self.shims.level != PLAIN:
            pod = replace(pod, cgroup=f"warm-{os.getpid()}-{uid}")
        await self.shims.supervisor.create(uid, pod, [replace(spec, warm=self.wish.key)], self.wish if warm else None)
        return uid

    async def run(self, spec: ContainerSpec, *, warm: bool) -> tuple[AttemptEnded, str, Began]:
        uid = await self.start(spec, warm=warm)
        began, ended = await self.shims.wait_began(uid), await self.shims.wait_ended(uid)
        return ended, self.shims.read_log(uid), began

    async def both(self, *arguments: str, **fields: Any) -> tuple[str, str]:
        """(log of the cold one, log of the warm one), which have ended alike."""
        spec = self.make_spec(*arguments, **fields)
        cold, cold_log, cold_began = await self.run(spec, warm=False)
        warm, warm_log, warm_began = await self.run(spec, warm=True)
        assert cold_began.started.note == ""
        assert warm_began.started.note.startswith("started warm"), warm_began.started.note
        assert (cold.exited.code, cold.exited.signal) == (warm.exited.code, warm.exited.signal), warm_log
        return cold_log, warm_log

    def write(self, name: str, text: str) -> str:
        (self.work / name).write_text(text)
        return name


def sort_lines(log: str) -> list[str]:
    """The two streams come through two pipes: lines of one may overtake those of the other."""
    return sorted(_ADDRESS.sub("", log).splitlines())


def run(
    tmp_path: Path,
    test: Callable[[Pair], Awaitable[None]],
    level: str = PLAIN,
    *,
    packages: tuple[str, ...] = (),
    imports: tuple[str, ...] = IMPORTS,
    prefix: str = sys.prefix,
) -> None:
    async def main() -> None:
        work = tmp_path / "work"
        work.mkdir()
        base = layers.read_base(os.path.realpath(prefix))
        layer = layers.make_shared(tmp_path / "layers", replace(base, packages=(*base.packages, *packages)))
        wish = WarmZygote("test", layer, imports, "the tests' own")
        async with supervising(tmp_path / "pods", level=level) as shims:
            await shims.supervisor.ensure_warm(wish)
            await test(Pair(shims, wish, work))

    asyncio.run(main())
