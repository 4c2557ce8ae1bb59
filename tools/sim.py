"""Runs the simulation: `make sim SEEDS=n`, or one seed with its timeline.

    python tools/sim.py --seeds 20000           seeds 0 to 19999 on all cores
    python tools/sim.py --seeds 500 --from 7000
    python tools/sim.py --seed 4711 --lines 200 one seed, its timeline and its digest

Prints seeds per second, virtual time per real time, and how often each fault met each write site. The exit status is 1
when an invariant was violated (the seed and its timeline are printed), and, from 1,000 seeds on, when a fault has never
met a site.
"""

from __future__ import annotations

import argparse
import sys

from tests.simulation.many import ENOUGH, run_seeds
from tests.simulation.runner import Result, run_seed


def print_failure(result: Result) -> None:
    print(f"\nseed {result.seed} ({result.mode}) violates:")
    for violation in result.violations[:5]:
        print(f"  {violation}")
    print(result.timeline)
    print(f"again: python tools/sim.py --seed {result.seed}")


def run_one(seed: int, lines: int) -> int:
    result = run_seed(seed, timeline=True, lines=lines)
    print(result.timeline)
    print(f"seed {seed}, {result.mode}, {result.writes} writes, digest {result.digest}")
    for violation in result.violations:
        print(f"violated: {violation}")
    return 1 if result.violations else 0


def run_many(first: int, count: int) -> int:
    summary = run_seeds(first, count)
    for result in summary.failures:
        print_failure(result)
    print(summary.render_hits())
    misses = summary.list_misses()
    for miss in misses:
        print(f"never met: {miss}")
    print(summary.render_speed())
    if summary.failures:
        print(f"FAILED: seeds {', '.join(str(result.seed) for result in summary.failures)}")
        return 1
    if misses and summary.seeds >= ENOUGH:
        print("FAILED: a write that no fault has met is a write that nobody has tested")
        return 1
    print("no violation")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the seeded simulation of the whole system.")
    parser.add_argument("--seeds", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--seed", type=int, help="only this one, with its timeline")
    parser.add_argument("--lines", type=int, default=60, help="of the timeline (default: 60)")
    options = parser.parse_args()
    if options.seed is not None:
        return run_one(options.seed, options.lines)
    return run_many(options.first, options.seeds)


if __name__ == "__main__":
    sys.exit(main())
