"""Job: its Pods, its counts, and how it ends."""

from __future__ import annotations

import re
from datetime import timedelta

import orjson
import pytest

from tests.unit.controllers.job.stage import NAME, Stage, list_kinds
from tests.unit.controllers.world import NOW
from trainmaster.api.labels import POD_ATTEMPT, WAITING
from trainmaster.api.pods.defaults import default_pod
from trainmaster.api.resources import JOBS, PODS
from trainmaster.api.status import forbidden
from trainmaster.api.validation.names import subdomain
from trainmaster.apiserver.admission.limit_ranges import fill_in
from trainmaster.apiserver.admission.tenants import limit_requests
from trainmaster.client.writes import Create, Delete, WriteRefusal
from trainmaster.controllers.job.expected_pods import Slot
from trainmaster.controllers.job.keys import EXPECTED_PODS
from trainmaster.controllers.job.pods import build_pod, build_pod_name, build_prefix
from trainmaster.controllers.job.reconciler import CONTROLLER, build_controller
from trainmaster.engine.request import Request
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit


def test_each_index_gets_a_pod_with_its_rank_host_name_and_variable() -> None:
    stage = Stage()
    pods = stage.pods
    assert [Pod(pod).index for pod in pods] == [0, 1]
    pod = pods[1]
    assert pod["metadata"]["name"].startswith("j-1-")
    assert pod["metadata"]["generateName"] == "j-1-"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == NAME
    assert pod["spec"]["hostname"] == "j-1"
    path = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    assert pod["spec"]["containers"][0]["env"] == [variable]
    want = {"startTime": format_time(NOW), "active": 2, "terminating": 0, "uncountedTerminatedPods": {}, "ready": 0}
    assert stage.status == want
    assert EXPECTED_PODS not in stage.job["metadata"].get("annotations", {}), (
        "nothing happened that the status does not tell"
    )


def test_a_pod_without_an_index_has_none_of_that() -> None:
    stage = Stage(completionMode="NonIndexed", completions=1, parallelism=1)
    (pod,) = stage.pods
    assert pod["metadata"]["generateName"] == "j-"
    assert pod["metadata"]["name"] == build_pod_name(Job(stage.job), 0, 0)
    assert "hostname" not in pod["spec"]
    assert "env" not in pod["spec"]["containers"][0]
    assert "batch.kubernetes.io/job-completion-index" not in pod["metadata"]["labels"]


def test_of_one_index_the_newest_attempt_comes_first_by_name() -> None:
    job = Stage(suspend=True).job
    names = [build_pod_name(Job(job), 3, attempt) for attempt in range(40)]
    assert sorted(names, reverse=True) == names and len(set(names)) == 40
    assert all(re.fullmatch(r"j-3-[2-9b-z]{5}", name) for name in names), names


def test_a_pass_that_does_not_see_the_pods_collides_with_them() -> None:
    stage = Stage(suspend=True)
    stage.edit(suspend=False)
    now = NOW + timedelta(seconds=stage.seconds)
    plans = [CONTROLLER.reconcile(stage, Request("default", NAME), Now(now), ()) for _ in range(2)]
    names = [{write.obj["metadata"]["name"] for write in plan.writes if isinstance(write, Create)} for plan in plans]
    assert names[0] == names[1]
    assert len(names[0]) == 2


def test_all_indexes_succeeded_means_complete_in_one_write() -> None:
    stage = Stage()
    stage.end(0)
    stage.end(1)
    stage.settle()
    assert stage.conditions == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]
    status = stage.status
    assert (status["succeeded"], status["completedIndexes"], "active" in status) == (2, "0,1", False)
    assert status["completionTime"] == format_time(NOW)
    assert stage.reasons == ["SuccessfulCreate", "SuccessfulCreate", "Completed"]


def test_a_success_counts_although_its_pod_is_gone() -> None:
    stage = Stage()
    done = stage.end(0)
    stage.settle()
    stage.vanish(done)
    stage.end(1)
    stage.settle()
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]


def test_a_decided_failure_is_stored_before_the_others_are_stopped_and_takes_them_along() -> None:
    stage = Stage(backoffLimit=0)
    stage.end(0, code=1)
    plan = stage.look()
    assert stage.conditions == [("FailureTarget", "True", "BackoffLimitExceeded")]
    assert plan.writes == ()
    assert stage.status["failed"] == 2, "what a failed Job takes down with it has failed too"
    plan = stage.look()
    assert [type(write) for write in plan.writes] == [Delete]
    assert list_kinds(stage) == ["FailureTarget"], "Failed waits until the stopped Pods have ended"
    assert stage.status["terminating"] == 1
    stage.let_terminating_go()
    plan = stage.look()
    assert plan.writes == (), "the terminal status is a pass of its own"
    assert list_kinds(stage) == ["FailureTarget", "Failed"]
    assert [(note.reason, note.message, note.warning) for note in plan.notes] == [
        ("BackoffLimitExceeded", "Job has reached the specified backoff limit", True)
    ]
    assert stage.status["failed"] == 2
    assert EXPECTED_PODS not in stage.job["metadata"].get("annotations", {})
    assert stage.settle().all_writes == ()


