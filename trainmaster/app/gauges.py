"""Gauges of a process and of an archive, for the server and for the operator."""

from __future__ import annotations

import os
from typing import Protocol

from trainmaster.app.metrics import HISTORY_BYTES, HISTORY_RECORDS, HISTORY_UNWRITTEN
from trainmaster.kit.metrics import Metrics


class MeasuredArchive(Protocol):
    @property
    def size(self) -> tuple[int, int]:
        """(records, bytes)."""
        ...

    def count_troubles(self) -> int:
        """Finished jobs that are kept because their record could not be written."""
        ...


def read_resident_bytes() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def declare_history(metrics: Metrics, keeper: MeasuredArchive) -> None:
    metrics.gauge(HISTORY_RECORDS, lambda: keeper.size[0])
    metrics.gauge(HISTORY_BYTES, lambda: keeper.size[1])
    metrics.gauge(HISTORY_UNWRITTEN, keeper.count_troubles)
