"""Stored times on boot time: a wall clock that is set neither hastens nor delays what was seen before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now, Timeline
from trainmaster.testing.virtual import START, VirtualClock

pytestmark = pytest.mark.unit

HOUR = 3600.0


class Subject:
    """One subject's passes on a clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.timeline = Timeline[str](self.clock)
        self.stored = format_time(self.clock.now())

    def ask(
        self, stored: str | None = None, what: str = "finished", whose: str = "uid", seconds: float = HOUR
    ) -> float:
        now = self.timeline.begin_pass("subject")
        left = now.left(whose, what, stored or self.stored, seconds)
        self.timeline.end_pass("subject", now)
        return left

    def pass_without_asking(self, *, complete: bool) -> None:
        self.timeline.end_pass("subject", self.timeline.begin_pass("subject"), complete=complete)


@pytest.mark.parametrize("step", [-10 * HOUR, -1.0, 1.0, 10 * HOUR])
def test_a_wall_clock_that_is_set_changes_nothing_that_was_seen_before(step: float) -> None:
    subject = Subject()
    subject.clock.advance(10)
    assert subject.ask() == HOUR - 10
    subject.clock.step_wall(step)
    assert subject.ask() == HOUR - 10
    subject.clock.advance(HOUR)
    assert subject.ask() == -10


def test_after_a_restart_a_time_is_anchored_anew_from_the_wall_clock() -> None:
    subject = Subject()
    subject.ask()
    subject.clock.step_wall(100)
    assert subject.ask() == HOUR
    subject.timeline = Timeline[str](subject.clock)
    assert subject.ask() == HOUR - 100


def test_a_time_in_the_future_begins_when_it_is_first_seen() -> None:
    subject = Subject()
    subject.clock.step_wall(-5 * HOUR)
    assert subject.ask() == HOUR
    subject.clock.advance(60)
    assert subject.ask() == HOUR - 60


def test_another_text_another_purpose_and_another_owner_are_other_times() -> None:
    subject = Subject()
    subject.ask()
    subject.clock.step_wall(100)
    assert subject.ask() == HOUR
    assert subject.ask(what="started") == HOUR - 100
    assert subject.ask(whose="other") == HOUR - 100
    assert subject.ask(stored=format_time(START + timedelta(seconds=40))) == HOUR - 60


def test_what_a_complete_pass_does_not_ask_for_is_forgotten() -> None:
    subject = Subject()
    subject.ask()
    subject.pass_without_asking(complete=False)
    assert len(subject.timeline) == 1
    subject.clock.step_wall(100)
    assert subject.ask() == HOUR
    subject.pass_without_asking(complete=True)
    assert len(subject.timeline) == 0


def test_times_of_one_pass_are_kept_together_with_those_of_an_explanation() -> None:
    subject = Subject()
    subject.ask()
    now = subject.timeline.begin_pass("subject")
    now.since("uid", "started", subject.stored)
    subject.timeline.end_pass("subject", now, complete=False)
    subject.clock.step_wall(100)
    now = subject.timeline.begin_pass("subject")
    assert [now.since("uid", what, subject.stored) for what in ("finished", "started")] == [0, 0]


def test_the_length_of_a_span_may_change_while_it_runs() -> None:
    subject = Subject()
    subject.clock.advance(10)
    assert subject.ask(seconds=5) == -5
    assert subject.ask(seconds=20) == 10


def test_a_now_alone_measures_by_the_wall_clock() -> None:
    assert Now(START + timedelta(seconds=7)).since("uid", "finished", format_time(START)) == 7


def test_what_is_no_time_is_said() -> None:
    with pytest.raises(ValueError, match="zone"):
        Now(START).since("uid", "finished", "2026-01-01T00:00:00")
