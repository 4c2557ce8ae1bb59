"""Deletes records of deleted jobs by age, by size or on request, together with their files.

Files are deleted before the record: a crash in between leaves a record without logs, which the next purge deletes, and
never unknown files.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from trainmaster.history import logs
from trainmaster.history.archive import Archive, Filter
from trainmaster.history.results import RESULTS, WORKDIRS
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.shim.trees import TreeWalk, remove_tree


def find_moment(seconds: float, now: datetime) -> str:
    """The time this many seconds ago, in the format of records."""
    return format_time(now - timedelta(seconds=seconds))


def purge(archive: Archive, uids: Sequence[str]) -> None:
    for uid in uids:
        logs.remove(archive.directory, archive.list_jobsets(uid))
        remove_results(archive.directory, uid)
    archive.remove(uids)


def remove_results(directory: Path, uid: str) -> None:
    """Deletes checkpoints and outputs of a TrainJob."""
    remove_tree(directory / RESULTS / uid)


def measure_results(directory: Path, uid: str) -> int:
    """Ignores files that disappear or move in the meantime, because Pods of the job may still be terminating. A sparse
    file counts with its size on disk, so that a huge apparent size does not cause records to be deleted."""
    try:
        walk = TreeWalk(str(directory / RESULTS / uid))
    except OSError:
        return 0
    found = (entry.status for entry in walk)
    return sum(min(one.st_size, one.st_blocks * 512) for one in found if stat.S_ISREG(one.st_mode))


def measure_again(archive: Archive) -> None:
    """For jobs that were deleted while running: outputs of rank 0 are kept after the record was written."""
    for line in archive.select(Filter(deleted=True)):
        place = archive.directory / RESULTS / line.uid / WORKDIRS
        if line.deletion is None or not place.is_dir():
            continue
        if place.stat().st_mtime < parse_time(line.deletion.at).timestamp():
            continue
        size = sum(log.bytes for log in logs.list_logs(archive.directory, archive.list_jobsets(line.uid)))
        size += measure_results(archive.directory, line.uid)
        record = archive.find(line.uid)
        if record is not None and record.kept_bytes != size:
            archive.put([replace(record, kept_bytes=size)])


def trim(archive: Archive, *, before: str, most_bytes: int) -> list[str]:
    """Deletes jobs that ended before that time, and the oldest of the others until the rest fits."""
    measure_again(archive)
    found = archive.select(Filter(deleted=True))
    total = archive.measure()[1]
    gone = []
    for line in reversed(found):
        if line.finished < before or total > most_bytes:
            gone.append(line.uid)
            total -= line.bytes
    purge(archive, gone)
    return gone
