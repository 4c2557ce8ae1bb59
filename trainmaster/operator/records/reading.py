"""Reads the archive for requests: in threads, a few at a time, each with a connection of its own that cannot write.

A slow disk, or a network volume that hangs, must not stop the loop on which the leader renews its Lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trainmaster.api import status
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter, RecordLine
from trainmaster.history.logs import list_logs
from trainmaster.history.objects import CompleteRecord
from trainmaster.history.record import JobRecord

log = logging.getLogger(__name__)

_AT_ONCE = 4

T = TypeVar("T")


class ArchiveReader:
    """`directory` is the archive's, which may not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def list_kinds(self, namespace: str) -> list[str]:
        return await self._ask(lambda archive: archive.list_kinds(namespace), list[str]())

    async def select(self, wanted: Filter) -> list[RecordLine]:
        return await self._ask(lambda archive: archive.select(wanted), list[RecordLine]())

    async def find(self, namespace: str, uid: str) -> JobRecord | None:
        found = await self._ask(lambda archive: archive.find(uid), None)
        return found if found is not None and found.namespace == namespace else None

    async def complete(self, record: JobRecord) -> CompleteRecord:
        def look(archive: Archive) -> CompleteRecord:
            logs = list_logs(archive.directory, archive.list_jobsets(record.uid))
            return CompleteRecord(record, logs, archive.list_points(record.uid))

        return await self._ask(look, CompleteRecord(record, (), ()))

    async def _ask(self, question: Callable[[Archive], T], nothing: T) -> T:
        """Raises StatusError 503 if the archive cannot be read."""

        def work() -> T:
            if not (self.directory / FILE).exists():
                return nothing
            archive = Archive.open(self.directory, read_only=True)
            try:
                return question(archive)
            finally:
                archive.close()

        async with self._slots:
            try:
                return await asyncio.to_thread(work)
            except OSError as error:
                what = "archive not read" if isinstance(error, ArchiveError) else "logs not read"
                log.warning(what, extra={"action": "records.failed", "error": str(error)})
                raise status.unavailable("the archive cannot be read; the log of the operator says why") from error
