"""Environments with packages: made once over another one, kept by a hash of what was asked for, shared by all Pods.

A marker file says that one is whole; without it the directory is made again, so a crash in the middle costs nothing but
time. Made with `uv` where it is installed, else with the pip of the environment below.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainmaster.node.images.contract import ImageError
from trainmaster.node.images.layers import Base, BaseError, make_layer, read_base

log = logging.getLogger(__name__)

_READY = ".ready"
_FOR_UV = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX", "PIP_FIND_LINKS": "UV_FIND_LINKS"}
_LAST_LINES = 5


class Environments:
    def __init__(self, root: Path, environ: Mapping[str, str], seconds: float = 1800.0) -> None:
        self._root = root
        self._environ = environ
        self._seconds = seconds
        self._locks: dict[str, asyncio.Lock] = {}

    async def ensure(self, base: Base, packages: Sequence[str]) -> str:
        """The prefix of the environment with these packages over that one. ImageError when it cannot be made."""
        key = hash_packages(base, packages)
        directory = self._root / key
        if (directory / _READY).exists():
            return str(directory)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if not (directory / _READY).exists():
                await self._make(directory, base, packages)
        return str(directory)

    async def _make(self, directory: Path, base: Base, packages: Sequence[str]) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        make_layer(str(directory), base)
        argv = self._build_command(directory, packages)
        log.info("making an environment", extra={"action": "images.making", "directory": str(directory)})
        own = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "VIRTUAL_ENV": str(directory)}
        env = {**_translate(self._environ), **self._environ, **own}
        # In a thread: the event loop of the control plane starts no processes.
        call = functools.partial(_run, argv, env, self._seconds)
        try:
            done = await asyncio.get_running_loop().run_in_executor(None, call)
        except subprocess.TimeoutExpired:
            raise ImageError(f"installing {', '.join(packages)} took longer than {self._seconds:.0f} s") from None
        if done.returncode != 0:
            lines = done.stdout.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:]
            shutil.rmtree(directory, ignore_errors=True)
            raise ImageError(f"cannot install {', '.join(packages)}: {' | '.join(lines)}")
        (directory / _READY).touch()

    def _build_command(self, directory: Path, packages: Sequence[str]) -> list[str]:
        python = str(directory / "bin" / "python3")
        uv = shutil.which("uv", path=self._environ.get("PATH", os.defpath))
        if uv is not None:
            return [uv, "pip", "install", "--python", python, *packages]
        return [python, "-m", "pip", "install", "--no-input", *packages]


def _translate(environ: Mapping[str, str]) -> dict[str, str]:
    """Where packages come from is said once, in pip's words; uv has others."""
    return {ours: environ[theirs] for theirs, ours in _FOR_UV.items() if environ.get(theirs)}


def hash_packages(base: Base, packages: Sequence[str]) -> str:
    text = "\0".join((base.prefix, base.version, *sorted(packages)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_environment(prefix: str) -> Base:
    try:
        return read_base(prefix)
    except BaseError as error:
        raise ImageError(str(error)) from None


def _run(argv: Sequence[str], env: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(env),
        timeout=seconds,
        check=False,
    )
