"""What upstream refuses we refuse with the same texts, and what it lets in we let in; exceptions are listed."""

from __future__ import annotations

import pytest

from tests.golden import cases, pending
from tests.golden.differences import find_answer
from tests.golden.harness import ask_refusals, list_missing
from tests.golden.masking import Object
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.golden

NAMES = [f"{version}/{case}" for version in cases.ALL_VERSIONS for case in cases.load_refusals(version)]


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_upstreams(name: str) -> None:
    problem = find_problem(name)
    if name in pending.ANSWERS:
        assert problem, f"{name} matches now: remove it from ANSWERS in tests/golden/pending.py"
        return
    assert not problem, problem


def find_problem(name: str) -> str:
    version, _, case = name.partition("/")
    return describe_problem(name, cases.load_refusals(version)[case]["answer"], ask_refusals(version)[case])


def describe_problem(name: str, want: Object | None, ours: StatusError | None) -> str:
    """`want`: upstream's answer. Empty if ours is the same, or the difference is listed."""
    listed = find_answer(name)
    if listed is not None:
        want = {"texts": listed.texts} if listed.texts else None
    if want is None:
        return "" if ours is None else f"should be let in, and is refused: {ours.message}"
    if ours is None:
        return "let in; should say: " + "; ".join(want["texts"])
    if want.get("reason", ours.reason) != ours.reason:
        return f"the reason is {ours.reason}; should be {want['reason']}"
    if want.get("webhook", "") not in ours.message:
        return f"does not name the webhook {want['webhook']}: {ours.message}"
    missing = list_missing(want, ours)
    return f"does not say: {'; '.join(missing)}\nsays: {ours.message}" if missing else ""
