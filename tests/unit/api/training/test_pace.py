"""`status.pace`: how far a job is, since when, and how long its steps took at most."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.patches import merge
from trainmaster.api.training.pace import JobPace, PaceMeter, find_phase, find_position, leave_attempt, read_pace
from trainmaster.kit.clock import format_time
from trainmaster.testing.virtual import VirtualClock, run_virtual

pytestmark = pytest.mark.unit


class Reporting:
    """A TrainJob whose program reports steps to a server."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.trainjob: Object = {"metadata": {"uid": "u1", "name": "a"}, "status": {}}
        self.began = format_time(self.clock.now())
        self.meter = PaceMeter(self.clock)

    async def report(
        self, step: Any = None, *, after: float = 0.0, percent: int | None = None, phase: str = ""
    ) -> JobPace:
        await self.clock.sleep(after)
        said: Object = {} if step is None else {"metrics": [{"name": "current_step", "value": str(step)}]}
        if phase:
            said["metrics"] = [*said.get("metrics", ()), {"name": "phase", "value": phase}]
        if percent is not None:
            said["progressPercentage"] = percent
        patch = {"status": {"pace": self.meter.measure(self.trainjob, said, self.began)}}
        self.trainjob = merge.apply(self.trainjob, patch)
        return read_pace(self.trainjob)


def test_the_longest_time_between_two_steps_is_learned() -> None:
    async def act() -> None:
        job = Reporting()
        assert (await job.report(0, after=40)).start == 40
        await job.report(10, after=5)
        await job.report(20, after=17)
        pace = await job.report(30, after=6)
        assert (pace.position, pace.longest, pace.start, pace.furthest) == (30.0, 17, 40, 30.0)
        assert pace.advanced_at == format_time(job.clock.now())

    run_virtual(act())


def test_a_report_without_a_new_step_is_no_advance() -> None:
    async def act() -> None:
        job = Reporting()
        before = await job.report(3, after=5)
        assert await job.report(3, after=100) == before
        assert await job.report(None, after=1) == before
        assert (await job.report(4, after=1)).longest == 102

    run_virtual(act())


def test_a_program_that_reports_only_a_percentage_has_a_pace() -> None:
    async def act() -> None:
        job = Reporting()
        await job.report(percent=1, after=5)
        pace = await job.report(percent=2, after=30)
        assert (pace.position, pace.longest) == (2.0, 30)

    run_virtual(act())


def test_steps_that_are_counted_anew_are_an_advance_but_not_further() -> None:
    async def act() -> None:
        job = Reporting()
        await job.report(500, after=5)
        pace = await job.report(1, after=5)
        assert (pace.position, pace.furthest) == (1.0, 500.0)

    run_virtual(act())


def test_time_without_a_server_does_not_count_as_a_long_step() -> None:
    async def act() -> None:
        job = Reporting()
        await job.report(1, after=5)
        await job.report(2, after=5)
        await job.clock.sleep(3600)
        job.meter = PaceMeter(job.clock)
        assert (await job.report(700, after=4)).longest == 5

    run_virtual(act())


def test_a_jump_of_the_wall_clock_does_not_make_a_step_longer() -> None:
    async def act() -> None:
        job = Reporting()
        await job.report(1, after=5)
        await job.report(2, after=5)
        job.clock.step_wall(5 * 365 * 86400)
        assert (await job.report(3, after=5)).longest == 5

    run_virtual(act())


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "", "seven", "1e999"])
def test_what_is_no_finite_number_is_no_position(value: str) -> None:
    assert find_position({"metrics": [{"name": "current_step", "value": value}], "progressPercentage": 5}) is None


@pytest.mark.parametrize("value", ["0", "12", "0.25", "1e308", "-3"])
def test_a_position_is_stored_and_read_again(value: str) -> None:
    async def act() -> None:
        assert (await Reporting().report(value, after=1)).position == float(value)

    run_virtual(act())


def test_a_job_that_reports_no_steps_has_no_pace() -> None:
    async def act() -> None:
        job = Reporting()
        assert await job.report(after=5) == JobPace()
        assert job.trainjob["status"] == {}

    run_virtual(act())


def test_a_new_attempt_keeps_what_is_true_of_the_job() -> None:
    async def act() -> None:
        job = Reporting()
        await job.report(1, after=8)
        await job.report(9, after=5)
        job.trainjob["status"]["pace"] = leave_attempt(job.trainjob["status"])
        left = read_pace(job.trainjob)
        assert (left.has_steps, left.longest, left.start, left.furthest) == (False, 5, 8, 9.0)
        job.began = format_time(job.clock.now())
        pace = await job.report(4, after=3)
        assert (pace.position, pace.longest, pace.start, pace.furthest) == (4.0, 5, 8, 9.0)

    run_virtual(act())


def test_the_wait_for_the_first_step_counts_from_the_start_of_the_program() -> None:
    async def act() -> None:
        job = Reporting()
        await job.clock.sleep(3600)
        job.began = format_time(job.clock.now())
        assert (await job.report(1, after=30)).start == 30

    run_virtual(act())


def test_a_start_that_the_server_has_not_seen_is_not_learned() -> None:
    async def act() -> None:
        job = Reporting()
        await job.clock.sleep(600)
        job.meter = PaceMeter(job.clock)
        assert (await job.report(1, after=5)).start == 0

    run_virtual(act())


def test_a_program_that_is_started_again_is_not_slow_at_its_step() -> None:
    async def act() -> None:
        job = Reporting()
        await job.report(1, after=5)
        await job.report(2, after=5)
        await job.clock.sleep(36_000)
        job.began = format_time(job.clock.now())
        pace = await job.report(3, after=40)
        assert (pace.longest, pace.start) == (5, 40)

    run_virtual(act())


def test_a_phase_is_an_advance_and_is_learned_apart() -> None:
    async def act() -> None:
        job = Reporting()
        await job.report(1, after=5)
        await job.report(2, after=5)
        pace = await job.report(2, after=5, phase="evaluation")
        assert (pace.phase, pace.position, pace.advanced_at) == ("evaluation", 2.0, format_time(job.clock.now()))
        pace = await job.report(2, after=700, phase="training")
        assert (pace.phase, pace.longest, pace.phase_longest) == ("", 5, 700)
        assert (await job.report(3, after=6)).longest == 6

    run_virtual(act())


@pytest.mark.parametrize("word", ["train", "training", "Training", ""])
def test_training_is_no_phase(word: str) -> None:
    assert find_phase({"metrics": [{"name": "phase", "value": word}]}) == ""


def test_time_for_which_the_machine_sleeps_is_not_learned() -> None:
    class Sleeper(VirtualClock):
        asleep = 0.0

        def boot(self) -> float:
            return self.monotonic() + self.asleep

    async def act() -> None:
        job = Reporting()
        job.clock = clock = Sleeper()
        job.meter = PaceMeter(clock)
        await job.report(1, after=5)
        await job.report(2, after=5)
        clock.asleep += 36_000
        clock.step_wall(36_000)
        assert (await job.report(3, after=5)).longest == 5
        assert (await job.report(4, after=9)).longest == 9

    run_virtual(act())


def test_time_for_which_a_person_stopped_it_is_not_learned() -> None:
    async def act() -> None:
        job = Reporting()
        await job.report(1, after=5)
        await job.report(2, after=5)
        job.meter = PaceMeter(job.clock, lambda uid: 20.0)
        await job.clock.sleep(100)
        assert (await job.report(3, after=7200)).longest == 5
        assert (await job.report(4, after=15)).longest == 15

    run_virtual(act())
