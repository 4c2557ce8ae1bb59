"""How `trainmaster explain` shows what it found."""

from __future__ import annotations

import pytest

from trainmaster.cli.commands.explain import describe, to_data
from trainmaster.controllers.explain.changes import UnblockingChange
from trainmaster.controllers.explain.reasons import JobExplanation

pytestmark = pytest.mark.unit


def test_each_part_has_its_label_once_and_long_texts_stand_below_it() -> None:
    change = UnblockingChange("nodes", "with 1 node instead of 2", "edit it", {"spec": {}}, loss=0.5)
    found = JobExplanation(
        "team",
        "a",
        "Waiting",
        "no room\nat all",
        "Queued",
        "",
        2,
        3,
        ("team/b",),
        ("x ends", "y ends"),
        (change,),
        ("z",),
    )
    assert list(describe(found)) == [
        "team/a: Waiting (Queued)",
        "  why:        no room",
        "              at all",
        "  queue:      2 of 3, behind team/b",
        "  next:       x ends",
        "              y ends",
        "  starts now: with 1 node instead of 2",
        "                edit it",
        "  also:       z",
    ]


def test_last_words_cannot_move_the_cursor() -> None:
    found = JobExplanation("team", "a", "Failed", "its last words:\n\x1b[2Jboom\x07\n\n  tail", "FailedJobs")
    lines = list(describe(found))
    assert all(line.isprintable() for line in lines), lines
    assert "boom" in lines[2] and lines[4] == "                tail"


def test_data_has_the_patch_and_not_how_changes_are_sorted() -> None:
    found = JobExplanation(
        "team", "a", "Waiting", "s", changes=(UnblockingChange("nodes", "t", "h", {"spec": 1}, loss=0.5),)
    )
    assert list(to_data(found)["changes"]) == [
        {"kind": "nodes", "text": "t", "how": "h", "patch": {"spec": 1}, "is_enough": True}
    ]
