"""Stalls: which sequences of reports are one, which are not, and what the policies do."""

from __future__ import annotations

import pytest

from tests.unit.controllers.trainjob.stall_stage import NAME, StallStage
from trainmaster.api.labels import FIRST_ATTEMPT, ON_STALL
from trainmaster.api.lifecycle.stalls import SAVING, STOPPED, JobSign
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS

pytestmark = pytest.mark.unit

HOUR = 3600.0


def test_steps_that_stand_still_for_longer_than_ever_are_a_stall() -> None:
    stage = StallStage()
    stage.train(20)
    stage.go(299)
    assert stage.find_stalled() is None
    stage.go(2)
    assert stage.find_stalled() is not None
    assert stage.get_stalled()["position"] == "20"
    assert (
        "no step has come after step 20 within 5 minutes; until then one took at most 5 s"
        in stage.get_stalled()["message"]
    )
    assert stage.events == ["Stalled"]


def test_the_state_stays_running_and_the_time_is_that_of_the_last_step() -> None:
    stage = StallStage()
    stage.train(3)
    stood = stage.trainjob["status"]["pace"]["advancedAt"]
    stage.go(HOUR)
    assert stage.find_stalled() is not None
    assert stage.get_stalled()["since"] == stood
    assert "conditions" not in stage.trainjob["status"]


def test_a_step_ends_the_stall() -> None:
    stage = StallStage()
    stage.train(3)
    stage.go(HOUR)
    stage.report(4)
    assert stage.find_stalled() is None
    assert stage.events == ["Stalled", "Advancing"]
    stage.train(10, first=5)
    assert stage.events == ["Stalled", "Advancing"]


def test_a_stall_is_told_once_however_long_it_lasts() -> None:
    stage = StallStage()
    stage.train(3)
    for _ in range(10):
        stage.go(HOUR)
        stage.play()
    assert stage.events == ["Stalled"]


def test_reports_without_a_new_step_do_not_hide_a_stall() -> None:
    stage = StallStage()
    stage.train(3)
    for _ in range(80):
        stage.report(3, after=5)
    assert stage.events == ["Stalled"]


def test_a_job_with_long_steps_is_given_twice_their_time() -> None:
    stage = StallStage()
    stage.train(3, every=400)
    stage.go(799)
    assert stage.find_stalled() is None
    stage.go(2)
    assert stage.find_stalled() is not None


def test_compilation_at_the_first_step_is_waited_for() -> None:
    stage = StallStage()
    stage.report(0, after=20)
    stage.go(1700)
    assert stage.find_stalled() is None
    stage.report(1)
    stage.train(5, first=2)
    assert stage.events == []


def test_a_first_step_that_never_comes_is_a_stall_in_the_end() -> None:
    stage = StallStage()
    stage.report(0, after=20)
    stage.go(1801)
    assert stage.find_stalled() is not None


def test_an_evaluation_that_was_seen_before_is_waited_for() -> None:
    stage = StallStage()
    stage.train(1000, every=1)
    stage.report(1001, after=290)
    stage.train(100, every=1, first=1002)
    stage.report(1102, after=570)
    assert stage.events == []


@pytest.mark.parametrize("position", [10, None])
def test_a_phase_has_its_own_bound(position: int | None) -> None:
    stage = StallStage()
    if position is not None:
        stage.train(position)
    stage.report(position, phase="evaluation", after=1)
    stage.go(1790)
    assert stage.find_stalled() is None
    stage.go(11)
    assert stage.find_stalled() is not None
    assert "'evaluation'" in stage.get_stalled()["message"]
    stage.report(position, phase="training")
    assert stage.find_stalled() is None


def test_how_long_a_phase_takes_is_learned() -> None:
    stage = StallStage()
    stage.train(10)
    stage.report(10, phase="evaluation")
    stage.report(10, phase="training", after=1799)
    stage.report(11, after=5)
    assert stage.trainjob["status"]["pace"]["longestSeconds"] == 5, "an evaluation is no step"
    stage.report(11, phase="evaluation")
    stage.go(3500)
    assert stage.find_stalled() is None


def test_what_follows_the_last_step_is_waited_for() -> None:
    stage = StallStage()
    for step in range(1, 11):
        stage.report(step, after=5, total=10)
    stage.go(1700)
    assert stage.find_stalled() is None
    stage.go(110)
    assert stage.find_stalled() is not None
    assert "after its last step, step 10" in stage.get_stalled()["message"]


