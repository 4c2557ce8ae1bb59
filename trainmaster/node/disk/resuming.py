"""Brings the checkpoint of another job into a new one, before its first Pod starts (annotation `resume-from`).

It is copied, not linked: a program may write into what it resumes from, and the record of the other job, whose
checkpoint it is, stays as it was. The other job has to be of the same namespace.

    <root>/<TrainJob uid>/bringing/           a copy that is not complete
    <root>/<TrainJob uid>/resumed-from.json   it was brought
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from trainmaster import checkpoint
from trainmaster.api.training.checkpoints import parse_source
from trainmaster.bundles.walking import format_bytes
from trainmaster.history.checkpoints.copying import copy
from trainmaster.history.checkpoints.model import Checkpoint
from trainmaster.history.checkpoints.notes import read_attempts
from trainmaster.history.checkpoints.reading import CHECKPOINTS, read_checkpoints
from trainmaster.node.launch.contract import CONFIG_ERROR, LaunchError
from trainmaster.shim.protocol import write_whole
from trainmaster.shim.trees import remove_tree

_DRAFTS = "bringing"
_NOTE = "resumed-from.json"
_SPARE_BYTES = 1 << 30
"""Free space that has to stay."""


@dataclass(slots=True)
class Resuming:
    root: Path
    """The results of all jobs."""
    list_kept: Callable[[str], Sequence[Path]] | None
    """The directories of jobs of a namespace. Called in a thread."""
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    """By job: its ranks are prepared at the same time."""

    async def bring(self, namespace: str, trainjob: str, wanted: str) -> None:
        """Does nothing if it was done, or the job began before. Raises LaunchError: a job that cannot have what it was
        asked to begin with does not start from nothing."""
        lock = self._locks.setdefault(trainjob, asyncio.Lock())
        async with lock:
            try:
                await asyncio.to_thread(self._bring, namespace, trainjob, wanted)
            except OSError as error:
                raise LaunchError(CONFIG_ERROR, f"cannot copy {wanted}: {error.strerror or error}") from None
        self._locks.pop(trainjob, None)

    def _bring(self, namespace: str, trainjob: str, wanted: str) -> None:
        folder = self.root / trainjob
        if (folder / _NOTE).exists() or read_attempts(folder).began:
            return
        item = self._find(namespace, wanted)
        name = os.path.basename(item.source.path)
        if not name.isprintable() or name.startswith("."):
            raise LaunchError(CONFIG_ERROR, f"the name of {wanted} cannot be given to a program")
        target = folder / CHECKPOINTS
        target.mkdir(parents=True, exist_ok=True)
        self._check_space(item)
        drafts = folder / _DRAFTS
        remove_tree(drafts)
        drafts.mkdir()
        # Ranks may run as another user, and may remove checkpoints.
        copy(item.source, drafts / name, file_mode=0o666, directory_mode=0o777)
        _place(item, drafts, target, name, wanted)
        write_whole(os.fspath(folder / _NOTE), orjson.dumps({"from": wanted}))
        remove_tree(drafts)

    def _find(self, namespace: str, wanted: str) -> Checkpoint:
        try:
            uid, name = parse_source(wanted)
        except ValueError as error:
            raise LaunchError(CONFIG_ERROR, f"the annotation resume-from {error}") from None
        own = () if self.list_kept is None else self.list_kept(namespace)
        item = read_checkpoints(self.root.parent, uid).find(name) if self.root / uid in own else None
        if item is None:
            raise LaunchError(CONFIG_ERROR, f"there is no checkpoint {name} of a job {uid} in this namespace")
        if not item.complete:
            raise LaunchError(CONFIG_ERROR, f"the checkpoint {name} of the job {uid} is not complete: {item.problem}")
        return item

    def _check_space(self, item: Checkpoint) -> None:
        disk = os.statvfs(self.root)
        free = disk.f_bavail * disk.f_frsize
        if free < item.bytes + _SPARE_BYTES:
            text = f"the disk has {format_bytes(free)} left, and {item.name} needs {format_bytes(item.bytes)}"
            raise LaunchError(CONFIG_ERROR, text)


def _place(item: Checkpoint, drafts: Path, target: Path, name: str, wanted: str) -> None:
    """No Pod of the job has started yet, so nobody else writes there."""
    content = orjson.dumps(
        {
            "step": item.step,
            "attempt": None,
            "from": wanted,
            "files": {file.path: {"bytes": file.bytes} for file in item.source.files if file.path.isprintable()},
        }
    )
    _discard(target / name)
    if item.source.is_file:
        (drafts / name).rename(target / name)
        write_whole(os.fspath(target / f"{name}{checkpoint.MARKER}"), content, 0o666)
    else:
        write_whole(os.fspath(drafts / name / checkpoint.MARKER), content, 0o666)
        (drafts / name).rename(target / name)


def _discard(path: Path) -> None:
    """What an interrupted attempt to bring it has left."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
