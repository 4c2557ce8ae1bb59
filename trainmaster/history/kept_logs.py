"""The archive's logs for `jobs.logs`: logs of deleted Pods. Read-only; works without a server.

The server records which JobSet belongs to which TrainJob about a second late, so callers pass the JobSets they know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from trainmaster.history.archive import FILE, Archive
from trainmaster.history.logs import ArchivedLog, list_logs, open_pieces, read_lines
from trainmaster.jobs.logs.contract import KeptLog
from trainmaster.jobs.logs.lines import Stamped
from trainmaster.jobs.logs.windows.stored import LogBytes


class KeptLogs:
    """Implements `jobs.logs.contract.Kept`. `directory` is the archive's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def list_logs(self, job: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        return list_logs(self._directory, sorted({*jobsets, *self._list_noted(job)}))

    def read(self, log: KeptLog) -> Iterator[Stamped]:
        assert isinstance(log, ArchivedLog)
        return read_lines(log)

    def _list_noted(self, job: str) -> list[str]:
        if not job or not (self._directory / FILE).exists():
            return []
        archive = Archive.open(self._directory, read_only=True)
        try:
            return archive.list_jobsets(job)
        finally:
            archive.close()


def open_kept(log: KeptLog) -> LogBytes:
    """To read it anywhere."""
    assert isinstance(log, ArchivedLog)
    return open_pieces(log)


def measure_kept(log: KeptLog) -> int:
    assert isinstance(log, ArchivedLog)
    return log.bytes
