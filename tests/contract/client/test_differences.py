"""The list of differences is true, and published."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.client.differences import DIFFERENCES, Difference, render
from tests.contract.client.stage import Stage

pytestmark = pytest.mark.contract

COMPAT = Path(__file__).parents[3] / "docs" / "compat.md"


@pytest.mark.parametrize("difference", [pytest.param(entry, id=entry.name) for entry in DIFFERENCES])
async def test_a_listed_difference_is_one(stage: Stage, difference: Difference) -> None:
    want = difference.upstream if stage.server == "kube" else difference.ours
    assert await difference.probe(stage) == want


def test_no_entry_says_the_same_on_both_sides() -> None:
    assert [entry.name for entry in DIFFERENCES if entry.ours == entry.upstream] == []


def test_the_published_list_is_up_to_date() -> None:
    assert COMPAT.read_text() == render(), "run: python -m tests.contract.client.differences > docs/compat.md"
