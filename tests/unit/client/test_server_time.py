"""The time of an API server: known from its answers, whatever the clock of this machine says."""

from __future__ import annotations

from datetime import timedelta
from email.utils import format_datetime

import pytest

from trainmaster.client.server_time import ServerClock
from trainmaster.testing.virtual import START, VirtualClock

pytestmark = pytest.mark.unit

HOUR = 3600.0


class Exchange:
    """A server whose clock is right, and a client whose clock is `wrong` seconds ahead of it."""

    def __init__(self, wrong: float = 0.0) -> None:
        self.local = VirtualClock()
        self.local.step_wall(wrong)
        self.clock = ServerClock(self.local)

    @property
    def right(self) -> float:
        return START.timestamp() + self.local.boot()

    @property
    def error(self) -> float:
        return abs(self.clock.unix() - self.right)

    def answer(self, *, before: float = 0.01, after: float = 0.01) -> None:
        """One exchange: seconds until the answer is written, and until it arrives."""
        sent = self.local.boot()
        self.local.advance(before)
        date = format_datetime(START + timedelta(seconds=self.local.boot()), usegmt=True)
        self.local.advance(after)
        self.clock.note(date, sent)


@pytest.mark.parametrize("wrong", [-HOUR, HOUR, 10 * HOUR, -40.0])
def test_one_answer_tells_the_time_to_a_second(wrong: float) -> None:
    exchange = Exchange(wrong)
    assert exchange.error == abs(wrong)
    exchange.answer()
    assert exchange.error <= 1.1
    for _ in range(50):
        exchange.local.advance(0.37)
        exchange.answer()
    assert exchange.error <= 0.2


def test_a_clock_that_is_right_is_used_as_it_is() -> None:
    exchange = Exchange()
    for _ in range(50):
        exchange.local.advance(0.37)
        exchange.answer()
        assert exchange.clock.unix() == exchange.local.unix()
        assert exchange.clock.now() == exchange.local.now()


def test_a_step_of_the_local_clock_changes_nothing() -> None:
    exchange = Exchange()
    exchange.answer()
    exchange.local.step_wall(-HOUR)
    assert exchange.error <= 1.1
    exchange.local.step_wall(2 * HOUR)
    assert exchange.error <= 1.1


def test_an_answer_that_was_read_late_says_nothing_wrong() -> None:
    """The process was stopped for ten minutes while the answer waited."""
    exchange = Exchange()
    exchange.answer(after=600.0)
    assert exchange.error == 0.0
    behind = Exchange(-HOUR)
    behind.answer(after=600.0)
    assert behind.error <= 601.0
    behind.answer()
    assert behind.error <= 1.1


def test_when_the_clock_of_the_server_is_set_the_newer_answer_counts() -> None:
    exchange = Exchange()
    exchange.answer()
    moved = START + timedelta(seconds=exchange.local.boot() + HOUR)
    exchange.clock.note(format_datetime(moved, usegmt=True), exchange.local.boot())
    assert abs(exchange.clock.unix() - moved.timestamp()) <= 1.1


@pytest.mark.parametrize("date", ["", "yesterday", "Wed, 99 Nov 2026 22:40:00 GMT", "Wed, 18 Nov 2026 2a:40:00 GMT"])
def test_an_answer_without_a_proper_date_changes_nothing(date: str) -> None:
    exchange = Exchange(-HOUR)
    exchange.clock.note(date, exchange.local.boot())
    assert exchange.error == HOUR


def test_a_person_is_told_once_that_the_clocks_differ(caplog: pytest.LogCaptureFixture) -> None:
    exchange = Exchange(HOUR)
    for _ in range(3):
        exchange.local.advance(1.0)
        exchange.answer()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and told[0].endswith("s ahead of the API server's; the server's time is used")