def test_a_failed_pod_that_stays_is_counted_once() -> None:
    stage = Stage(completions=1)
    stage.end(0, code=1)
    for _ in range(5):
        stage.wait(3)
    assert stage.status["failed"] == 1
    assert len(stage.pods) == 2


def test_a_failed_pod_that_is_removed_stays_counted() -> None:
    stage = Stage(completions=1, backoffLimit=1)
    first = stage.end(0, code=1)
    stage.wait(10)
    stage.vanish(first)
    stage.settle()
    assert stage.status["failed"] == 1
    stage.end(0, code=1)
    stage.settle()
    assert stage.status["failed"] == 2
    assert list_kinds(stage) == ["FailureTarget", "Failed"]


def test_a_pod_that_vanishes_unseen_has_failed_and_gets_a_successor_of_another_name() -> None:
    stage = Stage(completions=1, backoffLimit=1)
    first = stage.find_pod(0)
    stage.vanish(first)
    stage.settle()
    assert stage.status["failed"] == 1
    assert stage.pods == []
    stage.wait(10)
    (second,) = stage.pods
    assert second["metadata"]["name"] != first["metadata"]["name"]
    stage.vanish(second)
    stage.settle()
    assert stage.status["failed"] == 2
    assert list_kinds(stage) == ["FailureTarget", "Failed"]


def test_a_pod_made_by_a_pass_that_died_is_found_again() -> None:
    stage = Stage(suspend=True)
    stage.edit(suspend=False)
    plan = CONTROLLER.reconcile(stage, Request("default", NAME), Now(NOW), ())
    creates = [write for write in plan.writes if isinstance(write, Create)]
    stage.carry_out(creates[:1])
    stage.settle()
    assert stage.active_indexes == [0, 1]
    assert stage.status["active"] == 2
    assert "failed" not in stage.status


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_pods_made_by_a_pass_that_died_are_found_again_in_any_order(mode: str) -> None:
    stage = Stage(suspend=True, completions=6, parallelism=6, completionMode=mode)
    stage.edit(suspend=False)
    plan = CONTROLLER.reconcile(stage, Request("default", NAME), Now(NOW), ())
    stage.carry_out([write for write in plan.writes if isinstance(write, Create)])
    names = [pod["metadata"]["name"] for pod in stage.active]
    stage.settle()
    assert [pod["metadata"]["name"] for pod in stage.active] == names


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "non-indexed"])
def test_a_pod_that_a_late_write_brings_back_is_stopped_and_not_counted(indexed: bool) -> None:
    mode = "Indexed" if indexed else "NonIndexed"
    stage = Stage(completions=1, parallelism=1, completionMode=mode)
    first = stage.find_pod(0)
    stage.end(0, code=1)
    stage.wait(10)
    stage.vanish(stage.get(PODS, first["metadata"]["name"]))
    stage.settle()
    born_again = {**first, "metadata": {**first["metadata"], "uid": "late"}}
    stage.add(PODS, born_again)
    stage.settle()
    assert "deletionTimestamp" in stage.get(PODS, first["metadata"]["name"])["metadata"]
    stage.let_terminating_go()
    stage.settle()
    assert (stage.status["failed"], stage.status["active"]) == (1, 1)


def test_a_pod_that_appears_after_the_end_is_stopped() -> None:
    stage = Stage(completions=1)
    pod = stage.find_pod(0)
    stage.end(0)
    stage.settle()
    stage.add(PODS, {**pod, "metadata": {**pod["metadata"], "uid": "late"}})
    stage.settle()
    assert "deletionTimestamp" in stage.pods[0]["metadata"]
    assert list_kinds(stage) == ["SuccessCriteriaMet", "Complete"]


def test_a_replacement_waits_ten_seconds() -> None:
    stage = Stage(backoffLimit=2)
    stage.end(0, code=1)
    stage.settle()
    plan = stage.wait(4)
    assert plan.requeue_after == 6.0
    assert stage.active_indexes == [1]
    stage.wait(6)
    assert stage.active_indexes == [0, 1]


def test_the_pause_is_a_setting() -> None:
    stage = Stage(backoffLimit=2)
    stage.end(0, code=1)
    stage.settle()
    quick = build_controller(BackoffPolicy(first=1.0, cap=4.0))
    plan = quick.reconcile(stage, Request("default", NAME), Now(NOW), ())
    assert plan.requeue_after == 1.0


def test_a_later_success_resets_the_pause() -> None:
    stage = Stage(completions=3, backoffLimit=6)
    stage.end(0, code=1)
    stage.settle()
    stage.seconds += 5
    stage.end(1)
    stage.settle()
    assert stage.active_indexes == [0, 2]


def test_the_books_hold_no_time_once_nothing_waits() -> None:
    stage = Stage(backoffLimit=2)
    stage.end(0, code=1)
    stage.settle()
    assert '"at":"2026' in stage.job["metadata"]["annotations"][EXPECTED_PODS]
    stage.wait(10)
    assert '"at"' not in stage.job["metadata"]["annotations"][EXPECTED_PODS]