@pytest.mark.parametrize("excuse", [STOPPED, SAVING])
def test_a_reason_for_standing_still_excuses_it_as_long_as_it_lasts(excuse: str) -> None:
    stage = StallStage(signs=True)
    stage.train(3)
    stage.sign = JobSign(0.0, 5.0, excuse)
    stage.go(HOUR)
    assert stage.find_stalled() is None
    ended = stage.clock.boot()
    for _ in range(29):
        stage.sign = JobSign(0.0, stage.clock.boot() - ended)
        stage.go(10)
    assert stage.find_stalled() is None
    stage.sign = JobSign(0.0, 600.0)
    stage.go(300)
    assert stage.find_stalled() is not None


def test_a_job_that_never_reported_stalls_only_without_output_and_use() -> None:
    stage = StallStage(signs=True)
    stage.go(20)
    assert stage.find_stalled() is None, "nobody has looked at it"
    stage.sign = JobSign(0.0)
    stage.go(HOUR)
    assert stage.find_stalled() is None, "it is busy"
    stage.sign = JobSign(290.0)
    stage.go(300)
    stage.sign = JobSign(310.0)
    stage.go(300)
    assert stage.find_stalled() is not None
    assert "no output" in stage.get_stalled()["message"]
    stage.sign = JobSign(0.0)
    stage.go(31)
    assert stage.find_stalled() is None
    assert stage.events == ["Stalled", "Advancing"]


@pytest.mark.parametrize("on_cluster", [True, False])
def test_nothing_is_said_of_a_job_of_which_nothing_is_known(on_cluster: bool) -> None:
    stage = StallStage(on_cluster=on_cluster)
    stage.go(100 * HOUR)
    assert stage.events == []


def test_a_stall_of_an_idle_job_outlives_the_server() -> None:
    stage = StallStage(signs=True)
    stage.sign = JobSign(400.0)
    stage.go(700)
    before = stage.get_stalled()
    stage.sign = None
    stage.start_server()
    stage.play()
    stage.sign = JobSign(None)
    stage.play()
    stage.sign = JobSign(10.0)
    stage.play()
    assert stage.find_stalled() == before
    assert stage.events == ["Stalled"]


def test_a_cluster_needs_nothing_but_reports() -> None:
    stage = StallStage(on_cluster=True)
    stage.train(5)
    stage.go(301)
    assert stage.events == ["Stalled"]


def test_time_without_a_server_makes_no_stall() -> None:
    stage = StallStage()
    stage.train(5)
    stage.clock.advance(10 * HOUR)
    stage.start_server()
    stage.play()
    stage.go(299)
    assert stage.find_stalled() is None
    stage.report(900)
    stage.train(5, first=901)
    assert stage.trainjob["status"]["pace"]["longestSeconds"] == 5
    assert stage.events == []


def test_a_stall_is_still_shown_after_a_start_of_the_server_and_told_once() -> None:
    stage = StallStage()
    stage.train(5)
    stage.go(HOUR)
    before = stage.get_stalled()
    stage.clock.advance(HOUR)
    stage.start_server()
    stage.play()
    assert stage.find_stalled() == before
    stage.go(HOUR)
    assert stage.events == ["Stalled"]
    stage.report(6)
    assert stage.events == ["Stalled", "Advancing"]


@pytest.mark.parametrize("seconds", [5 * 365 * 86400.0, -5 * 365 * 86400.0])
def test_a_jump_of_the_wall_clock_changes_nothing(seconds: float) -> None:
    stage = StallStage()
    stage.train(5)
    stage.clock.step_wall(seconds)
    stage.play()
    stage.go(298)
    assert stage.find_stalled() is None
    stage.go(3)
    assert stage.find_stalled() is not None


def test_a_suspended_job_does_not_stall_and_its_pause_is_no_long_step() -> None:
    stage = StallStage()
    stage.report(1, after=60)
    stage.train(5, first=2)
    stage.suspend(True)
    stage.go(10 * HOUR)
    assert stage.events == []
    stage.suspend(False)
    stage.go(HOUR)
    stage.start_pods()
    stage.go(250)
    assert stage.find_stalled() is None, "the program starts first"
    stage.report(7)
    stage.train(5, first=8)
    pace = stage.trainjob["status"]["pace"]
    assert (pace["longestSeconds"], pace["startSeconds"]) == (5, 250)
    assert stage.events == []


def test_suspending_a_stalled_job_ends_the_stall_without_saying_that_it_advances() -> None:
    stage = StallStage()
    stage.train(5)
    stage.go(HOUR)
    stage.suspend(True)
    assert stage.find_stalled() is None
    assert stage.events == ["Stalled"]


