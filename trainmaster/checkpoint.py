"""Checkpoints that a restarted job can trust. For training programs; standard library only.

    from trainmaster import checkpoint

    checkpoint.catch_stop()                        # SIGTERM asks from here on, and no longer ends the program
    begin = checkpoint.resume_from()               # newest complete one before this attempt, or None
    ...
    path = checkpoint.directory() / f"step-{step}"
    save(path)                                     # a file or a directory, by all ranks
    barrier()
    if rank == 0:
        checkpoint.commit(path, step=step)         # from here on it is complete; digest=True: with SHA-256
    if checkpoint.should_stop():                   # asked to stop: agree with the other ranks, save, then end
        ...

`TRAINMASTER_CHECKPOINT_DIR` is one directory for all ranks and attempts of a job. A checkpoint in it is complete when
it has a marker: `.complete` inside a directory, `NAME.complete` beside a file. `commit` syncs the data to disk before
it writes the marker, so an incomplete checkpoint is never chosen. The marker has the sizes of the files, so one that
was cut afterwards is not chosen either. Programs without this package can do the same: write under a name that
begins with a dot or ends in `.partial`, rename it, then create the marker, which may be empty. To reuse a name, call
`begin` first, which removes the marker.
"""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

DIRECTORY = "TRAINMASTER_CHECKPOINT_DIR"
RESUME_FROM = "TRAINMASTER_RESUME_FROM"
ATTEMPT = "TRAINMASTER_ATTEMPT"
STOP_NOTICE = "TRAINMASTER_STOP_NOTICE"
MARKER = ".complete"
UNFINISHED = (".partial", ".tmp")
"""Endings of names that are not checkpoints yet."""
MARKER_BYTES = 4 << 20
"""A larger marker is not read."""
_MOST_FILES = 20_000
"""Of how many files the marker has the sizes; that of a checkpoint with more has none."""
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


def commit(path: str | os.PathLike[str], *, step: int | None = None, digest: bool = False) -> None:
    """Marks the checkpoint as complete, after everything in it is on disk. The marker has the sizes of its files, and
    with `digest` their SHA-256, for which everything is read again: `trainmaster checkpoints verify` compares them."""
    target = Path(path)
    if not target.exists():
        raise FileNotFoundError(f"there is no checkpoint {target}: save it before you commit it")
    _sync_tree(target)
    marker = _get_marker(target)
    content = {"step": step, "attempt": attempt(), **_describe_files(target, digest)}
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
    """The same among these names. One whose files are not as its marker says is passed over."""
    found: list[tuple[int, str]] = []
    for name in names:
        if name.startswith(".") or name.endswith((*UNFINISHED, MARKER)):
            continue
        try:
            status = _get_marker(folder / name).stat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.append((status.st_mtime_ns, name))
    return next((folder / name for _, name in sorted(found, reverse=True) if not find_damage(folder / name)), None)


def find_damage(path: Path) -> str:
    """How its files differ from what its marker says; "" if they do not, or the marker does not say."""
    try:
        with _get_marker(path).open("rb") as file:
            noted = json.loads(file.read(MARKER_BYTES))["files"]
        sizes = {str(name): int(about["bytes"]) for name, about in noted.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return ""
    for name, size in sizes.items():
        try:
            status = os.lstat(path / name if name else path)
        except (OSError, ValueError):
            return f"{name or path.name} is missing"
        if status.st_size != size:
            return f"{name or path.name} has {status.st_size:,} bytes instead of {size:,}"
    return ""


def _describe_files(target: Path, digest: bool) -> dict[str, object]:
    """What the marker says about the files: by path inside a directory, or "" for a checkpoint that is a file."""
    paths = {"": target}
    if target.is_dir():
        found = (Path(root) / name for root, _, files in os.walk(target) for name in files)
        paths = {path.relative_to(target).as_posix(): path for path in found if path != target / MARKER}
    regular = {name: path for name, path in paths.items() if stat.S_ISREG(path.lstat().st_mode)}
    if len(regular) > _MOST_FILES or not all(name.isprintable() for name in regular):
        return {}
    return {"files": {name: _describe_file(path, digest) for name, path in sorted(regular.items())}}


def _describe_file(path: Path, digest: bool) -> dict[str, object]:
    about: dict[str, object] = {"bytes": path.lstat().st_size}
    if digest:
        import hashlib  # noqa: PLC0415 - for those who ask for it

        computed = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                computed.update(piece)
        about["sha256"] = computed.hexdigest()
    return about


def read_commit_time(path: Path) -> float:
    """When the complete checkpoint was committed, in seconds since the epoch. Raises OSError if it is not complete."""
    return _get_marker(path).stat().st_mtime


def _get_marker(path: Path) -> Path:
    return path / MARKER if path.is_dir() else path.with_name(path.name + MARKER)


def _sync_tree(path: Path) -> None:
    if path.is_dir():
        for root, _, files in os.walk(path):
            for name in files:
                if os.path.isfile(os.path.join(root, name)):  # opening a pipe would wait
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
