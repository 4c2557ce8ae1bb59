"""JobSet: its Service and Jobs, restarts of the gang, success, suspend, and what it refuses."""

from __future__ import annotations

from datetime import timedelta

import orjson
import pytest

from tests.unit.controllers.world import NOW, World, make_job, make_jobset
from trainmaster.api.labels import RESTART_SERIES, WAITING
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, SERVICES
from trainmaster.api.status import StatusError
from trainmaster.client.writes import Create, Delete, WriteRefusal
from trainmaster.controllers.jobset.reconciler import CONTROLLER
from trainmaster.controllers.jobset.sources import map_service
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit


def make_world(**jobset: object) -> World:
    world = World()
    world.add(JOB_SETS, make_jobset(**jobset))  # type: ignore[arg-type]  # keyword arguments pass through
    world.run(CONTROLLER, "js")
    return world


def end_job(world: World, name: str, kind: str, seconds: float = 0) -> None:
    moment = format_time(NOW + timedelta(seconds=seconds))
    condition = {"type": kind, "status": "True", "reason": "r", "message": "m", "lastTransitionTime": moment}
    world.merge(JOBS, name, {"status": {"conditions": [condition], "startTime": moment}})


def get_conditions(world: World) -> list[tuple[str, str, str]]:
    conditions = world.get(JOB_SETS, "js")["status"].get("conditions", [])
    return [(entry["type"], entry["status"], entry["reason"]) for entry in conditions]


def finish_restart(world: World, now: object = NOW) -> Object:
    """The pass that deletes the previous Job, then the one that makes the new one."""
    world.run(CONTROLLER, "js")
    world.run(CONTROLLER, "js")
    return world.get(JOBS, "js-node-0")


def test_a_headless_service_and_labelled_jobs_are_made() -> None:
    world = make_world()
    service = world.get(SERVICES, "js")
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": {"jobset.sigs.k8s.io/jobset-name": "js"},
        "publishNotReadyAddresses": True,
    }
    job = world.get(JOBS, "js-node-0")
    uid = world.get(JOB_SETS, "js")["metadata"]["uid"]
    want = {
        "jobset.sigs.k8s.io/global-replicas": "1",
        "jobset.sigs.k8s.io/group-name": "default",
        "jobset.sigs.k8s.io/group-replicas": "1",
        "jobset.sigs.k8s.io/job-global-index": "0",
        "jobset.sigs.k8s.io/job-group-index": "0",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/job-key": job["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"],
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/jobset-uid": uid,
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
        "jobset.sigs.k8s.io/restart-attempt": "0",
    }
    template = job["spec"]["template"]
    assert job["metadata"]["labels"] == job["metadata"]["annotations"] == want
    assert template["metadata"] == {"labels": want, "annotations": want}
    assert template["spec"]["subdomain"] == "js"
    assert job["spec"]["suspend"] is False


def test_the_job_key_is_the_hash_that_upstream_recorded() -> None:
    world = World()
    world.add(JOB_SETS, make_jobset(name="a-torch"))
    world.run(CONTROLLER, "a-torch")
    key = world.get(JOBS, "a-torch-node-0")["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"]
    assert key == "345178fee8d12347a9561950529eed1e2df18a6f"


def test_a_second_pass_writes_nothing() -> None:
    world = make_world(replicas=3)
    world.run(CONTROLLER, "js")
    assert world.run(CONTROLLER, "js").all_writes == ()


def test_all_jobs_complete_means_completed() -> None:
    world = make_world(replicas=2)
    end_job(world, "js-node-0", "Complete")
    world.run(CONTROLLER, "js")
    assert get_conditions(world) == []
    end_job(world, "js-node-1", "Complete")
    plan = world.run(CONTROLLER, "js")
    status = world.get(JOB_SETS, "js")["status"]
    assert get_conditions(world) == [("Completed", "True", "AllJobsCompleted")]
    assert status["conditions"][0]["message"] == "jobset completed successfully"
    assert (status["terminalState"], status["restarts"]) == ("Completed", 0)
    assert [note.reason for note in plan.notes] == ["AllJobsCompleted"]


def test_any_job_of_the_targets_is_enough_when_the_policy_says_so() -> None:
    world = make_world(replicas=2, successPolicy={"operator": "Any"})
    end_job(world, "js-node-1", "Complete")
    plan = world.run(CONTROLLER, "js")
    assert get_conditions(world) == [("Completed", "True", "AllJobsCompleted")]
    assert plan.writes == ()
    assert [write for write in world.run(CONTROLLER, "js").writes if isinstance(write, Delete)] != []


