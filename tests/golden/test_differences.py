"""The list of differences is true, complete and published; what is pending exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import cases, pending
from tests.golden.comparison import matches
from tests.golden.differences import ANSWERS, FIELDS, REFUSED, render
from tests.golden.entries import Answer, Field
from tests.golden.harness import ask_refusals, compare_case, list_missing
from tests.golden.stricter import STRICTER, Stricter
from tests.golden.test_answers import NAMES
from tests.golden.test_not_the_model import LINES
from tests.unit.controllers.trainjob.stage import Stage, play
from trainmaster.api.status import StatusError

pytestmark = pytest.mark.golden

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"


def describe(entry: Field) -> str:
    return f"{entry.cases} {entry.moment} {entry.kind} {entry.path}"


@pytest.mark.parametrize("entry", [pytest.param(entry, id=describe(entry)) for entry in FIELDS])
def test_a_listed_field_still_differs_somewhere(entry: Field) -> None:
    about = [name for name in cases.list_cases() if entry.is_about(name)]
    assert about, "no case has this name"
    covered = [one.path for name in about for one in compare_case(name) if entry.covers(name, one)]
    settled = [path for path in entry.paths if not any(matches(path, other) for other in covered)]
    # A case that does not match yet may not have come as far as the difference.
    is_true = not settled or any(name in pending.CASES for name in about)
    assert is_true, f"nothing differs any more in {settled}: take it out"


def test_no_entry_lets_everything_pass() -> None:
    assert [describe(entry) for entry in FIELDS if "*" in entry.paths] == []


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.case) for entry in ANSWERS])
def test_a_listed_answer_is_still_another(entry: Answer) -> None:
    version, _, case = entry.case.partition("/")
    upstream, ours = cases.load_refusals(version)[case]["answer"], ask_refusals(version)[case]
    same = ours is None if upstream is None else ours is not None and not list_missing(upstream, ours)
    assert not same or entry.case in pending.ANSWERS, "the answer is upstream's: remove the entry"


def test_every_refused_case_is_one_that_upstream_let_in() -> None:
    assert [entry.case for entry in REFUSED if "refused" in cases.load_case(entry.case)] == []


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.what) for entry in STRICTER])
def test_a_listed_write_is_still_refused(entry: Stricter) -> None:
    async def test(stage: Stage) -> None:
        with pytest.raises(StatusError) as caught:
            await entry.act(stage)
        assert [text for text in entry.texts if text not in caught.value.message] == [], caught.value.message

    play(test)


def test_what_is_pending_exists() -> None:
    assert pending.CASES - set(cases.list_cases()) == set()
    assert pending.ANSWERS - set(NAMES) == set()
    assert pending.LINES - set(LINES) == set()


def test_the_published_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run: python -m tests.golden.differences > docs/differences.md"


def test_brackets_in_a_path_pattern_stand_for_themselves() -> None:
    assert matches("*containers[node].env*", "spec.containers[node].env[PET_NNODES]")
    assert not matches("spec.containers[node]", "spec.containersn")
