"""Logs as a shim writes them, for tests that read them anywhere."""

from __future__ import annotations

from trainmaster.jobs.logs.windows.merged import RunLog
from trainmaster.jobs.logs.windows.stored import MemoryBytes
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.shim.log_sink import STDERR, STDOUT, build_entries


def make_time(number: int) -> str:
    return f"2026-11-15T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000000000Z"


class Printer:
    """One process, whose output is read in pieces at certain seconds."""

    def __init__(self) -> None:
        self.content = b""
        self._pending = {STDOUT: b"", STDERR: b""}

    def print(self, second: int, data: bytes, stream: bytes = STDOUT) -> Printer:
        stamp = f"{make_time(second)} ".encode() + stream
        self.content += build_entries(self._pending, stream, data, stamp)
        return self

    def lines(self, begin: int, end: int, *, each: int = 1) -> Printer:
        """Numbered lines, so many in a second."""
        for number in range(begin, end):
            self.print(number // each, b"line %d\n" % number)
        return self


def make_run(printer: Printer, rank: int = 0, attempt: int = 0, job: str = "node") -> RunLog:
    place = PodPlace("jobset", attempt, job, 0, rank, f"{job}-{rank}-{attempt}")
    log = MemoryBytes(printer.content)
    return RunLog(place, job, 0, log.size, lambda: log)
