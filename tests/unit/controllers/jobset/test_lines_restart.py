"""Conformance lines JI-19 to JI-30, JI-38 and JI-39: restarts of the gang and of one Job, pauses, and the end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.unit.controllers.jobset.stage import Stage, make_jobset, make_replicated
from trainmaster.api import labels
from trainmaster.api.resources import JOB_SETS, JOBS

pytestmark = pytest.mark.unit

ALL = ("js-a-0", "js-b-0", "js-b-1")


def make_ruled(action: str, *, restarts: int = 1, **rule: Any) -> Stage:
    rules = [{"name": "Rule1", "action": action, **rule}]
    return Stage(make_jobset(failurePolicy={"maxRestarts": restarts, "rules": rules}))


def fail_and_restart(stage: Stage, name: str) -> None:
    """Long after the attempt began, so that no pause follows."""
    stage.merge(JOBS, name, {"status": {"startTime": "2026-01-01T00:00:00Z"}})
    stage.fail(name)
    stage.play()


def test_ji_19_a_rule_restarts_the_gang_and_it_counts() -> None:
    stage = make_ruled("RestartJobSet")
    stage.fail("js-a-0")
    stage.play()
    assert (stage.status["restarts"], stage.status["restartsCountTowardsMax"]) == (1, 1)
    assert all("jobRestarts" not in entry for entry in stage.status["replicatedJobsStatus"])
    text = "applying RestartJobSet failure policy action (first failed job: js-a-0)"
    assert stage.notes == [
        ("Warning", "FailurePolicy_Rule1", text),
        ("Warning", "RestartJobSetFailurePolicyAction", text),
    ]


def test_ji_20_restarting_is_true_until_all_jobs_are_ready() -> None:
    stage = make_ruled("RestartJobSet")
    stage.fail("js-a-0")
    stage.play()
    assert stage.conditions == {"RestartingJobSet": ("True", "FailurePolicy_Rule1")}
    assert stage.is_active
    stage.get_ready("js-a-0", "js-b-0")
    stage.play()
    assert stage.conditions["RestartingJobSet"][0] == "True"
    stage.get_ready("js-b-1")
    stage.play()
    assert stage.conditions == {"RestartingJobSet": ("False", "JobsReady")}


def test_ji_21_a_rule_restarts_one_job_alone() -> None:
    stage = make_ruled("RestartJob", restarts=2)
    before = {name: stage.get(JOBS, name)["metadata"]["uid"] for name in ALL}
    stage.fail("js-b-1")
    stage.play()
    after = {name: stage.get(JOBS, name)["metadata"]["uid"] for name in ALL}
    assert [name for name in ALL if before[name] != after[name]] == ["js-b-1"]
    assert stage.status["restarts"] == 0
    assert "restartsCountTowardsMax" not in stage.status
    assert stage.count("b") == {"jobRestarts": [0, 1], "jobRestartsCountTowardsMax": [0, 1]}
    assert stage.get(JOBS, "js-b-1")["metadata"]["labels"][labels.JOB_RESTART_ATTEMPT] == "1"
    assert stage.conditions == {}
    text = "applying RestartJob failure policy action (first failed job: js-b-1)"
    assert stage.notes == [("Warning", "RestartJobFailurePolicyAction", text)]


def test_ji_21_restarts_of_one_job_use_the_same_budget() -> None:
    stage = make_ruled("RestartJob")
    stage.fail("js-b-1")
    stage.play()
    stage.fail("js-a-0")
    stage.play()
    assert stage.conditions == {"Failed": ("True", "ReachedMaxRestarts")}


def test_ji_22_a_job_restarts_alone_and_it_does_not_count() -> None:
    stage = make_ruled("RestartJobAndIgnoreMaxRestarts", restarts=0)
    stage.fail("js-a-0")
    stage.play()
    assert stage.count("a") == {"jobRestarts": [1]}
    assert stage.is_active
    assert stage.notes[-1][1] == "RestartJobAndIgnoreMaxRestartsFailurePolicyAction"


def test_a_job_that_fails_alone_again_and_again_waits_longer_and_longer() -> None:
    stage = make_ruled("RestartJobAndIgnoreMaxRestarts")
    stage.fail("js-a-0")
    stage.play()
    stage.fail("js-a-0")
    assert stage.play().requeue_after == 1.0
    stage.wait(1)
    assert stage.count("a") == {"jobRestarts": [2]}
    stage.fail("js-a-0")
    assert stage.play().requeue_after == 2.0


def test_ji_23_each_job_comes_back_as_soon_as_its_own_predecessor_is_gone() -> None:
    stage = Stage(make_jobset(failurePolicy={"maxRestarts": 1}), linger=True)
    stage.fail("js-a-0")
    stage.play()
    del stage.objects[JOBS, "default", "js-b-0"]
    stage.play()
    assert stage.attempts == {"js-a-0": "0", "js-b-0": "1", "js-b-1": "0"}
    stage.vanish()
    stage.play()
    assert stage.attempts == dict.fromkeys(ALL, "1")


def test_ji_24_blocking_nothing_comes_back_before_all_are_gone() -> None:
    policy = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
    stage = Stage(make_jobset(failurePolicy=policy), linger=True)
    stage.fail("js-a-0")
    stage.play()
    del stage.objects[JOBS, "default", "js-b-0"]
    stage.play()
    assert stage.attempts == {"js-a-0": "0", "js-b-1": "0"}
    stage.vanish()
    stage.play()
    assert stage.attempts == dict.fromkeys(ALL, "1")


def test_ji_25_restarts_that_do_not_count_never_run_out() -> None:
    stage = make_ruled("RestartJobSetAndIgnoreMaxRestarts")
    for _ in range(3):
        fail_and_restart(stage, "js-a-0")
    assert stage.is_active
    assert stage.status["restarts"] == 3
    assert "restartsCountTowardsMax" not in stage.status
    reasons = [reason for _, reason, _ in stage.notes]
    assert reasons.count("RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction") == 3


def test_ji_29_free_restarts_for_one_and_the_end_for_the_other() -> None:
    rules = [
        {"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["a"]},
        {"name": "rest", "action": "FailJobSet"},
    ]
    stage = Stage(make_jobset(failurePolicy={"maxRestarts": 1, "rules": rules}))
    for _ in range(3):
        fail_and_restart(stage, "js-a-0")
    assert (stage.is_active, stage.status["restarts"]) == (True, 3)
    fail_and_restart(stage, "js-b-0")
    assert stage.conditions["Failed"] == ("True", "FailJobSetFailurePolicyAction")


def test_ji_30_a_restart_runs_again_what_had_succeeded() -> None:
    stage = Stage(make_jobset(failurePolicy={"maxRestarts": 1}))
    stage.end("js-a-0")
    stage.fail("js-b-0")
    stage.play()
    assert stage.attempts == dict.fromkeys(ALL, "1")
    assert stage.count("a") == {}
    stage.end(*ALL)
    stage.play()
    assert stage.conditions["Completed"] == ("True", "AllJobsCompleted")
    assert stage.conditions["RestartingJobSet"] == ("False", "JobSetCompleted")


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        pytest.param("Complete", {"successPolicy": {"operator": "Any"}}, id="JI-38 after success"),
        pytest.param("Failed", {}, id="JI-39 after failure"),
    ],
)
def test_what_still_runs_goes_and_what_has_ended_stays(kind: str, policy: dict[str, Any]) -> None:
    stage = Stage(make_jobset(**policy))
    stage.end("js-b-0", kind=kind)
    first = stage.step()
    assert (first.writes, first.status is not None) == ((), True)
    stage.play()
    assert stage.names == ["js-b-0"]


def test_nothing_is_made_after_the_end() -> None:
    stage = Stage()
    stage.end(*ALL)
    stage.play()
    for name in ALL:
        del stage.objects[JOBS, "default", name]
    stage.play()
    assert stage.names == []
    assert stage.count("b") == {"succeeded": 2}


def test_pauses_grow_to_a_minute_and_start_over_after_progress() -> None:
    stage = Stage(make_jobset(make_replicated("a"), failurePolicy={"maxRestarts": 100}))
    pauses = []
    for _ in range(9):
        stage.fail("js-a-0")
        pause = stage.play().requeue_after or 0.0
        pauses.append(pause)
        stage.wait(pause)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    fail_and_restart(stage, "js-a-0")
    assert stage.status["restarts"] == 10
    assert stage.jobset["metadata"]["annotations"][labels.RESTART_SERIES] == "9"
    stage.fail("js-a-0")
    assert stage.play().requeue_after == 1.0


def test_a_pause_says_what_follows_and_when_and_is_taken_back() -> None:
    stage = Stage(make_jobset(make_replicated("a"), failurePolicy={"maxRestarts": 5}))
    for _ in range(2):
        stage.fail("js-a-0")
        stage.play()
    waiting = orjson.loads(stage.jobset["metadata"]["annotations"][labels.WAITING])
    text = "restart 2 of 5 follows after a pause, because job js-a-0 failed repeatedly"
    assert (waiting["reason"], waiting["message"]) == ("RestartBackOff", text)
    assert (waiting["since"], waiting["until"]) == ("2026-11-15T12:00:00Z", "2026-11-15T12:00:01Z")
    assert ("Warning", "RestartBackOff", text) in stage.notes
    stage.wait(1)
    assert labels.WAITING not in stage.jobset["metadata"]["annotations"]


def test_a_suspended_jobset_restarts_without_a_pause_and_stays_suspended() -> None:
    stage = Stage(make_jobset(make_replicated("a"), failurePolicy={"maxRestarts": 5}))
    stage.fail("js-a-0")
    stage.play()
    stage.fail("js-a-0")
    stage.edit(suspend=True)
    stage.play()
    assert stage.status["restarts"] == 2
    assert stage.suspended == {"js-a-0": True}


def test_the_terminal_status_is_a_pass_of_its_own_also_with_jobs_of_an_earlier_attempt() -> None:
    stage = Stage(make_jobset(failurePolicy={"maxRestarts": 1}), linger=True)
    stage.fail("js-a-0")
    stage.play()
    stage.vanish()
    stage.play()
    stage.linger = False
    stage.fail("js-a-0")
    old = dict(stage.get(JOBS, "js-b-1"))
    marks = {**old["metadata"]["labels"], labels.RESTART_ATTEMPT: "0"}
    stage.add(JOBS, {**old, "metadata": {**old["metadata"], "labels": marks}})
    plan = stage.step()
    assert stage.status["terminalState"] == "Failed"
    assert plan.writes == ()
    stage.play()
    assert stage.names == ["js-a-0"]


def test_a_rule_that_arrives_later_finds_jobs_without_its_label() -> None:
    stage = Stage(make_jobset(make_replicated("a")))
    stage.merge(JOB_SETS, "js", {"spec": {"failurePolicy": {"rules": [{"name": "r", "action": "RestartJob"}]}}})
    stage.merge(JOB_SETS, "js", {"spec": {"failurePolicy": {"maxRestarts": 1}}})
    stage.fail("js-a-0")
    stage.play()
    assert stage.count("a") == {"jobRestarts": [1], "jobRestartsCountTowardsMax": [1]}
    assert stage.is_active


def test_a_failure_without_a_time_is_a_failure() -> None:
    stage = Stage(make_jobset(make_replicated("a"), failurePolicy={"maxRestarts": 3}))
    for _ in range(2):
        condition = {"type": "Failed", "status": "True"}
        stage.merge(JOBS, "js-a-0", {"status": {"conditions": [condition], "startTime": "2026-11-15T12:00:00Z"}})
        stage.play()
    assert stage.status["restarts"] == 2
