"""Measures how fast the disk syncs, and handles failed syncs."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from pathlib import Path

import apsw

from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

EXIT_CODE = 70
"""EX_SOFTWARE of sysexits: the process ended itself."""

_ROUNDS = 9
_ENOUGH = 0.02
_GAUGE_COMMITS = 64
_STALL_SECONDS = 0.01
"""A commit that takes this long shows that the disk is busy, and the next one may take longer."""


def measure_sync(directory: Path, clock: Clock) -> float:
    """Median seconds for writing and syncing 4 KiB there. Takes a few milliseconds; stops early on a slow disk.

    A full disk counts as slow.
    """
    try:
        return _measure_sync(directory, clock)
    except OSError as error:
        if not is_full(error):
            raise
        return 1.0


def _measure_sync(directory: Path, clock: Clock) -> float:
    block = os.urandom(4096)
    times: list[float] = []
    with tempfile.TemporaryFile(dir=directory) as file:
        begin = clock.monotonic()
        while len(times) < _ROUNDS and (len(times) < 3 or clock.monotonic() - begin < _ENOUGH):
            started = clock.monotonic()
            os.pwrite(file.fileno(), block, 0)
            os.fdatasync(file.fileno())
            times.append(clock.monotonic() - started)
    # The first one includes creating the file.
    rest = sorted(times[1:])
    return rest[len(rest) // 2]


class SyncGauge:
    """Whether this disk syncs fast, judged by recent commits and, initially, by a measurement.

    Otherwise a disk that was busy when the store was opened would be considered slow forever.
    """

    __slots__ = ("_limit", "_recent", "is_fast")

    def __init__(self, first: float, limit: float) -> None:
        self._limit = limit
        self._recent: list[float] = []
        self.is_fast = first <= limit

    def note(self, seconds: float) -> None:
        """Records the time of a commit of one or a few writes."""
        if seconds > _STALL_SECONDS:
            self.is_fast = False
            self._recent.clear()
            return
        self._recent.append(seconds)
        if len(self._recent) == _GAUGE_COMMITS:
            # Hysteresis, so that the result does not flap.
            limit = self._limit if self.is_fast else 0.7 * self._limit
            self.is_fast = sorted(self._recent)[_GAUGE_COMMITS // 2] <= limit
            self._recent.clear()


def is_full(error: BaseException) -> bool:
    return isinstance(error, apsw.FullError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def exit_process(what: str, error: BaseException) -> None:
    """Exits immediately without clean-up: after a failed fsync nothing in memory can be trusted."""
    log.critical("store failed, the process ends", exc_info=error, extra={"action": "store.fatal", "what": what})
    os._exit(EXIT_CODE)
