"""The lines KE, KI and KT of the Job's conformance list that a reconciler can show alone.

The number of the line is in the name of the test. Lines that need a server are in tests/flow/test_job_flow.py and
tests/unit/apiserver; docs/job.md has the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.job.stage import NAME, Stage, list_kinds
from tests.unit.controllers.world import NOW, make_job
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS
from trainmaster.client.writes import Delete
from trainmaster.controllers.job.keys import FAILURE_COUNT, IGNORED_COUNT
from trainmaster.controllers.job.ttl import find_time_left
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


def make_policy(*rules: tuple[str, Any]) -> Object:
    """(action, exit codes or the name of a condition)."""
    built: list[Object] = []
    for action, matcher in rules:
        if isinstance(matcher, str):
            built.append({"action": action, "onPodConditions": [{"type": matcher, "status": "True"}]})
        else:
            built.append({"action": action, "onExitCodes": {"operator": "In", "values": list(matcher)}})
    return {"podFailurePolicy": {"rules": built}, "podReplacementPolicy": "Failed"}


def test_ke_01_a_job_runs_to_completion_when_its_tasks_succeed() -> None:
    stage = Stage(completionMode="NonIndexed", completions=4, parallelism=2)
    for _ in range(4):
        assert stage.status["active"] <= 2
        stage.end(0)
        stage.settle()
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]
    assert (stage.status["succeeded"], len(stage.pods)) == (4, 4)
    assert "completedIndexes" not in stage.status


@pytest.mark.parametrize(
    ("matcher", "want"),
    [
        pytest.param([42], "Container node for pod default/{} failed with exit code 42", id="an exit code"),
        pytest.param("DisruptionTarget", "Pod default/{} has condition DisruptionTarget", id="a condition"),
    ],
)
def test_ke_02_fail_job_ends_the_job_early(matcher: Any, want: str) -> None:
    stage = Stage(completions=2, **make_policy(("Ignore", [7]), ("FailJob", matcher)))
    pod = stage.end(0, code=42, conditions=[DISRUPTED])
    stage.look()
    (condition,) = stage.status["conditions"]
    assert (condition["type"], condition["reason"]) == ("FailureTarget", "PodFailurePolicy")
    assert condition["message"] == want.format(pod["metadata"]["name"]) + " matching FailJob rule at index 1"
    stage.settle()
    stage.let_terminating_go()
    stage.settle()
    assert list_kinds(stage) == ["FailureTarget", "Failed"]
    assert stage.status["conditions"][1]["message"] == condition["message"]
    assert stage.status["failed"] == 2


@pytest.mark.parametrize("matcher", [[42], "DisruptionTarget"], ids=["an exit code", "a condition"])
def test_ke_03_an_ignored_failure_is_replaced_and_not_counted(matcher: Any) -> None:
    stage = Stage(completions=1, backoffLimit=0, **make_policy(("Ignore", matcher)))
    stage.end(0, code=42, conditions=[DISRUPTED])
    stage.wait(10)
    assert "failed" not in stage.status
    assert stage.status["active"] == 1
    stage.end(0)
    stage.settle()
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]


def test_ke_03_a_disrupted_pod_that_vanishes_while_it_ends_is_ignored_too() -> None:
    stage = Stage(completions=1, backoffLimit=0, **make_policy(("Ignore", "DisruptionTarget")))
    pod = stage.find_pod(0)
    stage.merge(PODS, pod["metadata"]["name"], {"status": {"conditions": [DISRUPTED]}})
    stage.delete(pod)
    stage.settle()
    stage.let_terminating_go()
    stage.settle()
    stage.wait(10)
    assert "failed" not in stage.status
    assert stage.status["active"] == 1


def test_ke_04_suspended_means_no_pods_and_says_so() -> None:
    stage = Stage(suspend=True)
    assert stage.pods == []
    assert stage.conditions == [("Suspended", "True", "JobSuspended")]
    assert "startTime" not in stage.status
    assert stage.reasons == ["Suspended"]


def test_ke_04_suspending_deletes_the_pods_without_counting_them() -> None:
    stage = Stage()
    stage.start_pods()
    stage.edit(suspend=True)
    stage.settle()
    assert stage.active == []
    assert stage.conditions == [("Suspended", "True", "JobSuspended")]
    assert ("active" in stage.status, stage.status["terminating"], stage.status["ready"]) == (False, 2, 0)
    stage.let_terminating_go()
    stage.settle()
    assert ("failed" in stage.status, "startTime" in stage.status) == (False, False)
    assert stage.reasons.count("SuccessfulDelete") == 2
    stage.edit(suspend=False)
    stage.wait(1)
    assert stage.active_indexes == [0, 1]


def test_ke_05_a_policy_that_waits_for_the_end_counts_and_replaces_after_it() -> None:
    stage = Stage(completions=1, podReplacementPolicy="Failed")
    pod = stage.find_pod(0)
    stage.delete(pod)
    stage.wait(60)
    assert ("active" in stage.status, "failed" in stage.status, stage.status["terminating"]) == (False, False, 1)
    stage.end_pod(pod, code=143)
    stage.wait(60)
    assert (stage.status["active"], stage.status["failed"], stage.status["terminating"]) == (1, 1, 0)


def test_ke_07_a_success_policy_ends_the_job_while_indexes_are_pending() -> None:
    rules = [{"succeededIndexes": "0,2-3", "succeededCount": 2}, {"succeededIndexes": "1"}]
    stage = Stage(completions=5, successPolicy={"rules": rules})
    stage.end(2)
    stage.settle()
    assert stage.conditions == []
    stage.end(3)
    stage.look()
    assert stage.conditions == [("SuccessCriteriaMet", "True", "SuccessPolicy")]
    assert stage.status["conditions"][0]["message"] == "Matched rules at index 0"
    stage.settle()
    assert (stage.active, stage.status["terminating"]) == ([], 3)
    stage.let_terminating_go()
    stage.settle()
    assert stage.conditions[-1] == ("Complete", "True", "SuccessPolicy")
    assert (stage.status["succeeded"], "failed" in stage.status) == (2, False)


@pytest.mark.parametrize(
    ("rule", "succeeded", "want"),
    [
        pytest.param({"succeededCount": 2}, [0], False, id="too few"),
        pytest.param({"succeededCount": 2}, [0, 3], True, id="any two"),
        pytest.param({"succeededIndexes": "0,1"}, [0, 3], False, id="not these"),
        pytest.param({"succeededIndexes": "0,1"}, [0, 1], True, id="these"),
        pytest.param({"succeededIndexes": "0-2", "succeededCount": 1}, [3], False, id="none of these"),
    ],
)
def test_ke_07_rules_of_a_success_policy(rule: Object, succeeded: Sequence[int], want: bool) -> None:
    stage = Stage(completions=4, successPolicy={"rules": [rule]})
    for index in succeeded:
        stage.end(index)
    stage.look()
    assert bool(stage.conditions) == want


def test_ke_07_all_indexes_succeeded_needs_no_rule() -> None:
    stage = Stage(completions=2, successPolicy={"rules": [{"succeededIndexes": "0,1"}]})
    stage.end(0)
    stage.end(1)
    stage.settle()
    assert stage.conditions[-1] == ("Complete", "True", "SuccessPolicy")


def test_ke_08_with_a_limit_per_index_all_indexes_run_despite_failures() -> None:
    stage = Stage(completions=2, backoffLimit=2147483647, backoffLimitPerIndex=1)
    assert stage.status["failedIndexes"] == ""
    stage.end(0, code=1)
    stage.wait(10)
    assert stage.find_pod(0)["metadata"]["annotations"][FAILURE_COUNT] == "1"
    assert stage.find_pod(1)["metadata"]["annotations"][FAILURE_COUNT] == "0"
    stage.end(0, code=1)
    stage.wait(60)
    assert stage.status["failedIndexes"] == "0"
    assert stage.active_indexes == [1]
    stage.end(1)
    stage.settle()
    assert stage.conditions == [("FailureTarget", "True", "FailedIndexes"), ("Failed", "True", "FailedIndexes")]
    assert stage.status["conditions"][1]["message"] == "Job has failed indexes"
    assert (stage.status["failed"], stage.status["succeeded"], stage.status["completedIndexes"]) == (2, 1, "1")


def test_ke_08_too_many_failed_indexes_stop_the_job() -> None:
    stage = Stage(completions=4, backoffLimit=2147483647, backoffLimitPerIndex=0, maxFailedIndexes=1)
    stage.end(0, code=1)
    stage.settle()
    assert stage.conditions == []
    stage.end(2, code=1)
    stage.look()
    assert stage.conditions == [("FailureTarget", "True", "MaxFailedIndexesExceeded")]
    text = "Job has exceeded the specified maximal number of failed indexes"
    assert stage.status["conditions"][0]["message"] == text
    assert stage.status["failedIndexes"] == "0,2"


def test_ke_08_fail_index_gives_up_on_the_index_at_once() -> None:
    policy = make_policy(("FailIndex", [42]), ("Ignore", [7]))
    stage = Stage(completions=2, backoffLimit=2147483647, backoffLimitPerIndex=5, **policy)
    stage.end(0, code=42)
    stage.end(1, code=7)
    stage.wait(10)
    assert stage.status["failedIndexes"] == "0"
    annotations = stage.find_pod(1)["metadata"]["annotations"]
    assert (annotations[FAILURE_COUNT], annotations[IGNORED_COUNT]) == ("0", "1")
    assert stage.status["failed"] == 1


def test_ke_08_an_index_whose_pod_vanishes_keeps_its_count() -> None:
    stage = Stage(completions=1, backoffLimit=2147483647, backoffLimitPerIndex=1)
    for want in ("", "0"):
        stage.vanish(stage.find_pod(0))
        stage.settle()
        stage.wait(10)
        assert stage.status["failedIndexes"] == want
    assert list_kinds(stage) == ["FailureTarget", "Failed"]


def test_ke_10_pods_that_are_replaced_complete_the_job() -> None:
    stage = Stage(completions=2)
    stage.end(0, code=1)
    stage.end(1)
    stage.wait(20)
    stage.end(0)
    stage.settle()
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]
    assert (stage.status["failed"], stage.status["succeeded"]) == (1, 2)


def test_ke_11_a_job_that_is_active_for_too_long_fails() -> None:
    stage = Stage(activeDeadlineSeconds=30)
    assert stage.settle().requeue_after == 30
    plan = stage.wait(10)
    assert plan.requeue_after == 20
    stage.wait(20)
    assert stage.conditions[0] == ("FailureTarget", "True", "DeadlineExceeded")
    assert stage.status["conditions"][0]["message"] == "Job was active longer than specified deadline"
    stage.let_terminating_go()
    stage.settle()
    assert list_kinds(stage) == ["FailureTarget", "Failed"]


def test_ke_12_an_orphan_that_matches_is_taken_in_and_a_stranger_let_go() -> None:
    stage = Stage(completions=1, selector={"matchLabels": {"batch.kubernetes.io/job-name": NAME}})
    name = stage.find_pod(0)["metadata"]["name"]
    stage.start_pods()
    stage.merge(PODS, name, {"metadata": {"ownerReferences": None}})
    stage.settle()
    assert ObjectModel(stage.get(PODS, name)).is_owned_by(stage.job["metadata"]["uid"])
    assert (stage.status["active"], "failed" in stage.status) == (1, False)
    stage.merge(PODS, name, {"metadata": {"labels": {"batch.kubernetes.io/job-name": "other"}}})
    stage.settle()
    assert not ObjectModel(stage.get(PODS, name)).is_owned_by(stage.job["metadata"]["uid"])
    assert (stage.status["active"], stage.status["ready"], "failed" in stage.status) == (1, 0, False)
    assert len(stage.pods) == 2


def test_ke_12_a_pod_taken_out_of_the_jobs_hands_has_not_failed() -> None:
    stage = Stage(completions=1, selector={"matchLabels": {"batch.kubernetes.io/job-name": NAME}})
    name = stage.find_pod(0)["metadata"]["name"]
    stage.merge(PODS, name, {"metadata": {"ownerReferences": None, "labels": {"batch.kubernetes.io/job-name": None}}})
    stage.settle()
    assert (stage.status["active"], "failed" in stage.status) == (1, False)
    assert len(stage.pods) == 2


def test_ke_12_a_job_with_a_selector_of_its_own_takes_in_what_it_matches() -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [], "restartPolicy": "Never"}}
    spec = {"manualSelector": True, "selector": selector, "template": template, "completionMode": "NonIndexed"}
    stage = Stage(suspend=True, completions=2, parallelism=2, **spec)
    orphan = {"metadata": {"name": "o", "namespace": "default", "labels": {"app": "b"}}, "spec": {}}
    stage.add(PODS, orphan)
    stage.edit(suspend=False)
    stage.settle()
    assert ObjectModel(stage.get(PODS, "o")).is_owned_by(stage.job["metadata"]["uid"])
    assert len(stage.pods) == 2
    assert all("job-name" not in pod["metadata"]["labels"] for pod in stage.pods)
    stage.end_pod(stage.get(PODS, "o"))
    stage.settle()
    assert stage.status["succeeded"] == 1


def test_ke_13_the_limit_plus_one_failed_pods_end_the_job() -> None:
    stage = Stage(completions=1, backoffLimit=3)
    for _ in range(4):
        stage.end(0, code=1)
        stage.wait(100)
    assert stage.conditions[-1] == ("Failed", "True", "BackoffLimitExceeded")
    assert (stage.status["failed"], len(stage.pods)) == (4, 4)


def test_ke_15_ready_follows_the_pods() -> None:
    stage = Stage()
    assert stage.status["ready"] == 0
    stage.start_pods()
    stage.settle()
    assert stage.status["ready"] == 2
    stage.end(0)
    stage.settle()
    assert stage.status["ready"] == 1


def test_ke_16_a_job_that_another_controller_manages_is_untouched() -> None:
    stage = Stage(managedBy="acme.io/other")
    assert (stage.pods, stage.status) == ([], {})


def test_ke_17_restarts_of_a_container_do_not_trigger_the_failure_policy() -> None:
    stage = Stage(completions=1, **make_policy(("FailJob", [42])))
    ended = {"exitCode": 42, "finishedAt": format_time(NOW)}
    container = {"name": "node", "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": ended}}
    status = {"phase": "Running", "containerStatuses": [container]}
    stage.merge(PODS, stage.pods[0]["metadata"]["name"], {"status": status})
    stage.settle()
    assert stage.conditions == []


def test_ki_01_a_failure_policy_holds_when_the_pod_is_gone_before_the_job_has_ended() -> None:
    stage = Stage(completions=2, **make_policy(("FailJob", [42])))
    pod = stage.end(0, code=42)
    stage.look()
    stage.vanish(pod)
    stage.settle()
    stage.let_terminating_go()
    stage.settle()
    assert stage.conditions[-1] == ("Failed", "True", "PodFailurePolicy")


def test_ki_02_the_pause_doubles_and_is_capped() -> None:
    stage = Stage(completions=1, backoffLimit=20)
    for want in (10, 20, 40, 80, 160, 320, 600, 600):
        stage.end(0, code=1)
        assert stage.settle().requeue_after == want
        stage.wait(want)


def test_ki_02_with_a_limit_per_index_each_index_waits_for_itself() -> None:
    stage = Stage(completions=2, backoffLimit=2147483647, backoffLimitPerIndex=5)
    stage.end(0, code=1)
    stage.wait(10)
    stage.end(0, code=1)
    stage.end(1, code=1)
    assert stage.settle().requeue_after == 10
    stage.wait(10)
    assert stage.active_indexes == [1]
    stage.wait(10)
    assert stage.active_indexes == [0, 1]


def test_ki_03_the_terminal_condition_waits_for_terminating_pods_when_fewer_are_wanted() -> None:
    stage = Stage(completions=3)
    stage.end(0)
    stage.settle()
    stage.edit(completions=1, parallelism=1)
    stage.settle()
    assert list_kinds(stage) == ["SuccessCriteriaMet"]
    assert stage.status["terminating"] == 2
    stage.let_terminating_go()
    stage.settle()
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]


@pytest.mark.parametrize(
    ("manager", "want"),
    [
        pytest.param({}, 2, id="nobody"),
        pytest.param({"managedBy": "kubernetes.io/job-controller"}, 2, id="we"),
        pytest.param({"managedBy": "acme.io/other"}, 0, id="somebody else"),
    ],
)
def test_ki_04_who_manages_the_job_makes_its_pods(manager: Object, want: int) -> None:
    assert len(Stage(**manager).pods) == want


def test_ki_04_a_job_of_the_same_name_does_not_inherit_pods() -> None:
    stage = Stage(completions=1)
    old = stage.find_pod(0)
    del stage.objects[JOBS, "default", NAME]
    stage.add(JOBS, make_job(name=NAME, completions=1))
    stage.settle()
    assert stage.status["active"] == 1
    new = [pod for pod in stage.pods if pod["metadata"]["name"] != old["metadata"]["name"]]
    assert ObjectModel(new[0]).is_owned_by(stage.job["metadata"]["uid"])


def test_ki_05_without_completions_the_first_success_lets_the_others_run_out() -> None:
    stage = Stage(completionMode="NonIndexed", completions=None, parallelism=3)
    stage.end(0)
    stage.settle()
    assert (stage.status["active"], stage.conditions) == (2, [])
    stage.end(0, code=1)
    stage.wait(60)
    assert stage.status["active"] == 1
    stage.end(0)
    stage.settle()
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]
    assert (stage.status["succeeded"], stage.status["failed"]) == (2, 1)


def test_ki_05_parallelism_may_change_while_the_job_runs() -> None:
    stage = Stage(completionMode="NonIndexed", completions=10, parallelism=2)
    stage.edit(parallelism=5)
    stage.settle()
    assert stage.status["active"] == 5
    stage.edit(parallelism=1)
    stage.settle()
    stage.let_terminating_go()
    stage.settle()
    assert (stage.status["active"], "failed" in stage.status) == (1, False)
    stage.edit(parallelism=0)
    stage.settle()
    stage.let_terminating_go()
    stage.settle()
    assert ("active" in stage.status, "failed" in stage.status) == (False, False)


def test_ki_05_those_pods_go_first_that_are_least_far() -> None:
    stage = Stage(completions=3)
    name = stage.find_pod(2)["metadata"]["name"]
    stage.merge(PODS, name, {"spec": {"nodeName": "local"}, "status": {"phase": "Running"}})
    stage.edit(parallelism=1)
    stage.settle()
    assert stage.active_indexes == [2]


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param("TerminatingOrFailed", (2, 2, 2), id="at once"),
        pytest.param("Failed", (0, 0, 2), id="after the end"),
    ],
)
def test_ki_06_what_terminating_pods_count_as(mode: str, policy: str, want: tuple[int, int, int]) -> None:
    stage = Stage(completions=2, parallelism=2, completionMode=mode, podReplacementPolicy=policy)
    for pod in stage.active:
        stage.delete(pod)
    stage.wait(60)
    status = stage.status
    assert (status.get("active", 0), status.get("failed", 0), status["terminating"]) == want
    stage.let_terminating_go()
    stage.settle()
    stage.wait(60)
    assert (stage.status["active"], stage.status["failed"], stage.status["terminating"]) == (2, 2, 0)


def scale(stage: Stage, count: int) -> None:
    stage.edit(completions=count, parallelism=count)
    stage.settle()
    stage.let_terminating_go()
    stage.settle()


def test_ki_07_an_elastic_job_scales_up() -> None:
    stage = Stage(completions=2)
    scale(stage, 4)
    assert stage.active_indexes == [0, 1, 2, 3]


def test_ki_07_an_elastic_job_scales_down_from_the_top_without_counting() -> None:
    stage = Stage(completions=4)
    scale(stage, 2)
    assert stage.active_indexes == [0, 1]
    assert "failed" not in stage.status


def test_ki_07_an_index_that_succeeded_and_was_dropped_runs_again() -> None:
    stage = Stage(completions=3)
    stage.end(2)
    stage.settle()
    scale(stage, 2)
    assert "completedIndexes" not in stage.status
    assert "succeeded" not in stage.status
    scale(stage, 3)
    assert stage.active_indexes == [0, 1, 2]
    assert "completedIndexes" not in stage.status


def test_ki_07_scaling_down_to_nothing_is_a_success() -> None:
    stage = Stage(completions=2)
    scale(stage, 0)
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]


def test_ki_09_one_of_ten_fails_without_a_limit() -> None:
    stage = Stage(completions=10, backoffLimit=0)
    stage.end(3, code=1)
    stage.settle()
    stage.let_terminating_go()
    stage.settle()
    assert stage.conditions[-1] == ("Failed", "True", "BackoffLimitExceeded")
    assert stage.status["failed"] == 10


def test_ki_10_resuming_starts_the_time_anew_and_says_so() -> None:
    stage = Stage(suspend=True, activeDeadlineSeconds=30)
    stage.wait(100)
    assert stage.conditions == [("Suspended", "True", "JobSuspended")]
    stage.edit(suspend=False)
    plan = stage.wait(0)
    assert stage.conditions == [("Suspended", "False", "JobResumed")]
    assert stage.status["startTime"] == format_time(NOW + timedelta(seconds=100))
    assert plan.requeue_after == 30
    assert [reason for reason in stage.reasons if reason != "SuccessfulCreate"] == ["Suspended", "Resumed"]


def test_ki_10_a_suspended_job_without_completions_to_reach_is_complete() -> None:
    stage = Stage(suspend=True, completions=0, parallelism=1)
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]
    assert "startTime" not in stage.status


def test_ki_12_nothing_is_made_after_the_end() -> None:
    stage = Stage(completions=1)
    done = stage.end(0)
    stage.settle()
    stage.vanish(done)
    assert stage.wait(1000).all_writes == ()
    assert stage.pods == []


def finish(code: int = 0, **spec: Any) -> Stage:
    stage = Stage(completions=1, backoffLimit=0, **spec)
    stage.end(0, code=code)
    stage.settle()
    return stage


def test_kt_01_a_finished_job_goes_when_its_time_is_over_and_not_before() -> None:
    stage = finish(ttlSecondsAfterFinished=10)
    assert stage.settle().requeue_after == 10
    stage.seconds += 10
    now = NOW + timedelta(seconds=stage.seconds)
    job = stage.job
    (gone,) = stage.look().writes
    meta = job["metadata"]
    assert gone == Delete(JOBS, "default", NAME, meta["uid"], meta["resourceVersion"], "Foreground")
    assert find_time_left(Job(job), Now(now)) == 0


@pytest.mark.parametrize("code", [0, 1], ids=["complete", "failed"])
@pytest.mark.parametrize(
    ("seconds", "passed", "want"),
    [
        pytest.param(0, 0, 0, id="at once"),
        pytest.param(10, 0, 10, id="all of it"),
        pytest.param(10, 15, -5, id="too late"),
    ],
)
def test_kt_02_the_time_left_is_counted_from_the_end(code: int, seconds: int, passed: int, want: int) -> None:
    job = finish(code)
    job.edit(ttlSecondsAfterFinished=seconds)
    assert find_time_left(Job(job.job), Now(NOW + timedelta(seconds=passed))) == want


def test_kt_02_an_unfinished_job_and_one_without_a_limit_may_stay() -> None:
    assert find_time_left(Job(Stage(ttlSecondsAfterFinished=1).job), Now(NOW)) is None
    assert find_time_left(Job(finish().job), Now(NOW)) is None
