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
it has a marker: `.complete` inside a directory, `NAME.complete` beside a file. `commit` writes what was saved to the
disk first and the marker last, so one that was cut short in the middle is never chosen. Programs without this package
do the same by hand: write under a name that begins with a dot or ends in `.partial`, rename it, then create the marker.
Whoever saves under a name that was used before calls `begin` first, which takes the marker away.
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
"""Signals that came since `catch_stop`."""


def directory() -> Path:
    """Where checkpoints of this job go. Outside of a job: `checkpoints` in the working directory."""
    path = Path(os.environ.get(DIRECTORY) or "checkpoints")
    path.mkdir(parents=True, exist_ok=True)
    return path


def resume_from() -> Path | None:
    """The newest complete checkpoint as it was when this attempt began: the same on every rank."""
    if RESUME_FROM in os.environ:
        text = os.environ[RESUME_FROM]
        return Path(text) if text else None
    return find_newest(directory())


def attempt() -> int:
    """0 for the first run of the job, 1 after the first restart of the gang, and so on."""
    return int(os.environ.get(ATTEMPT) or 0)


def catch_stop() -> None:
    """SIGTERM no longer ends the program, it makes `should_stop` true. For the main thread; call it before training."""
    signal.signal(signal.SIGTERM, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _asked.append(number)


def should_stop() -> bool:
    """Whether the job was asked to stop: by the notice, or by a SIGTERM that `catch_stop` caught. It becomes true on
    one rank a moment before another: let the ranks agree (an all-reduce of the answer) before they act on it."""
    if _asked:
        return True
    notice = os.environ.get(STOP_NOTICE)
    return bool(notice) and os.path.exists(notice or "")


def begin(path: str | os.PathLike[str]) -> Path:
    """Before saving under a name that may have been used: what lies there is no longer complete."""
    target = Path(path)
    marker = _get_marker(target)
    if marker.exists():
        marker.unlink()
        _sync(marker.parent)
    return target


def commit(path: str | os.PathLike[str], *, step: int | None = None) -> None:
    """Declares the checkpoint complete. Everything in it is on the disk before it counts."""
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
    """The complete checkpoint whose marker is the youngest; None when there is none."""
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
