"""A simulation that finds nothing proves nothing unless it finds what is there: bugs planted into the real code."""

from __future__ import annotations

import pytest

from tests.simulation.planted import BUGS, Planted
from tests.simulation.planted_reports import REPORT_BUGS
from tests.simulation.planted_retention import RETENTION_BUGS
from tests.simulation.planted_v1 import V1_BUGS
from tests.simulation.runner import Result, run_seed

pytestmark = pytest.mark.sim

ALL = (*BUGS, *RETENTION_BUGS, *REPORT_BUGS, *V1_BUGS)


def find(bug: Planted) -> Result | None:
    for seed in range(bug.first, bug.first + bug.seeds):
        result = run_seed(seed, planted=bug)
        if result.violations:
            return result
    return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", ALL, ids=[bug.name for bug in ALL])
def test_a_planted_bug_is_found_and_its_seed_passes_without_it(bug: Planted) -> None:
    found = find(bug)
    assert found is not None, f"not found in {bug.seeds} seeds"
    assert found.violations[0].invariant in bug.invariants, found.violations[0]
    assert "VIOLATION" in found.timeline
    assert run_seed(found.seed).violations == ()


def test_a_planted_bug_leaves_no_trace() -> None:
    before = run_seed(1).digest
    for bug in ALL:
        run_seed(1, planted=bug)
    assert run_seed(1).digest == before
