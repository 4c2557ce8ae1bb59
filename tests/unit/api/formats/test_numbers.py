"""Numbers in annotations are read without trust, and templates do not write the books of controllers."""

from __future__ import annotations

import pytest

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import CONTROLLERS_OWN, WAITING
from trainmaster.api.training.overrides import merge_metadata
from trainmaster.controllers.waiting import find_annotated

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("text", ["9" * 4400, "9" * 11, "²", "٣", "-1", "+1", "1e3", " 1", "", None, 1, [], "1_0"])
def test_what_is_no_short_number_is_none(text: object) -> None:
    assert find_count(text) is None


def test_a_number_is_one() -> None:
    assert (find_count("0"), find_count("0012"), find_count("2147483648")) == (0, 12, 2147483648)


@pytest.mark.parametrize("text", ["{}", "[]", '{"reason": 1, "message": []}', '{"reason": "x"}', "null", "[" * 3000])
def test_a_stranger_s_words_about_waiting_are_nobody_s(text: str) -> None:
    assert find_annotated({"metadata": {"annotations": {WAITING: text}}}) is None


def test_templates_do_not_write_the_books_of_controllers() -> None:
    notes = {**dict.fromkeys(CONTROLLERS_OWN, "x"), "mine": "1"}
    runtime = {"spec": {"template": {"metadata": {"annotations": notes}}}}
    job = {"spec": {"annotations": {**notes, "yours": "2"}}}
    merged = merge_metadata(job, runtime)["annotations"]
    assert {key: value for key, value in merged.items() if value == "x"} == {}
    assert (merged["mine"], merged["yours"]) == ("1", "2")
