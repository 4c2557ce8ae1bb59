"""Logs of deleted Pods, kept as files in `<archive>/logs/<place>/<container>.<n>.log`.

Embedded, keeping is a hard link: nothing is copied, a Pod that is still writing continues to write to the kept file,
and the Pod's directory can be removed at any time. On another file system, or from a cluster, it is a copy. Lines have
the shims' format: `<RFC 3339 nano> <stdout|stderr> <F|P> <text>`; those from a cluster are converted to it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.jobs.logs.lines import MAX_TEXT, Stamped, split_text
from trainmaster.jobs.logs.windows.stored import FileBytes
from trainmaster.jobs.models.ranks import PodPlace, parse_place
from trainmaster.shim.log_sink import MAX_LINE, SEAMS, SeamReader

FOLDER = "logs"
_MAX_PARTS = MAX_TEXT // MAX_LINE


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """The output of one attempt of a container of a Pod."""

    place: PodPlace
    container: str
    restart: int
    """The restart of the container within its Pod."""
    pieces: tuple[Path, ...]
    """Oldest first: long logs are rotated."""

    @property
    def bytes(self) -> int:
        return sum(piece.stat().st_size for piece in self.pieces)


def open_pieces(log: ArchivedLog) -> FileBytes:
    """To read it anywhere. Raises FileNotFoundError if it was purged."""
    files: list[int] = []
    try:
        for piece in log.pieces:
            files.append(os.open(piece, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        for file in files:
            os.close(file)
        raise
    return FileBytes(files)


def keep(archive: Path, place: str, pod_directory: Path) -> int:
    """Keeps all logs of a Pod directory; returns how many files are new. Repeating it adds only new ones."""
    target = archive / FOLDER / place
    source = pod_directory / "logs"
    count = 0
    for folder in sorted(source.iterdir()) if source.is_dir() else ():
        for file in sorted(folder.iterdir()):
            name = target / f"{folder.name}.{file.name}"
            count += _keep_file(file, name)
    return count


def _keep_file(file: Path, name: Path) -> bool:
    if name.exists():
        if name.samefile(file):
            return False
        # Rotation renamed the files: rename what was kept in the same way.
        name.unlink()
    name.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(file, name)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        shutil.copy2(file, name)
    return True


def list_logs(archive: Path, jobsets: list[str]) -> list[ArchivedLog]:
    """All logs of those JobSets: by attempt, then by job and index, then by restart."""
    found: dict[tuple[PodPlace, str, int], list[tuple[int, Path]]] = {}
    for jobset in jobsets:
        root = archive / FOLDER / jobset
        for path in root.glob("*/*/*/*") if root.is_dir() else ():
            if path.name.startswith("."):
                continue
            place = parse_place(str(path.parent.relative_to(archive / FOLDER)))
            container, restart, piece = _parse_name(path.name)
            found.setdefault((place, container, restart), []).append((piece, path))
    logs = [
        ArchivedLog(place, container, restart, tuple(path for _, path in sorted(pieces, reverse=True)))
        for (place, container, restart), pieces in found.items()
    ]
    return sorted(
        logs,
        key=lambda log: (
            log.place.attempt,
            log.place.job,
            log.place.job_index,
            log.place.index,
            log.container,
            log.restart,
        ),
    )


def _parse_name(name: str) -> tuple[str, int, int]:
    """`node.0.log.2` is the second piece of the first attempt of `node`; 0 is the newest piece."""
    head, _, piece = name.partition(".log")
    container, _, restart = head.rpartition(".")
    return container, int(restart), int(piece[1:] or 0)


def remove(archive: Path, jobsets: list[str]) -> None:
    for jobset in jobsets:
        shutil.rmtree(archive / FOLDER / jobset, ignore_errors=True)


def read_lines(log: ArchivedLog, last_bytes: int | None = None) -> Iterator[Stamped]:
    """Partial lines are joined, up to `MAX_TEXT`, and have the time of their last part; a line says what rotation has
    dropped. `last_bytes`: only lines in so much of the end."""
    held: dict[bytes, _LongLine] = {}
    seams = SeamReader()
    for raw in _read_entries(log, last_bytes):
        moment, stream, flag, text = (*raw.rstrip(b"\n").split(b" ", 3), b"", b"", b"")[:4]
        if stream in SEAMS:
            if gap := seams.describe_gap(raw):
                yield moment.decode(errors="replace"), gap
            continue
        line = held.pop(stream, None) or _LongLine()
        if len(line.parts) == _MAX_PARTS:
            yield line.take()
        line.add(moment, text)
        if flag == b"P":
            held[stream] = line
        else:
            time, whole = line.take()
            yield from ((time, part) for part in split_text(whole))
    for line in held.values():
        yield line.take()


@dataclass(slots=True)
class _LongLine:
    """A line that is stored in parts."""

    time: bytes = b""
    """That of its last part; for all pieces of a line that is longer than `MAX_TEXT`, that of the first piece."""
    parts: list[bytes] = field(default_factory=list)
    is_begun: bool = False
    """Whether its beginning was taken."""

    def add(self, moment: bytes, text: bytes) -> None:
        if not self.is_begun:
            self.time = moment
        self.parts.append(text)

    def take(self) -> Stamped:
        whole = b"".join(self.parts)
        self.parts.clear()
        self.is_begun = True
        return self.time.decode(errors="replace"), whole


def _read_entries(log: ArchivedLog, last_bytes: int | None) -> Iterator[bytes]:
    left_out = 0 if last_bytes is None else max(0, log.bytes - last_bytes)
    for piece in log.pieces:
        size = piece.stat().st_size if left_out else 0
        if left_out and left_out >= size:
            left_out -= size
            continue
        with piece.open("rb") as file:
            if left_out:
                # In the middle of a line, most likely.
                file.seek(left_out - 1)
                file.readline()
                left_out = 0
            yield from file
