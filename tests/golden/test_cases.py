"""Given upstream's runtimes, our programs make of every recorded TrainJob what upstream's made of it."""

from __future__ import annotations

import pytest

from tests.golden import cases, pending
from tests.golden.differences import find_refused, list_unexpected
from tests.golden.harness import compare_case, list_missing, run_case

pytestmark = pytest.mark.golden


@pytest.mark.parametrize("name", cases.list_cases())
def test_the_outcome_is_upstreams(name: str) -> None:
    problems = list_problems(name)
    if name in pending.CASES:
        assert problems, f"{name} matches now: remove it from CASES in tests/golden/pending.py"
        return
    assert not problems, f"{len(problems)} differences:\n" + "\n".join(problems)


def list_problems(name: str) -> list[str]:
    refused = find_refused(name)
    if refused is None:
        return [str(one) for one in list_unexpected(name, compare_case(name))]
    ours = run_case(name).refusal
    if ours is None:
        return [f"let in; the answer should name {', '.join(refused.texts)}"]
    missing = list_missing({"texts": refused.texts}, ours)
    return [f"the answer does not say {text!r}: {ours.message}" for text in missing]
