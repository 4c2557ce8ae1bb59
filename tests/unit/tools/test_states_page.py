"""docs/states.md names every state that a controller can write to a TrainJob, and nothing else."""

from __future__ import annotations

import pytest

from tools.states_page import PAGE, SAYERS, collect, render
from trainmaster.api.state_texts import CONDITIONS, WAITING
from trainmaster.controllers.trainjob.reconciler import MISSING
from trainmaster.controllers.trainjob.runtimes import NOT_FOUND

pytestmark = pytest.mark.unit


def test_every_reason_for_waiting_that_can_be_written_is_explained_and_no_other() -> None:
    assert set(collect().waiting) == set(WAITING)


def test_every_condition_that_can_be_written_is_explained_and_no_other() -> None:
    assert collect().conditions == set(CONDITIONS)


def test_no_controller_gives_a_reason_that_cannot_be_read_from_its_code() -> None:
    found = collect()
    assert not found.unclear, "give the reason as a literal or a constant of a module"
    assert {kind for kinds in found.waiting.values() for kind in kinds} <= set(SAYERS.values())


def test_reasons_given_by_constants_are_found() -> None:
    assert {MISSING, NOT_FOUND} <= set(collect().waiting)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run: .venv/bin/python tools/states_page.py"
