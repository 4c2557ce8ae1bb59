"""A control plane that is about to die: launches Pods as fast as it can, says which, and waits to be killed.

python -m tests.crash.pods_child ROOT LEVEL COUNT
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from trainmaster.node.shims.supervisor import ShimEvent, Supervisor
from trainmaster.shim.protocol import PLAIN, ContainerSpec, Mount, SandboxSpec

LINES = 20
_PATH = {"PATH": os.defpath}


def get_uid(number: int) -> str:
    return f"crash-{os.path.basename(os.environ.get('CRASH_MARK', 'x'))}-{number}"


def make_pod(uid: str, level: str) -> SandboxSpec:
    return SandboxSpec(uid, uid, "default", "host", level=level, cgroup="" if level == PLAIN else uid)


def make_container(root: Path, number: int, level: str) -> tuple[ContainerSpec, int]:
    """One Pod's program and its exit code: ordinary ends, signals, and daemons that are left behind."""
    code = number * 7 % 256
    end, want = (
        (f"exit {code}", code),
        ("kill -SEGV $$", 139),
        (f"setsid sleep 300 >/dev/null 2>&1 & exit {code}", code),
        (f"(sleep 300 &); exit {code}", code),
        ("kill -KILL $$", 137),
    )[number % 5]
    pause = (0.2 + number % 10 * 0.1) / LINES
    mine = f"/crash/{number}" if level != PLAIN else str(root / "work" / str(number))
    script = f"""
        echo $$ >> {mine}/starts
        i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); sleep {pause:.3f}; done
        {end}"""
    mounts = () if level == PLAIN else (Mount("/crash", str(root / "work")),)
    return ContainerSpec("main", 0, ("/bin/sh", "-c", script), _PATH, "/", mounts=mounts), want


async def main(root: Path, level: str, count: int) -> None:
    def ignore(_: ShimEvent) -> None:
        """Whatever happens is on disk for whoever comes after us."""

    async with Supervisor(root / "pods", ignore, level) as supervisor:

        async def launch(number: int) -> None:
            uid = get_uid(number)
            await supervisor.create(uid, make_pod(uid, level), [make_container(root, number, level)[0]])
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()

        await asyncio.gather(*(launch(number) for number in range(count)))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
