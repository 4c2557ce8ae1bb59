"""Copies a checkpoint out of the results of a job. What it has besides files, such as links, is left out."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.history.checkpoints.model import CheckpointSource
from trainmaster.shim.sandbox import beneath
from trainmaster.shim.trees import copy_data, remove_tree


def copy(source: CheckpointSource, target: Path, *, file_mode: int = 0o644, directory_mode: int = 0o755) -> None:
    """The target is complete or absent. Nobody else may be able to change its directory. Raises OSError, also if the
    target exists."""
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists")
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")
    _discard(draft)
    top = beneath.open_directory(os.fspath(source.root))
    try:
        if not source.is_file:
            draft.mkdir()
            draft.chmod(directory_mode)
        for file in source.files:
            place = draft / file.path if file.path else draft
            for folder in reversed(place.relative_to(draft).parents[:-1] if file.path else ()):
                if not (draft / folder).is_dir():
                    (draft / folder).mkdir()
                    (draft / folder).chmod(directory_mode)
            _copy_file(top, source.locate(file.path), place, file_mode)
        draft.rename(target)
    finally:
        os.close(top)
        _discard(draft)


def _copy_file(top: int, path: str, target: Path, mode: int) -> None:
    handle = beneath.open_file(top, path)
    try:
        with target.open("xb") as file:
            copy_data(handle, file.fileno())
            os.fchmod(file.fileno(), mode)
            status = os.fstat(handle)
            os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(handle)


def _discard(draft: Path) -> None:
    if draft.is_dir() and not draft.is_symlink():
        remove_tree(draft)
    else:
        draft.unlink(missing_ok=True)