def test_a_program_that_was_started_again_in_its_pod_is_given_time_to_start() -> None:
    stage = StallStage()
    stage.report(1, after=400)
    stage.train(5, first=2)
    stage.go(100)
    stage.start_container()
    stage.go(700)
    assert stage.find_stalled() is None
    stage.go(110)
    assert stage.find_stalled() is not None
    assert "after the start" in stage.get_stalled()["message"]


def test_a_job_that_completes_or_is_gone_has_no_stall() -> None:
    stage = StallStage()
    stage.train(5)
    stage.go(HOUR)
    done = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "m"}
    stage.world.merge(
        JOB_SETS, NAME, {"status": {"conditions": [{**done, "lastTransitionTime": "2026-11-15T14:00:00Z"}]}}
    )
    stage.play()
    assert stage.find_condition("Complete") is not None
    assert stage.find_stalled() is None


# Policies


def test_fail_ends_the_job_with_a_sentence_and_stops_its_gang() -> None:
    stage = StallStage(policy="fail")
    stage.train(5)
    stage.go(301)
    failed = stage.find_condition("Failed")
    assert failed is not None
    assert failed["reason"] == "Stalled"
    assert "no step has come after step 5" in failed["message"]
    assert "nothing has moved since 2026-11-15T12:00:25Z" in failed["message"]
    assert not stage.has_jobset
    assert stage.find_stalled() is None
    assert stage.events == ["Stalled"]


def test_restart_begins_the_next_attempt_once() -> None:
    stage = StallStage(policy="restart")
    stage.train(5)
    stage.go(301)
    jobset = stage.world.get(JOB_SETS, NAME)
    assert jobset["metadata"]["annotations"][FIRST_ATTEMPT] == "1"
    assert stage.trainjob["status"]["stalls"] == {"restarts": 1, "attempt": 1, "furthest": "5"}
    assert stage.find_stalled() is None
    stage.start_pods()
    stage.train(10, first=4)
    assert stage.world.get(JOB_SETS, NAME)["metadata"]["uid"] == jobset["metadata"]["uid"]
    assert stage.events == ["Stalled"]


def test_restarts_without_progress_are_bounded_by_the_runtime() -> None:
    stage = StallStage(policy="restart", max_restarts=2)
    stage.train(5)
    for _ in range(2):
        stage.go(2000)
        assert stage.has_jobset
        stage.start_pods()
        stage.train(2, first=4)
    stage.go(2000)
    failed = stage.find_condition("Failed")
    assert failed is not None
    assert "2 restarts because of that did not help, and maxRestarts is 2" in failed["message"]
    assert not stage.has_jobset


def test_progress_gives_the_restarts_back() -> None:
    stage = StallStage(policy="restart", max_restarts=1)
    stage.train(5)
    for number in range(1, 6):
        stage.go(2000)
        assert stage.trainjob["status"]["stalls"]["restarts"] == 1
        stage.start_pods()
        stage.train(5, first=5 * number + 1)
    assert stage.find_condition("Failed") is None


def test_an_attempt_that_does_not_even_start_uses_up_the_restarts() -> None:
    stage = StallStage(policy="restart", max_restarts=3)
    stage.train(5)
    for _ in range(3):
        stage.go(400)
        stage.start_pods()
    stage.go(400)
    assert stage.find_condition("Failed") is not None


def test_where_no_restart_is_allowed_a_stalled_job_fails() -> None:
    stage = StallStage(policy="restart", max_restarts=0)
    stage.train(5)
    stage.go(301)
    failed = stage.find_condition("Failed")
    assert failed is not None
    assert failed["message"].count("maxRestarts is 0") == 1


def test_a_policy_acts_only_on_what_this_server_has_seen() -> None:
    stage = StallStage()
    stage.train(5)
    stage.go(HOUR)
    stage.clock.advance(HOUR)
    stage.start_server()
    stage.world.merge(TRAIN_JOBS, NAME, {"metadata": {"annotations": {ON_STALL: "fail"}}})
    stage.play()
    assert stage.find_condition("Failed") is None, "the steps of the last hour may have been lost"
    stage.go(301)
    assert stage.find_condition("Failed") is not None


def test_a_policy_that_is_set_during_a_stall_acts_at_once() -> None:
    stage = StallStage()
    stage.train(5)
    stage.go(HOUR)
    stage.world.merge(TRAIN_JOBS, NAME, {"metadata": {"annotations": {ON_STALL: "restart"}}})
    stage.play()
    assert stage.trainjob["status"]["stalls"]["restarts"] == 1


def test_a_misspelt_policy_that_nobody_refused_counts_as_none() -> None:
    stage = StallStage(policy="restrat")
    stage.train(5)
    stage.go(301)
    assert stage.find_stalled() is not None
    assert stage.find_condition("Failed") is None
