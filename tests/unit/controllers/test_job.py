"""Job: its Pods, its counts, and how it ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.unit.controllers.world import NOW, World, make_job
from trainmaster.api.labels import POD_UNCOUNTED
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOBS, PODS
from trainmaster.controllers.job.pods import build_prefix, find_index
from trainmaster.controllers.job.reconciler import CONTROLLER
from trainmaster.controllers.job.tally import format_indexes, parse_indexes
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time

pytestmark = pytest.mark.unit

JOB = "js-node-0"


def make_world(**job: object) -> World:
    world = World()
    world.add(JOBS, make_job(**job))  # type: ignore[arg-type]  # keyword arguments pass through
    world.run(CONTROLLER, JOB)
    return world


def get_pods(world: World, index: int) -> list[Object]:
    return [pod for pod in world.list(PODS) if find_index(pod) == index]


def end_pod(world: World, pod: Object, phase: str, seconds: float = 0) -> None:
    code = 0 if phase == "Succeeded" else 1
    ended = {"exitCode": code, "finishedAt": format_time(NOW + timedelta(seconds=seconds))}
    container = {"name": "node", "restartCount": 0, "state": {"terminated": ended}}
    world.merge(PODS, pod["metadata"]["name"], {"status": {"phase": phase, "containerStatuses": [container]}})


def remove_pod(world: World, pod: Object) -> None:
    del world.objects[PODS, "default", pod["metadata"]["name"]]


def get_conditions(world: World) -> list[tuple[str, str]]:
    return [(entry["type"], entry["reason"]) for entry in world.get(JOBS, JOB)["status"].get("conditions", [])]


def test_each_index_gets_a_pod_with_its_rank_host_name_and_variable() -> None:
    world = make_world()
    pods = world.list(PODS)
    assert [find_index(pod) for pod in pods] == [0, 1]
    pod = pods[1]
    assert pod["metadata"]["name"].startswith("js-node-0-1-")
    assert pod["metadata"]["generateName"] == "js-node-0-1-"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == JOB
    assert pod["spec"]["hostname"] == "js-node-0-1"
    path = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    assert pod["spec"]["containers"][0]["env"] == [variable]
    status = world.get(JOBS, JOB)["status"]
    want = {"startTime": format_time(NOW), "active": 2, "terminating": 0, "uncountedTerminatedPods": {}, "ready": 0}
    assert status == want


def test_a_stale_view_would_make_pods_of_the_same_names() -> None:
    world = make_world()
    names = {pod["metadata"]["name"] for pod in world.list(PODS)}
    for pod in world.list(PODS):
        remove_pod(world, pod)
    world.run(CONTROLLER, JOB)
    assert {pod["metadata"]["name"] for pod in world.list(PODS)} == names


def test_a_second_pass_writes_nothing() -> None:
    world = make_world()
    assert world.run(CONTROLLER, JOB).all_writes == ()


def test_all_indexes_succeeded_means_complete() -> None:
    world = make_world()
    for pod in world.list(PODS):
        end_pod(world, pod, "Succeeded")
    plan = world.run(CONTROLLER, JOB)
    status = world.get(JOBS, JOB)["status"]
    assert get_conditions(world) == [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]
    assert (status["succeeded"], status["completedIndexes"], "active" in status) == (2, "0,1", False)
    assert status["completionTime"] == format_time(NOW)
    assert [note.reason for note in plan.notes] == ["Completed"]
    assert world.run(CONTROLLER, JOB).all_writes == ()


def test_a_success_counts_although_its_pod_is_gone() -> None:
    world = make_world()
    done = get_pods(world, 0)[0]
    end_pod(world, done, "Succeeded")
    world.run(CONTROLLER, JOB)
    remove_pod(world, done)
    end_pod(world, get_pods(world, 1)[0], "Succeeded")
    world.run(CONTROLLER, JOB)
    assert get_conditions(world)[-1] == ("Complete", "CompletionsReached")


def test_the_first_failure_ends_a_job_without_back_off_limit_and_stops_the_others() -> None:
    world = make_world()
    failed, other = world.list(PODS)
    end_pod(world, failed, "Failed")
    world.run(CONTROLLER, JOB)
    assert get_conditions(world) == [("FailureTarget", "BackoffLimitExceeded")]
    assert world.find(PODS, "default", other["metadata"]["name"]) is not None, "first the outcome is stored"
    world.run(CONTROLLER, JOB)
    assert world.find(PODS, "default", other["metadata"]["name"]) is None
    plan = world.run(CONTROLLER, JOB)
    assert get_conditions(world)[-1] == ("Failed", "BackoffLimitExceeded")
    assert [(note.reason, note.message, note.warning) for note in plan.notes] == [
        ("BackoffLimitExceeded", "Job has reached the specified backoff limit", True)
    ]


def test_failed_waits_until_the_stopped_pods_have_ended() -> None:
    world = make_world()
    failed, other = world.list(PODS)
    end_pod(world, failed, "Failed")
    world.run(CONTROLLER, JOB)
    world.merge(PODS, other["metadata"]["name"], {"metadata": {"deletionTimestamp": format_time(NOW)}})
    world.run(CONTROLLER, JOB)
    status = world.get(JOBS, JOB)["status"]
    assert get_conditions(world) == [("FailureTarget", "BackoffLimitExceeded")]
    assert (status["failed"], status["terminating"]) == (2, 1)


def test_a_replacement_waits_ten_seconds_and_has_a_new_name() -> None:
    world = make_world(backoffLimit=2)
    failed = get_pods(world, 0)[0]
    end_pod(world, failed, "Failed")
    plan = world.run(CONTROLLER, JOB, NOW + timedelta(seconds=4))
    assert plan.requeue_after == 6.0
    assert len(get_pods(world, 0)) == 1
    world.run(CONTROLLER, JOB, NOW + timedelta(seconds=10))
    names = {pod["metadata"]["name"] for pod in get_pods(world, 0)}
    assert len(names) == 2


def test_failures_stay_counted_when_their_pods_are_deleted_by_hand() -> None:
    world = make_world(backoffLimit=1, completions=1)
    first = get_pods(world, 0)[0]
    end_pod(world, first, "Failed")
    world.run(CONTROLLER, JOB, NOW + timedelta(seconds=10))
    remove_pod(world, first)
    second = get_pods(world, 0)[0]
    assert second["metadata"]["name"] != first["metadata"]["name"]
    end_pod(world, second, "Failed", seconds=20)
    world.run(CONTROLLER, JOB, NOW + timedelta(seconds=21))
    assert world.get(JOBS, JOB)["status"]["failed"] == 2
    assert get_conditions(world)[-1] == ("Failed", "BackoffLimitExceeded")


def test_restarts_in_place_count_against_the_limit() -> None:
    world = make_world(backoffLimit=2)
    world.merge(JOBS, JOB, {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})
    pod = world.list(PODS)[0]["metadata"]["name"]
    world.merge(PODS, pod, {"status": {"phase": "Running", "containerStatuses": [{"name": "n", "restartCount": 1}]}})
    world.run(CONTROLLER, JOB)
    assert get_conditions(world) == []
    world.merge(PODS, pod, {"status": {"containerStatuses": [{"name": "n", "restartCount": 2}]}})
    world.run(CONTROLLER, JOB)
    assert get_conditions(world)[0] == ("FailureTarget", "BackoffLimitExceeded")


def test_suspend_removes_the_pods_without_counting_them_and_resume_makes_new_ones() -> None:
    world = make_world()
    world.merge(JOBS, JOB, {"spec": {"suspend": True}})
    plan = CONTROLLER.reconcile(world, _request(), NOW, ())
    marks = [write for write in plan.writes if POD_UNCOUNTED in str(write)]
    assert len(marks) == 2
    world.carry_out(plan.all_writes)
    world.run(CONTROLLER, JOB)
    status = world.get(JOBS, JOB)["status"]
    assert world.list(PODS) == []
    assert ("failed" in status, "startTime" in status) == (False, False)
    assert get_conditions(world) == [("Suspended", "JobSuspended")]
    world.merge(JOBS, JOB, {"spec": {"suspend": False}})
    world.run(CONTROLLER, JOB)
    assert len(world.list(PODS)) == 2
    assert get_conditions(world) == [("Suspended", "JobResumed")]


def test_fewer_wanted_pods_means_the_highest_indexes_go() -> None:
    world = make_world(completions=3)
    world.merge(JOBS, JOB, {"spec": {"parallelism": 1}})
    world.run(CONTROLLER, JOB)
    assert [find_index(pod) for pod in world.list(PODS)] == [0]
    assert "failed" not in world.get(JOBS, JOB)["status"]


def test_a_policy_that_waits_for_the_end_keeps_the_index_taken() -> None:
    world = make_world(podReplacementPolicy="Failed", backoffLimit=3, completions=1)
    pod = world.list(PODS)[0]["metadata"]["name"]
    world.merge(PODS, pod, {"metadata": {"deletionTimestamp": format_time(NOW)}})
    world.run(CONTROLLER, JOB, NOW + timedelta(seconds=60))
    assert len(world.list(PODS)) == 1


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        pytest.param("", [], id="none"),
        pytest.param("0,1", [0, 1], id="two stay a pair"),
        pytest.param("0-2", [0, 1, 2], id="three become an interval"),
        pytest.param("0,2-4,7", [0, 2, 3, 4, 7], id="mixed"),
    ],
)
def test_indexes_are_written_as_upstream_does(text: str, indexes: list[int]) -> None:
    assert format_indexes(indexes) == text
    assert parse_indexes(text) == indexes


def test_a_long_job_name_is_cut_so_that_the_index_survives() -> None:
    prefix = build_prefix("x" * 63, 7)
    assert len(prefix) == 58
    assert prefix.endswith("-7-")


def _request() -> Request:
    return Request("default", JOB)
