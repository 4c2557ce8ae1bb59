"""The properties that every reconciler must satisfy, written once.

A test file declares its scenarios and subclasses `ReconcilerSuite` as `TestProperties`; the tests below then run for
each of its scenarios. `tests/flow/conftest.py` hands the scenarios over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from tests.flow.properties import Coverage, Faults, Outcome, Scenario, play


class ReconcilerSuite:
    scenarios: ClassVar[Sequence[Scenario]]
    lags: ClassVar[Sequence[int]] = (1, 2, 5)
    """By how many rounds views lie behind."""
    seeds: ClassVar[Sequence[int]] = range(1, 6)
    """Orders of visits, some of them lost."""
    coverage: ClassVar[Coverage]
    _plain: ClassVar[dict[str, Outcome]]

    def __init_subclass__(cls) -> None:
        cls.coverage = Coverage()
        cls._plain = {}

    @classmethod
    def play_plainly(cls, scenario: Scenario) -> Outcome:
        """Without faults; what all other plays are compared with."""
        if scenario.name not in cls._plain:
            cls._plain[scenario.name] = play(scenario, Faults(), cls.coverage)
        return cls._plain[scenario.name]

    def _ends_as_plainly(self, scenario: Scenario, faults: Faults) -> None:
        outcome = play(scenario, faults, self.coverage)
        assert outcome.state == self.play_plainly(scenario).state, faults
        assert outcome.second_pass == [], faults

    def test_a_second_pass_writes_nothing(self, scenario: Scenario) -> None:
        outcome = self.play_plainly(scenario)
        assert outcome.second_pass == []
        assert outcome.written > 0

    def test_stopping_after_any_write_ends_the_same(self, scenario: Scenario) -> None:
        for number in range(1, self.play_plainly(scenario).written + 1):
            self._ends_as_plainly(scenario, Faults(crash_after=number))

    def test_a_view_of_the_past_ends_the_same(self, scenario: Scenario, lag: int) -> None:
        self._ends_as_plainly(scenario, Faults(lag=lag))

    def test_any_order_with_lost_visits_ends_the_same(self, scenario: Scenario, seed: int) -> None:
        self._ends_as_plainly(scenario, Faults(seed=seed))


def parametrize(metafunc: pytest.Metafunc, suite: type[ReconcilerSuite]) -> None:
    names = metafunc.fixturenames
    if "seed" in names:
        metafunc.parametrize("seed", suite.seeds)
    if "lag" in names:
        metafunc.parametrize("lag", suite.lags)
    if "scenario" in names:
        metafunc.parametrize("scenario", suite.scenarios, ids=[scenario.name for scenario in suite.scenarios])