def test_without_a_failure_policy_the_first_failure_is_the_end() -> None:
    world = make_world()
    end_job(world, "js-node-0", "Failed")
    world.run(CONTROLLER, "js")
    condition = world.get(JOB_SETS, "js")["status"]["conditions"][0]
    assert condition["reason"] == "FailedJobs"
    assert condition["message"] == "jobset failed due to one or more job failures (first failed job: js-node-0)"


def test_the_gang_restarts_as_often_as_allowed_and_then_fails() -> None:
    world = make_world(failurePolicy={"maxRestarts": 1})
    first = world.get(JOBS, "js-node-0")
    end_job(world, "js-node-0", "Failed")
    plan = world.run(CONTROLLER, "js")
    assert plan.writes == ()
    assert [note.reason for note in plan.notes] == ["DefaultFailurePolicy", "RestartJobSetFailurePolicyAction"]
    assert get_conditions(world) == [("RestartingJobSet", "True", "DefaultFailurePolicy")]
    second = finish_restart(world)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "1"
    world.merge(JOBS, "js-node-0", {"status": {"ready": 2, "active": 2}})
    world.run(CONTROLLER, "js")
    assert get_conditions(world) == [("RestartingJobSet", "False", "JobsReady")]
    end_job(world, "js-node-0", "Failed")
    world.run(CONTROLLER, "js")
    status = world.get(JOB_SETS, "js")["status"]
    assert get_conditions(world) == [
        ("RestartingJobSet", "False", "JobSetFailed"),
        ("Failed", "True", "ReachedMaxRestarts"),
    ]
    assert status["conditions"][1]["message"] == (
        "jobset failed due to reaching max number of restarts (first failed job: js-node-0)"
    )
    assert (status["restarts"], status["restartsCountTowardsMax"], status["terminalState"]) == (1, 1, "Failed")


def test_the_second_restart_waits_a_second_and_says_so() -> None:
    world = make_world(failurePolicy={"maxRestarts": 6})
    end_job(world, "js-node-0", "Failed")
    world.run(CONTROLLER, "js")
    finish_restart(world)
    end_job(world, "js-node-0", "Failed")
    plan = world.run(CONTROLLER, "js")
    assert plan.requeue_after == 1.0
    waiting = orjson.loads(world.get(JOB_SETS, "js")["metadata"]["annotations"][WAITING])
    assert (waiting["reason"], waiting["message"].split(" follows")[0]) == ("RestartBackOff", "restart 2 of 6")
    world.run(CONTROLLER, "js", NOW + timedelta(seconds=1))
    assert world.get(JOB_SETS, "js")["status"]["restarts"] == 2


def test_an_attempt_that_made_progress_restarts_at_once() -> None:
    world = make_world(failurePolicy={"maxRestarts": 6})
    end_job(world, "js-node-0", "Failed")
    world.run(CONTROLLER, "js")
    finish_restart(world)
    later = NOW + timedelta(seconds=601)
    end_job(world, "js-node-0", "Failed", 601)
    world.merge(JOBS, "js-node-0", {"status": {"startTime": format_time(NOW)}})
    world.run(CONTROLLER, "js", later)
    assert world.get(JOB_SETS, "js")["metadata"]["annotations"][RESTART_SERIES] == "1"
    world.run(CONTROLLER, "js", later)
    assert world.get(JOB_SETS, "js")["status"]["restarts"] == 2


def test_a_name_that_an_old_job_still_holds_waits_for_it() -> None:
    world = make_world(failurePolicy={"maxRestarts": 1})
    end_job(world, "js-node-0", "Failed")
    world.run(CONTROLLER, "js")
    world.merge(JOBS, "js-node-0", {"metadata": {"deletionTimestamp": format_time(NOW)}})
    assert world.run(CONTROLLER, "js").writes == ()


def test_suspend_reaches_the_jobs_and_resume_too() -> None:
    world = make_world()
    world.merge(JOB_SETS, "js", {"spec": {"suspend": True}})
    world.run(CONTROLLER, "js")
    assert world.get(JOBS, "js-node-0")["spec"]["suspend"] is True
    assert get_conditions(world) == [("Suspended", "True", "SuspendedJobs")]
    world.merge(JOB_SETS, "js", {"spec": {"suspend": False}})
    world.run(CONTROLLER, "js")
    assert world.get(JOBS, "js-node-0")["spec"]["suspend"] is False
    assert get_conditions(world) == [("Suspended", "False", "ResumeJobs")]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"failurePolicy": {"restartStrategy": "InPlaceRestart"}}, "InPlaceRestart", id="in place"),
        pytest.param({"fromTheFuture": 0}, "spec.fromTheFuture", id="a zero asks for something"),
    ],
)
def test_what_is_not_carried_out_is_refused_by_name_once(spec: dict[str, object], want: str) -> None:
    world = make_world(**spec)
    waiting = orjson.loads(world.get(JOB_SETS, "js")["metadata"]["annotations"][WAITING])
    assert waiting["reason"] == "Unsupported"
    assert want in waiting["message"]
    assert world.list(JOBS) == []
    assert world.run(CONTROLLER, "js").all_writes == ()


