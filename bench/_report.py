"""What a bench promises, and what was seen: a line on the terminal, and a row of docs/performance.md.

    report = Report()
    report.check("TrainJobs per second", 168.2, at_least=150, unit="/s", anchor="8.4/s with Kubernetes")
    report.check("submit p99 of others", 2.4, at_most=3, unit="x", anchor="8.1 ms alone")
    return report.exit_code

`anchor` is what it is compared with, as seen in the same run. `tools/benchrun.py` names a file in $BENCH_ROWS, to which
every row is appended as a line of JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

ROWS_VARIABLE = "BENCH_ROWS"


@dataclass(frozen=True)
class Row:
    what: str
    promise: str
    """"": nothing is promised."""
    seen: str
    anchor: str
    is_kept: bool


class Report:
    """The rows of one run."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    @property
    def exit_code(self) -> int:
        return 0 if all(row.is_kept for row in self.rows) else 1

    def check(
        self,
        what: str,
        seen: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        unit: str = "",
        anchor: str = "",
    ) -> bool:
        """Reports one promise; returns whether it was kept. `unit` is written right after the number."""
        if (at_most is None) == (at_least is None):
            raise ValueError(f"{what}: a promise is either at_most or at_least")
        limit, word = (at_most, "at most") if at_most is not None else (at_least, "at least")
        assert limit is not None
        is_kept = seen <= limit if at_most is not None else seen >= limit
        row = Row(what, f"{word} {limit:,g}{unit}", f"{_format(seen)}{unit}", anchor, is_kept)
        beside = f"; {anchor}" if anchor else ""
        print(f"{'ok    ' if is_kept else 'MISSED'} {what}: {row.seen} (promised {row.promise}{beside})", flush=True)
        self._add(row)
        return is_kept

    def note(self, what: str, seen: float, *, unit: str = "", anchor: str = "") -> None:
        """Reports a figure that nothing is promised of."""
        row = Row(what, "", f"{_format(seen)}{unit}", anchor, True)
        print(f"       {what}: {row.seen}{f' ({anchor})' if anchor else ''}", flush=True)
        self._add(row)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        if (path := os.environ.get(ROWS_VARIABLE)) is not None:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")


def _format(value: float) -> str:
    """Three significant digits at least, never an exponent; a count as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
