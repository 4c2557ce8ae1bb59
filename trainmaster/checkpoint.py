"""Checkpoints that a restarted job can trust. For training programs; standard library only.

    from trainmaster import checkpoint

    checkpoint.catch_stop()                        # SIGTERM asks from here on, and no longer ends the program
    begin = checkpoint.resume_from()               # newest complete one before this attempt, or None
    ...
    path = checkpoint.directory() / f"step-{step}"
    save(path)                                     # a file or a directory, by all ranks
    barrier()
    if rank == 0:
        checkpoint.commit(path, step=step)         # from here on it is complete
    if checkpoint.should_stop():                   # asked to stop: agree with the other ranks, save, then end
        ...

`TRAINMASTER_CHECKPOINT_DIR` is one directory for all ranks and attempts of a job. A checkpoint in it is complete when
it has a marker: `.complete` inside a directory, `NAME.complete` beside a file. `commit` syncs the data to disk before
it writes the marker, so an incomplete checkpoint is never chosen. Programs without this package can do the same: write
under a name that begins with a dot or ends in `.partial`, rename it, then create the marker. To reuse a name, call
`begin` first, which removes the marker.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

DIRECTORY = "TRAINMASTER_CHECKPOINT_DIR"
RESUME_FROM = "TRAINMASTER_RESUME_FROM"
ATTEMPT = "TRAINMASTER_ATTEMPT"
STOP_NOTICE = "TRAINMASTER_STOP_NOTICE"
MARKER = ".complete"
_UNFINISHED = (".partial", ".tmp")
_asked: list[int] = []
"""Signals received since `catch_stop`."""


def directory() -> Path:
    """The directory for checkpoints of this job. Outside of a job: `checkpoints` in the working directory."""
    path = Path(os.environ.get(DIRECTORY) or "checkpoints")
    path.mkdir(parents=True, exist_ok=True)
    return path


def resume_from() -> Path | None:
    """The newest complete checkpoint at the start of this attempt; the same on every rank."""
    if RESUME_FROM in os.environ:
        text = os.environ[RESUME_FROM]
        return Path(text) if text else None
    return find_newest(directory())


def attempt() -> int:
    """0 for the first run of the job, 1 after the first restart of the gang, and so on."""
    return int(os.environ.get(ATTEMPT) or 0)


def catch_stop() -> None:
    """From now on SIGTERM does not end the program but makes `should_stop` true. Call it in the main thread before
    training."""
    signal.signal(signal.SIGTERM, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _asked.append(number)


def should_stop() -> bool:
    """Whether the job was asked to stop, by the notice or by a SIGTERM after `catch_stop`. It may become true on one
    rank before another: let the ranks agree (e.g. with an all-reduce) before acting on it."""
    if _asked:
        return True
    notice = os.environ.get(STOP_NOTICE)
    return bool(notice) and os.path.exists(notice or "")


def begin(path: str | os.PathLike[str]) -> Path:
    """Call it before saving under a name that may have been used: removes the marker of the old checkpoint."""
    target = Path(path)
    marker = _get_marker(target)
    if marker.exists():
        marker.unlink()
        _sync(marker.parent)
    return target


def commit(path: str | os.PathLike[str], *, step: int | None = None) -> None:
    """Marks the checkpoint as complete, after everything in it is on disk."""
    target = Path(path)
    if not target.exists():
        raise FileNotFoundError(f"there is no checkpoint {target}: save it before you commit it")
    _sync_tree(target)
    marker = _get_marker(target)
    content = {"step": step, "attempt": attempt()}
    temporary = marker.with_name(f"{marker.name}.tmp")
    with temporary.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(marker)
    _sync(marker.parent)


def find_newest(folder: Path) -> Path | None:
    """The complete checkpoint with the most recent marker; None if there is none."""
    try:
        return choose_newest(folder, os.listdir(folder))
    except FileNotFoundError:
        return None


def choose_newest(folder: Path, names: Iterable[str]) -> Path | None:
    """The same among these names."""
    newest: tuple[int, str] | None = None
    for name in names:
        if name.startswith(".") or name.endswith((*_UNFINISHED, MARKER)):
            continue
        try:
            moment = _get_marker(folder / name).stat().st_mtime_ns
        except OSError:
            continue
        newest = max(newest or (0, ""), (moment, name))
    return None if newest is None else folder / newest[1]


def read_commit_time(path: Path) -> float:
    """When the complete checkpoint was committed, in seconds since the epoch. Raises OSError if it is not complete."""
    return _get_marker(path).stat().st_mtime


def _get_marker(path: Path) -> Path:
    return path / MARKER if path.is_dir() else path.with_name(path.name + MARKER)


def _sync_tree(path: Path) -> None:
    if path.is_dir():
        for root, _, files in os.walk(path):
            for name in files:
                _sync(Path(root) / name)
            _sync(Path(root))
    else:
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