def test_books_that_somebody_broke_are_rebuilt_from_what_is_seen() -> None:
    stage = Stage(backoffLimit=2)
    stage.end(0, code=1)
    stage.wait(10)
    stage.merge(JOBS, NAME, {"metadata": {"annotations": {EXPECTED_PODS: "not json"}}})
    stage.settle()
    assert stage.active_indexes == [0, 1]


def test_restarts_in_place_count_against_the_limit() -> None:
    stage = Stage(backoffLimit=2)
    stage.edit(template={"spec": {"restartPolicy": "OnFailure"}})
    name = stage.pods[0]["metadata"]["name"]
    stage.merge(PODS, name, {"status": {"phase": "Running", "containerStatuses": [{"name": "n", "restartCount": 1}]}})
    stage.settle()
    assert stage.conditions == []
    stage.merge(PODS, name, {"status": {"containerStatuses": [{"name": "n", "restartCount": 2}]}})
    stage.look()
    assert stage.conditions == [("FailureTarget", "True", "BackoffLimitExceeded")]


def test_a_refused_pod_is_explained_on_the_job_until_it_can_be_made() -> None:
    stage = Stage(suspend=True)
    stage.edit(suspend=False)
    plan = CONTROLLER.reconcile(stage, Request("default", NAME), Now(NOW), ())
    refusal = WriteRefusal(plan.writes[0], forbidden(PODS, "x", "exceeded quota: small"))
    explanation = CONTROLLER.reconcile(stage, Request("default", NAME), Now(NOW), (refusal,))
    (note,) = explanation.notes
    assert (note.reason, note.warning) == ("FailedCreate", True)
    assert note.message.startswith("Error creating: ")
    assert "exceeded quota: small" in note.message
    stage.carry_out(explanation.all_writes)
    assert WAITING in stage.job["metadata"]["annotations"]
    stage.settle()
    assert WAITING not in stage.job["metadata"].get("annotations", {})
    assert stage.status["active"] == 2


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_name_that_belongs_to_somebody_else_is_passed_over(mode: str) -> None:
    stage = Stage(suspend=True, completions=1, parallelism=1, completionMode=mode)
    name = build_pod_name(Job(stage.job), 0, 0)
    stage.add(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": {}})
    stage.edit(suspend=False)
    stage.settle()
    (pod,) = [pod for pod in stage.pods if pod["metadata"].get("ownerReferences")]
    assert pod["metadata"]["name"] != name
    assert pod["metadata"]["annotations"][POD_ATTEMPT] == "1"
    assert stage.status["active"] == 1


def test_at_most_five_hundred_pods_are_made_in_one_pass() -> None:
    stage = Stage(completions=1200)
    sizes = [sum(isinstance(write, Create) for write in plan.writes) for plan in stage.plans]
    assert sizes[:3] == [500, 500, 200]
    assert stage.status["active"] == 1200
    assert EXPECTED_PODS not in stage.job["metadata"].get("annotations", {})


def test_a_long_job_name_is_cut_so_that_the_index_survives() -> None:
    prefix = build_prefix("x" * 63, 7)
    assert len(prefix) == 58
    assert prefix.endswith("-7-")
    assert len(build_prefix("x" * 63, None)) == 58
    assert not subdomain(build_prefix("x" * 56 + ".and-more", None) + "bcdfg"), "a label must not be empty"


def test_defaults_and_admission_of_a_pod_do_not_change_the_template() -> None:
    job = Stage(suspend=True).job
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}
    before = orjson.dumps(job)
    pod = build_pod(Job(job), 0, Slot())
    default_pod(pod)
    limit_requests(pod, ["cpu"])
    fill_in(pod, {"default": {"example.com/a": "1"}, "defaultRequest": {"example.com/a": "1"}})
    kept = {"cpu": "2", "memory": "1Gi", "example.com/a": "1"}
    assert pod["spec"]["containers"][0]["resources"] == {"requests": kept, "limits": kept}
    assert orjson.dumps(job) == before


def test_a_job_under_deletion_is_left_to_the_garbage_collector() -> None:
    stage = Stage()
    stage.merge(JOBS, NAME, {"metadata": {"deletionTimestamp": format_time(NOW)}})
    stage.vanish(*stage.pods)
    assert stage.settle().all_writes == ()


def test_a_job_that_fails_while_it_is_suspended_ends_with_a_start() -> None:
    """The API refuses a finished Job without one."""
    stage = Stage(completionMode="Indexed", completions=1, parallelism=1, backoffLimit=0)
    pod = stage.pods[0]
    stage.edit(suspend=True)
    stage.merge(JOBS, NAME, {"status": {"startTime": None}})
    stage.end_pod(pod, code=1)
    stage.settle()
    assert ("Failed", "True", "BackoffLimitExceeded") in stage.conditions
    assert stage.status["startTime"]
