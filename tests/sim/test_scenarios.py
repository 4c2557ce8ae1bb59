"""Races that are told on purpose: the real code stands them, and the mistake that each is about is found."""

from __future__ import annotations

import pytest

from tests.simulation.planted import Planted
from tests.simulation.planted_drain import FORGETS, RESUMES_ALL
from tests.simulation.planted_retention import DELETES_BY_NAME, GIVES_UP, LOOKS_LATE
from tests.simulation.runner import Result, run_seed
from tests.simulation.scenarios import CONFLICT, DRAINED, REPLACED, SET_LATE, STAYS_DRAINED, Scenario

pytestmark = pytest.mark.sim


def play(scenario: Scenario, bug: Planted | None = None) -> list[Result]:
    return [
        run_seed(seed, planted=bug, weather=scenario.weather, deeds=scenario.deeds, timeline=True, lines=5000)
        for seed in scenario.seeds
    ]


def count(result: Result, *words: str) -> int:
    return sum(all(word in line for word in words) for line in result.timeline.splitlines())


def test_a_ttl_survives_the_409_that_the_report_died_of() -> None:
    told = play(CONFLICT)
    assert [result.violations for result in told] == [()] * len(told)
    assert all(count(result, "retention ", "refused", "modified") for result in told)
    assert all(count(result, "retention ", "deletes trainer.kubeflow.org/trainjobs") == 1 for result in told)


def test_a_handler_that_gives_up_after_the_409_keeps_the_job_for_ever() -> None:
    for result in play(CONFLICT, GIVES_UP):
        assert result.violations and result.violations[0].invariant == "I13", result.seed
        assert "has outlived its TTL" in result.violations[0].message


def test_a_delete_that_arrives_late_leaves_the_job_made_anew_alone() -> None:
    told = play(REPLACED)
    assert [result.violations for result in told] == [()] * len(told)
    assert any(count(result, "a late write arrives: retention: delete trainjobs") for result in told)


def test_a_delete_without_a_uid_takes_the_job_made_anew() -> None:
    found = [result.violations[0] for result in play(REPLACED, DELETES_BY_NAME) if result.violations]
    assert found and "has never seen that one over" in found[0].message, found


def test_a_ttl_that_is_set_late_counts_from_the_end_whatever_the_clock_has_done_since() -> None:
    assert [result.violations for result in play(SET_LATE)] == [()] * len(SET_LATE.seeds)


def test_a_controller_that_looks_at_the_clock_late_deletes_early() -> None:
    for result in play(SET_LATE, LOOKS_LATE):
        assert result.violations and "before its time" in result.violations[0].message, result.seed


@pytest.mark.parametrize("scenario", [DRAINED, STAYS_DRAINED], ids=lambda scenario: scenario.name)
def test_a_drain_outlasts_crashes_and_resumes_what_it_has_suspended(scenario: Scenario) -> None:
    told = play(scenario)
    assert [result.violations for result in told] == [()] * len(told)
    assert sum(count(result, "drain-trainjobs", "trainjobs") for result in told) > len(told)


@pytest.mark.parametrize(("bug", "words"), [(RESUMES_ALL, "a person has suspended"), (FORGETS, "loses its place")])
def test_a_drain_that_resumes_too_much_or_forgets_places_is_found(bug: Planted, words: str) -> None:
    found = [result.violations[0] for result in play(DRAINED, bug) if result.violations]
    assert found and all(one.invariant == "I20" and words in one.message for one in found), found
