"""Conformance lines JI-01 to JI-18 and JU: children, success, failure rules. The number of a line is in its test."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.jobset.stage import Stage, make_jobset, make_replicated
from trainmaster.api import labels
from trainmaster.api.resources import JOB_SETS, JOBS, SERVICES
from trainmaster.controllers.jobset.children import sort_jobs
from trainmaster.controllers.jobset.failure_policy import decide
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.jobsets import JobSet

pytestmark = pytest.mark.unit

ALL = ("js-a-0", "js-b-0", "js-b-1")


def make_ruled(*rules: dict[str, Any], restarts: int = 1) -> Stage:
    return Stage(make_jobset(failurePolicy={"maxRestarts": restarts, "rules": list(rules)}))


def test_ji_02_a_jobset_yields_all_jobs_labelled_with_its_name() -> None:
    stage = Stage()
    assert stage.names == list(ALL)
    assert {job["metadata"]["labels"][labels.JOBSET_NAME] for job in stage.list(JOBS)} == {"js"}


def test_ji_03_all_jobs_complete_means_completed() -> None:
    stage = Stage()
    stage.end(*ALL)
    stage.play()
    assert stage.conditions == {"Completed": ("True", "AllJobsCompleted")}
    assert stage.status["terminalState"] == "Completed"
    assert (stage.count("a"), stage.count("b")) == ({"succeeded": 1}, {"succeeded": 2})


def test_ji_04_a_job_of_another_owner_with_the_same_name_is_ignored() -> None:
    stage = Stage()
    foreign = dict(stage.get(JOBS, "js-a-0"))
    owner = [{**foreign["metadata"]["ownerReferences"][0], "uid": "another"}]
    meta = {**foreign["metadata"], "name": "js-a-9", "uid": "x", "ownerReferences": owner}
    stage.add(JOBS, {**foreign, "metadata": meta})
    stage.fail("js-a-9")
    stage.play()
    assert stage.is_active
    assert stage.count("a") == {}


def test_ji_05_the_last_one_keeps_the_jobset_active() -> None:
    stage = Stage()
    stage.end("js-a-0", "js-b-0")
    stage.get_ready("js-b-1")
    stage.play()
    assert stage.is_active
    assert stage.count("b") == {"succeeded": 1, "ready": 1, "active": 1}


def test_ji_06_all_without_targets_needs_every_job() -> None:
    stage = Stage(make_jobset(successPolicy={"operator": "All", "targetReplicatedJobs": []}))
    stage.end("js-b-0", "js-b-1")
    stage.play()
    assert stage.is_active
    stage.end("js-a-0")
    stage.play()
    assert "Completed" in stage.conditions


def test_ji_07_all_with_a_target_needs_its_replicas_and_no_others() -> None:
    stage = Stage(make_jobset(successPolicy={"operator": "All", "targetReplicatedJobs": ["b"]}))
    stage.end("js-a-0", "js-b-0")
    stage.play()
    assert stage.is_active
    stage.end("js-b-1")
    stage.play()
    assert "Completed" in stage.conditions


@pytest.mark.parametrize(
    ("targets", "ended", "want"),
    [
        pytest.param(["b"], "js-b-1", True, id="JI-08 one job of the target is enough"),
        pytest.param(["b"], "js-a-0", False, id="JI-08 a job outside the target is not"),
        pytest.param([], "js-a-0", True, id="JI-09 any job is enough without targets"),
    ],
)
def test_any_job_completes_the_set(targets: list[str], ended: str, want: bool) -> None:
    stage = Stage(make_jobset(successPolicy={"operator": "Any", "targetReplicatedJobs": targets}))
    stage.end(ended)
    stage.play()
    assert ("Completed" in stage.conditions) == want


def test_a_jobset_without_jobs_never_completes() -> None:
    stage = Stage(make_jobset(make_replicated("a", 0)))
    assert stage.conditions == {}
    assert stage.names == []


def test_ji_10_without_a_failure_policy_any_failure_is_the_end() -> None:
    stage = Stage()
    stage.fail("js-b-1")
    stage.play()
    assert stage.conditions == {"Failed": ("True", "FailedJobs")}
    assert stage.status["terminalState"] == "Failed"


def test_ji_11_and_ji_34_there_is_one_headless_service_and_it_comes_back() -> None:
    stage = Stage()
    services = stage.list(SERVICES)
    assert [service["metadata"]["name"] for service in services] == ["js"]
    assert services[0]["spec"]["clusterIP"] == "None"
    del stage.objects[SERVICES, "default", "js"]
    stage.play()
    assert [service["metadata"]["name"] for service in stage.list(SERVICES)] == ["js"]


@pytest.mark.parametrize(
    ("network", "want"),
    [
        pytest.param({"subdomain": "other"}, {"other": True}, id="JU-06 the subdomain is its name"),
        pytest.param({"publishNotReadyAddresses": False}, {"js": False}, id="JU-06 publishing is passed through"),
        pytest.param({"enableDNSHostnames": False}, {}, id="JU-06 no hostnames, no Service"),
    ],
)
def test_ju_06_the_service_follows_the_network(network: dict[str, Any], want: dict[str, bool]) -> None:
    stage = Stage(make_jobset(network=network))
    found = {one["metadata"]["name"]: "publishNotReadyAddresses" in one["spec"] for one in stage.list(SERVICES)}
    assert found == want
    pod = stage.get(JOBS, "js-a-0")["spec"]["template"]["spec"]
    assert pod.get("subdomain") == next(iter(want), None)


def test_ju_06_a_service_that_exists_is_used_as_it_is() -> None:
    stage = Stage(make_jobset(network={"subdomain": "other"}))
    del stage.objects[SERVICES, "default", "other"]
    stage.add(SERVICES, {"metadata": {"name": "other", "namespace": "default"}, "spec": {"selector": {"a": "b"}}})
    before = stage.get(SERVICES, "other")
    stage.play()
    assert stage.get(SERVICES, "other") is before


def test_ji_12_the_second_failure_is_one_too_many() -> None:
    stage = Stage(make_jobset(failurePolicy={"maxRestarts": 1}))
    stage.fail("js-a-0")
    stage.play()
    assert stage.is_active
    assert stage.attempts == dict.fromkeys(ALL, "1")
    stage.fail("js-b-0")
    stage.play()
    assert stage.conditions["Failed"] == ("True", "ReachedMaxRestarts")


@pytest.mark.parametrize(
    ("rule", "reason", "message", "want"),
    [
        pytest.param({}, "BackoffLimitExceeded", "", (True, 0), id="JI-13 no conditions, every failure"),
        pytest.param(
            {"onJobFailureReasons": ["DeadlineExceeded"]},
            "BackoffLimitExceeded",
            "",
            (False, 1),
            id="JI-14 another reason",
        ),
        pytest.param({"onJobFailureMessagePatterns": ["^oom$"]}, "x", "an oom", (False, 1), id="JI-15 another message"),
        pytest.param(
            {"onJobFailureReasons": ["PodFailurePolicy"], "onJobFailureMessagePatterns": ["oom"]},
            "PodFailurePolicy",
            "exit code 1",
            (False, 1),
            id="JI-16 only the reason",
        ),
        pytest.param(
            {"onJobFailureReasons": ["PodFailurePolicy"], "onJobFailureMessagePatterns": ["no", "exit code [0-9]+"]},
            "PodFailurePolicy",
            "exit code 17",
            (True, 0),
            id="JI-17 both",
        ),
        pytest.param(
            {"onJobFailureMessagePatterns": ["exit code 17"]},
            "PodFailurePolicy",
            "Container main failed with exit code 17 matching FailJob rule at index 0",
            (True, 0),
            id="JI-18 inside a longer message",
        ),
        pytest.param({"onJobFailureMessagePatterns": ["("]}, "x", "(", (False, 1), id="a pattern that is none"),
        pytest.param({"targetReplicatedJobs": ["a"]}, "x", "", (True, 0), id="JI-26 its parent is a target"),
        pytest.param({"targetReplicatedJobs": ["b"]}, "x", "", (False, 1), id="JI-27 its parent is no target"),
    ],
)
def test_a_rule_that_fails_the_jobset(rule: dict[str, Any], reason: str, message: str, want: tuple[bool, int]) -> None:
    stage = make_ruled({"name": "r", "action": "FailJobSet", **rule})
    stage.fail("js-a-0", reason=reason, message=message)
    stage.play()
    failed, restarts = want
    assert ("Failed" in stage.conditions) == failed
    assert (stage.status["restarts"], stage.status.get("restartsCountTowardsMax", 0)) == (restarts, restarts)
    if failed:
        assert stage.conditions["Failed"] == ("True", "FailJobSetFailurePolicyAction")
        assert stage.status["conditions"][-1]["message"] == (
            "applying FailJobSet failure policy action (first failed job: js-a-0)"
        )


def test_ji_28_of_two_rules_that_match_the_first_wins() -> None:
    fail, restart = {"name": "f", "action": "FailJobSet"}, {"name": "r", "action": "RestartJobSet"}
    for rules, want in (((fail, restart), True), ((restart, fail), False)):
        stage = make_ruled(*rules)
        stage.fail("js-a-0")
        stage.play()
        assert ("Failed" in stage.conditions) == want


def test_ju_01_a_job_that_is_about_to_fail_is_still_active_and_so_is_a_suspended_one() -> None:
    stage = Stage()
    stage.end("js-a-0", kind="FailureTarget")
    stage.end("js-b-0", kind="Suspended")
    buckets = sort_jobs(JobSet(stage.jobset), map(Job, stage.list(JOBS)))
    assert [len(one) for one in (buckets.active, buckets.failed, buckets.succeeded, buckets.previous)] == [3, 0, 0, 0]


def test_ju_02_no_job_is_made_for_a_name_that_is_taken_by_any_of_its_own() -> None:
    stage = Stage(make_jobset(make_replicated("a", 4), failurePolicy={"maxRestarts": 1}), linger=True)
    stage.end("js-a-1")
    stage.fail("js-a-2")
    before = {job["metadata"]["uid"] for job in stage.list(JOBS)}
    stage.play()
    assert {job["metadata"]["uid"] for job in stage.list(JOBS)} == before
    assert all("deletionTimestamp" in job["metadata"] for job in stage.list(JOBS))


def test_ju_04_a_condition_is_never_added_as_false_and_news_keep_their_time() -> None:
    stage = Stage(make_jobset(failurePolicy={"maxRestarts": 2}))
    stage.get_ready(*ALL)
    stage.play()
    assert stage.conditions == {}
    stage.fail("js-a-0")
    stage.play()
    stage.get_ready(*ALL)
    stage.play()
    before = stage.status["conditions"][0]
    stage.edit(suspend=True)
    stage.wait(5)
    after = stage.status["conditions"][0]
    assert (before["reason"], after["reason"]) == ("JobsReady", "JobSetSuspended")
    assert before["lastTransitionTime"] == after["lastTransitionTime"]


def test_ju_05_failed_and_succeeded_jobs_are_not_ready() -> None:
    stage = Stage(make_jobset(make_replicated("a", 2)))
    stage.get_ready("js-a-0")
    stage.end("js-a-1")
    stage.play()
    assert stage.count("a") == {"succeeded": 1, "ready": 1, "active": 1}
    stage.end("js-a-0")
    stage.play()
    assert stage.count("a") == {"succeeded": 2}


def test_ju_07_indexes_count_over_all_and_within_the_group() -> None:
    jobset = make_jobset(make_replicated("a", 2), make_replicated("b", 2, groupName="g"), make_replicated("c", 1))
    stage = Stage(jobset)
    keys = (
        labels.JOB_INDEX,
        labels.JOB_GLOBAL_INDEX,
        labels.JOB_GROUP_INDEX,
        labels.GROUP_NAME,
        labels.GROUP_REPLICAS,
        labels.GLOBAL_REPLICAS,
        labels.REPLICATED_JOB_REPLICAS,
    )
    found = {
        job["metadata"]["name"]: " ".join(job["metadata"]["labels"][key] for key in keys) for job in stage.list(JOBS)
    }
    assert found == {
        "js-a-0": "0 0 0 default 3 5 2",
        "js-a-1": "1 1 1 default 3 5 2",
        "js-b-0": "0 2 0 g 2 5 2",
        "js-b-1": "1 3 1 g 2 5 2",
        "js-c-0": "0 4 2 default 3 5 1",
    }


def test_ju_08_the_job_that_failed_first_is_named() -> None:
    rule = {"name": "r", "action": "FailJobSet", "targetReplicatedJobs": ["b"]}
    stage = make_ruled(rule)
    stage.fail("js-a-0", ago=9)
    stage.fail("js-b-0", ago=3)
    stage.fail("js-b-1", ago=6)
    verdict = decide(JobSet(stage.jobset), [Job(job) for job in stage.list(JOBS)])
    assert (verdict.rule, verdict.job.name) == ("r", "js-b-1")
    stage.merge(JOB_SETS, "js", {"spec": {"failurePolicy": {"rules": []}}})
    verdict = decide(JobSet(stage.jobset), [Job(job) for job in stage.list(JOBS)])
    assert (verdict.rule, verdict.job.name) == (None, "js-a-0")


def test_a_damaged_label_stops_everything_and_is_said() -> None:
    stage = Stage()
    stage.merge(JOBS, "js-a-0", {"metadata": {"labels": {labels.RESTART_ATTEMPT: "many"}}})
    stage.play()
    assert stage.notes[-1][1] == "DamagedJob"
    assert 'of job "js-a-0" must be a number, not "many"' in stage.notes[-1][2]
    assert stage.step().all_writes == ()