def test_a_refused_job_is_said_and_the_reason_goes_once_it_is_accepted() -> None:
    world = World()
    world.add(JOB_SETS, make_jobset())
    refusal = WriteRefusal(Create(JOBS, {"metadata": {"name": "js-node-0"}}), StatusError(403, "Forbidden", "quota"))
    plan = CONTROLLER.reconcile(world, Request("default", "js"), Now(NOW), (refusal,))
    world.carry_out(plan.all_writes)
    text = 'job "js-node-0" creation failed with error: quota'
    assert [(note.reason, note.message) for note in plan.notes] == [("JobCreationFailed", text)]
    world.run(CONTROLLER, "js")
    assert WAITING not in world.get(JOB_SETS, "js")["metadata"]["annotations"]
    assert world.find(JOBS, "default", "js-node-0") is not None


def test_the_counts_follow_the_jobs_while_a_foreign_job_stands_in_the_way() -> None:
    """Found by the simulation: a JobSet that waited for a name said for ever what its Jobs had been before."""
    world = World()
    world.add(JOB_SETS, make_jobset())
    world.add(JOBS, {"metadata": {"name": "js-node-0", "namespace": "default"}, "spec": {}})
    world.run(CONTROLLER, "js")
    world.run(CONTROLLER, "js")
    counts = world.get(JOB_SETS, "js")["status"]["replicatedJobsStatus"]
    assert [entry["name"] for entry in counts] == ["node"]
    assert world.run(CONTROLLER, "js").all_writes == ()


def test_what_is_there_is_suspended_and_resumed_while_a_foreign_job_stands_in_the_way() -> None:
    world = make_world(replicas=2)
    del world.objects[JOBS, "default", "js-node-1"]
    world.add(JOBS, make_job(name="js-node-1"))
    for suspended, condition in ((True, "SuspendedJobs"), (False, "ResumeJobs")):
        world.merge(JOB_SETS, "js", {"spec": {"suspend": suspended}})
        world.run(CONTROLLER, "js")
        world.run(CONTROLLER, "js")
        assert world.get(JOBS, "js-node-0")["spec"]["suspend"] is suspended
        assert "suspend" not in world.get(JOBS, "js-node-1")["spec"], "it is somebody else's"
        assert [reason for _, _, reason in get_conditions(world)] == [condition]
        assert orjson.loads(world.get(JOB_SETS, "js")["metadata"]["annotations"][WAITING])["reason"] == "NameConflict"
        assert world.run(CONTROLLER, "js").all_writes == ()


@pytest.mark.parametrize(
    ("restarts", "want"), [(0, None), (1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (90, 60.0)]
)
def test_each_restart_waits_twice_as_long_as_the_one_before_up_to_a_minute(restarts: int, want: float | None) -> None:
    world = make_world(failurePolicy={"maxRestarts": 100})
    world.merge(JOB_SETS, "js", {"status": {"restarts": restarts, "restartsCountTowardsMax": restarts}})
    world.merge(JOBS, "js-node-0", {"metadata": {"labels": {"jobset.sigs.k8s.io/restart-attempt": str(restarts)}}})
    end_job(world, "js-node-0", "Failed")
    assert world.run(CONTROLLER, "js").requeue_after == want
    expected = restarts if want else restarts + 1
    assert world.get(JOB_SETS, "js")["status"]["restarts"] == expected


def test_a_foreign_service_that_goes_wakes_the_jobset_of_its_name() -> None:
    """Found by the simulation: the JobSet went on without a Service until somebody started the server anew."""
    world = World()
    world.add(JOB_SETS, make_jobset())
    foreign = {"metadata": {"name": "js", "namespace": "default"}}
    other = {"metadata": {"name": "other", "namespace": "default"}}
    assert list(map_service(world, foreign)) == [Request("default", "js")]
    assert list(map_service(world, other)) == []


def test_a_foreign_job_of_the_same_name_is_left_alone_and_said() -> None:
    world = World()
    world.add(JOB_SETS, make_jobset())
    world.add(JOBS, {"metadata": {"name": "js-node-0", "namespace": "default"}, "spec": {}})
    world.run(CONTROLLER, "js")
    assert orjson.loads(world.get(JOB_SETS, "js")["metadata"]["annotations"][WAITING])["reason"] == "NameConflict"
