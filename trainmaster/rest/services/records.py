"""What history has of deleted jobs: the last record of a name, and the log of a worker.

Reads the archive in a thread, with its own read-only connection. An installation without an archive has no records. The
caller checks access before: it requires permission to read TrainJobs of that namespace.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from trainmaster.history import logs
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter
from trainmaster.history.record import JobRecord
from trainmaster.jobs.kinds import split_kind

TAIL_BYTES = 8 * 1024 * 1024
"""The size of the log's end that one answer contains."""


class RecordSource(Protocol):
    async def find(self, namespace: str, reference: str) -> JobRecord | None:
        """The newest record of the job named NAME or KIND/NAME."""
        ...

    async def find_log(self, record: JobRecord, job: str, worker: int) -> tuple[bytes, bool] | None:
        """The end of a worker's log of its last attempt, and whether it is incomplete; None if nothing is kept."""
        ...


class NoRecords:
    """For installations without an archive."""

    async def find(self, namespace: str, reference: str) -> JobRecord | None:
        return None

    async def find_log(self, record: JobRecord, job: str, worker: int) -> tuple[bytes, bool] | None:
        return None


class ArchivedRecords:
    """Records in the archive of a home, or of an operator's `--history`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def find(self, namespace: str, reference: str) -> JobRecord | None:
        return await asyncio.to_thread(self._find, namespace, reference)

    async def find_log(self, record: JobRecord, job: str, worker: int) -> tuple[bytes, bool] | None:
        return await asyncio.to_thread(self._find_log, record, job, worker)

    def _open(self) -> Archive | None:
        if not (self._directory / FILE).exists():
            return None
        try:
            return Archive.open(self._directory, read_only=True)
        except ArchiveError:
            return None

    def _find(self, namespace: str, reference: str) -> JobRecord | None:
        archive = self._open()
        if archive is None:
            return None
        try:
            kind, name = split_kind(reference)
            lines = archive.select(Filter(namespace=namespace, name=name, kind=kind))
            # Of two jobs with the same name the newer one is meant.
            lines.sort(key=lambda line: line.created, reverse=True)
            return archive.find(lines[0].uid) if lines else None
        finally:
            archive.close()

    def _find_log(self, record: JobRecord, job: str, worker: int) -> tuple[bytes, bool] | None:
        archive = self._open()
        if archive is None:
            return None
        try:
            jobsets = archive.list_jobsets(record.uid)
        finally:
            archive.close()
        kept = [
            log
            for log in logs.list_logs(self._directory, jobsets)
            if (log.place.job, log.place.index, log.container) == (job, worker, job)
        ]
        if not kept:
            return None
        last = max(kept, key=lambda log: (log.place.attempt, log.restart))
        end = LogEnd()
        for _, text in logs.read_lines(last):
            end.add(text + b"\n")
        return end.read()


class LogEnd:
    """Keeps the last bytes of a log."""

    def __init__(self, limit: int = TAIL_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._truncated = False

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > 2 * self._limit:
            self._cut()

    def read(self) -> tuple[bytes, bool]:
        """The last bytes, starting at a line, and whether something is missing."""
        self._cut()
        return self._pieces[0], self._truncated

    def _cut(self) -> None:
        whole = b"".join(self._pieces)
        if len(whole) > self._limit:
            whole = whole[-self._limit :]
            whole = whole[whole.find(b"\n") + 1 :]
            self._truncated = True
        self._pieces, self._size = [whole], len(whole)
