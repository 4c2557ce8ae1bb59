"""Runs a command as an ordinary user, even if the interpreter is in a directory that only its owner can enter.

    python -m tests.support.as_user UID COMMAND...

In a mount namespace of its own, each closed directory on the way to this interpreter, its environment and this
repository is covered by one that shows nothing but them. The machine's own files and modes stay as they are. The
command replaces this process, so that its pid is that of the command.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from trainmaster.shim.sandbox import linux

ROOT = Path(__file__).resolve().parent.parent.parent


def main(user: int, command: list[str]) -> None:
    linux.unshare(linux.CLONE_NEWNS)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    open_ways([Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT])
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.chdir("/")
    os.execv(command[0], command)


def open_ways(paths: Iterable[Path]) -> None:
    closed: dict[Path, list[Path]] = {}
    for path in paths:
        gate = next((step for step in (*reversed(path.parents), path) if not _is_open(step)), None)
        if gate is not None:
            closed.setdefault(gate, []).append(path)
    for gate, inside in closed.items():
        stages = []
        for path in inside:
            stages.append(tempfile.mkdtemp(prefix="tm-stage-"))
            subprocess.run(["mount", "--rbind", str(path), stages[-1]], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(gate)], check=True)
        for path, stage in zip(inside, stages, strict=True):
            path.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--move", stage, str(path)], check=True)
            os.rmdir(stage)


def _is_open(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXOTH)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
