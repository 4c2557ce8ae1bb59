"""Texts that name indexes of a Job: short ones can mean a great many."""

from __future__ import annotations

import pytest

from trainmaster.api.jobs.indexes import check_indexes, parse_indexes

pytestmark = pytest.mark.unit


def test_runs_are_opened_up() -> None:
    assert parse_indexes("0,2-4,7") == [0, 2, 3, 4, 7]
    assert parse_indexes("0-9", below=3) == [0, 1, 2]


@pytest.mark.parametrize("text", ["0-999999999", ",".join(["0-999999"] * 50), "9" * 5000, "0-" + "9" * 5000, "²"])
def test_what_a_short_text_opens_up_to_is_bounded(text: str) -> None:
    assert len(parse_indexes(text)) <= 2_000_000
    assert check_indexes(text, 10)[1]
