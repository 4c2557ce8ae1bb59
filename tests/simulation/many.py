"""Runs many seeds on all cores and adds up what they found. Used by `tools/sim.py` and by the tests."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulation.faults import FAULTS, FULL, list_faults
from tests.simulation.runner import Result, run_seed

_CHUNK = 20
ENOUGH = 2000
"""Number of seeds from which on every fault must have hit every write site."""


@dataclass
class Summary:
    seeds: int = 0
    seconds: float = 0.0
    virtual_seconds: float = 0.0
    writes: int = 0
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def add(self, results: Sequence[Result]) -> None:
        for result in results:
            self.seeds += 1
            self.virtual_seconds += result.virtual_seconds
            self.writes += result.writes
            self.hits.update(result.hits)
            if result.violations:
                self.failures.append(result)

    def list_misses(self) -> list[str]:
        """Write sites that a possible fault never hit."""
        sites = sorted(site for site, fault in self.hits if not fault)
        return [f"{site}: {fault}" for site in sites for fault in list_faults(site) if not self.hits[site, fault]]

    def render_hits(self) -> str:
        sites = sorted(site for site, fault in self.hits if not fault)
        every = sorted({FULL, *(fault for mode in FAULTS.values() for fault in mode)})
        lines = [f"{'write site':<52}{'writes':>9}" + "".join(f"{fault:>14}" for fault in every)]
        for site in sites:
            cells = (str(self.hits[site, fault]) if fault in list_faults(site) else "-" for fault in every)
            lines.append(f"{site:<52}{self.hits[site, '']:>9}" + "".join(f"{cell:>14}" for cell in cells))
        return "\n".join(lines)

    def render_speed(self) -> str:
        ratio = self.virtual_seconds / max(self.seconds, 1e-9)
        return (
            f"{self.seeds} seeds in {self.seconds:.1f} s: {self.seeds / max(self.seconds, 1e-9):.1f} seeds per second, "
            f"{ratio:.0f} virtual seconds per second, {self.writes / max(self.seeds, 1):.0f} writes per seed"
        )


def _run_chunk(seeds: range) -> list[Result]:
    return [run_seed(seed) for seed in seeds]


def run_seeds(first: int, count: int, *, workers: int = 0, failures: int = 5) -> Summary:
    """Stops early after `failures` failed seeds."""
    workers = workers or len(os.sched_getaffinity(0))
    chunks = [range(start, min(start + _CHUNK, first + count)) for start in range(first, first + count, _CHUNK)]
    summary = Summary()
    began = time.perf_counter()
    # Forked, so that the catalogue and the base state are built once.
    run_seed(first)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for results in pool.imap_unordered(_run_chunk, chunks):
            summary.add(results)
            if len(summary.failures) >= failures:
                pool.terminate()
                break
    summary.seconds = time.perf_counter() - began
    summary.failures.sort(key=lambda result: result.seed)
    return summary
