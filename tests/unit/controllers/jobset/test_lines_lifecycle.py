"""Conformance lines JI-31 to JI-54, JU-03 and JU-09: suspend, order, dependencies, TTL, other managers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson
import pytest

from tests.unit.controllers.jobset.stage import Stage, make_jobset, make_replicated
from tests.unit.controllers.world import NOW, World, make_trainjob
from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS, SERVICES, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.writes import Create, Delete, WriteRefusal
from trainmaster.controllers.jobset.reconciler import CONTROLLER
from trainmaster.controllers.jobset.sources import map_job
from trainmaster.controllers.jobset.ttl import map_trainjob
from trainmaster.engine.request import Request
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

ALL = ("js-a-0", "js-b-0", "js-b-1")
IN_ORDER = {"startupPolicyOrder": "InOrder"}
PROGRESS = ("True", "InOrderStartupPolicyInProgress")
COMPLETED = ("True", "InOrderStartupPolicyCompleted")


def depends(name: str, *on: tuple[str, str], replicas: int = 1) -> Object:
    return make_replicated(name, replicas, dependsOn=[{"name": other, "status": status} for other, status in on])


def rest(stage: Stage, *names: str) -> None:
    """What the Job controller does to a suspended Job."""
    for name in names:
        condition = {"type": "Suspended", "status": "True", "lastTransitionTime": format_time(stage.now)}
        status = {"conditions": [condition], "active": None, "ready": None, "startTime": None}
        stage.merge(JOBS, name, {"status": status})


def test_ji_31_created_suspended_all_jobs_exist_and_are_suspended() -> None:
    stage = Stage(make_jobset(suspend=True))
    assert stage.suspended == dict.fromkeys(ALL, True)
    assert stage.conditions == {"Suspended": ("True", "SuspendedJobs")}
    assert (stage.count("a"), stage.count("b")) == ({"suspended": 1}, {"suspended": 2})
    assert stage.notes == [("Normal", "SuspendedJobs", "jobset is suspended")]


def test_ji_32_resume_takes_over_what_changed_in_the_template_meanwhile() -> None:
    stage = Stage(make_jobset(make_replicated("a"), suspend=True))
    stage.merge(JOBS, "js-a-0", {"spec": {"template": {"metadata": {"labels": {"of-others": "x"}}}}})
    replicated = make_replicated("a")
    pod = replicated["template"]["spec"]["template"]
    pod["metadata"] = {"labels": {"l": "1"}, "annotations": {"n": "2"}}
    pod["spec"] |= {
        "nodeSelector": {"zone": "z"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "schedulingGates": [{"name": "example.com/gate"}],
    }
    stage.edit(replicatedJobs=[replicated])
    stage.play()
    assert "nodeSelector" not in stage.get(JOBS, "js-a-0")["spec"]["template"]["spec"]
    stage.edit(suspend=False)
    stage.play()
    assert stage.conditions == {"Suspended": ("False", "ResumeJobs")}
    template = stage.get(JOBS, "js-a-0")["spec"]["template"]
    assert template["metadata"]["labels"]["l"] == "1"
    assert template["metadata"]["labels"]["of-others"] == "x"
    assert template["metadata"]["annotations"]["n"] == "2"
    for key in ("nodeSelector", "tolerations", "schedulingGates"):
        assert template["spec"][key] == pod["spec"][key]
    stage.end("js-a-0")
    stage.play()
    assert stage.count("a") == {"succeeded": 1}


def test_a_job_whose_pods_still_run_takes_its_new_template_later_and_the_condition_says_so() -> None:
    stage = Stage(make_jobset(make_replicated("a")))
    stage.get_ready("js-a-0")
    stage.edit(suspend=True)
    stage.play()
    replicated = make_replicated("a")
    replicated["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "z"}
    stage.edit(suspend=False, replicatedJobs=[replicated])
    stage.play()
    assert stage.suspended == {"js-a-0": True}
    assert stage.conditions == {"Suspended": ("True", "SuspendedJobs")}
    rest(stage, "js-a-0")
    stage.play()
    assert stage.suspended == {"js-a-0": False}
    assert stage.get(JOBS, "js-a-0")["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "z"}
    assert stage.conditions == {"Suspended": ("False", "ResumeJobs")}


def test_ji_33_suspending_a_running_jobset_suspends_its_jobs_and_keeps_what_has_ended() -> None:
    stage = Stage()
    stage.end("js-a-0")
    stage.edit(suspend=True)
    stage.play()
    assert stage.suspended == {"js-a-0": False, "js-b-0": True, "js-b-1": True}
    assert stage.conditions == {"Suspended": ("True", "SuspendedJobs")}
    assert stage.count("a") == {"succeeded": 1}


def test_a_jobset_that_waits_for_a_name_hears_when_it_is_free() -> None:
    stage = Stage(make_jobset(make_replicated("a-b"), managedBy="acme.io/later"))
    foreign = stage.add(JOBS, {"metadata": {"name": "js-a-b-0", "namespace": "default"}, "spec": {}})
    assert list(map_job(stage, foreign)) == []
    stage.edit(managedBy=None)
    stage.play()
    assert stage.waiting["reason"] == "NameConflict"
    assert list(map_job(stage, foreign)) == [Request("default", "js")]
    del stage.objects[JOBS, "default", "js-a-b-0"]
    stage.play()
    assert list(map_job(stage, stage.get(JOBS, "js-a-b-0"))) == [Request("default", "js")]


def test_ji_37_the_counts_follow_the_jobs() -> None:
    stage = Stage()
    assert stage.count("b") == {}
    stage.get_ready("js-b-0")
    stage.play()
    assert stage.count("b") == {"ready": 1, "active": 1}
    stage.end("js-b-0")
    stage.play()
    assert stage.count("b") == {"succeeded": 1}
    assert [entry["name"] for entry in stage.status["replicatedJobsStatus"]] == ["b", "a"]


@pytest.mark.parametrize("order", ["InOrder", "AnyOrder"])
def test_ji_41_suspended_all_jobs_are_made_in_any_order(order: str) -> None:
    stage = Stage(make_jobset(suspend=True, startupPolicy={"startupPolicyOrder": order}))
    assert stage.suspended == dict.fromkeys(ALL, True)
    assert set(stage.conditions) == {"Suspended"}


def test_ji_42_any_order_resumes_all_at_once() -> None:
    stage = Stage(make_jobset(suspend=True, startupPolicy={"startupPolicyOrder": "AnyOrder"}))
    stage.edit(suspend=False)
    stage.play()
    assert stage.suspended == dict.fromkeys(ALL, False)


def test_ji_43_in_order_resumes_one_after_the_other() -> None:
    stage = Stage(make_jobset(suspend=True, startupPolicy=IN_ORDER))
    stage.edit(suspend=False)
    stage.play()
    assert stage.suspended == {"js-a-0": False, "js-b-0": True, "js-b-1": True}
    assert stage.conditions["StartupPolicyInProgress"] == PROGRESS
    assert stage.conditions["Suspended"][0] == "True"
    stage.get_ready("js-a-0")
    stage.play()
    assert stage.suspended == dict.fromkeys(ALL, False)
    stage.get_ready("js-b-0", "js-b-1")
    stage.play()
    assert stage.conditions["StartupPolicyInProgress"] == ("False", "InOrderStartupPolicyInProgress")
    assert stage.conditions["StartupPolicyCompleted"] == COMPLETED
    assert stage.conditions["Suspended"] == ("False", "ResumeJobs")


def test_ji_44_in_order_the_second_is_made_when_the_first_is_ready() -> None:
    stage = Stage(make_jobset(startupPolicy=IN_ORDER))
    assert stage.names == ["js-a-0"]
    stage.merge(JOBS, "js-a-0", {"status": {"active": 1}})
    stage.play()
    assert stage.names == ["js-a-0"]
    assert stage.conditions == {"StartupPolicyInProgress": PROGRESS}
    stage.get_ready("js-a-0")
    stage.play()
    assert stage.names == list(ALL)
    stage.get_ready(*ALL)
    stage.play()
    assert stage.conditions["StartupPolicyCompleted"] == COMPLETED
    assert [reason for _, reason, _ in stage.notes] == [
        "InOrderStartupPolicyInProgress",
        "InOrderStartupPolicyCompleted",
    ]


def test_ji_45_a_restart_runs_the_sequence_again() -> None:
    stage = Stage(make_jobset(startupPolicy=IN_ORDER, failurePolicy={"maxRestarts": 1}))
    stage.get_ready("js-a-0")
    stage.play()
    stage.get_ready("js-b-0", "js-b-1")
    stage.play()
    stage.fail("js-b-0")
    stage.play()
    assert stage.attempts == {"js-a-0": "1"}
    assert stage.conditions["StartupPolicyInProgress"] == PROGRESS
    assert stage.conditions["StartupPolicyCompleted"][0] == "False"
    stage.get_ready("js-a-0")
    stage.play()
    assert stage.attempts == dict.fromkeys(ALL, "1")


def test_ji_46_the_coordinator_is_named_on_all_jobs_and_pods() -> None:
    stage = Stage(make_jobset(coordinator={"replicatedJob": "a"}, network={"subdomain": "net"}))
    for job in stage.list(JOBS):
        for meta in (job["metadata"], job["spec"]["template"]["metadata"]):
            assert meta["labels"][labels.COORDINATOR] == meta["annotations"][labels.COORDINATOR] == "js-a-0-0.net"


def test_ju_03_all_keys_are_on_jobs_and_pods_and_one_only_where_single_jobs_restart() -> None:
    for action, want in (("RestartJob", True), ("RestartJobSet", False)):
        policy = {"maxRestarts": 1, "rules": [{"name": "r", "action": action}]}
        job = Stage(make_jobset(failurePolicy=policy)).get(JOBS, "js-b-1")
        marks = job["metadata"]["labels"]
        assert marks == job["metadata"]["annotations"] == job["spec"]["template"]["metadata"]["labels"]
        assert (labels.JOB_RESTART_ATTEMPT in marks) == want
        assert len(marks) == (13 if want else 12)


def test_ji_47_a_dependent_waits_until_the_other_is_ready() -> None:
    stage = Stage(make_jobset(make_replicated("a", 2), depends("b", ("a", "Ready"), replicas=2)))
    assert stage.names == ["js-a-0", "js-a-1"]
    stage.get_ready("js-a-0")
    stage.play()
    assert stage.names == ["js-a-0", "js-a-1"]
    stage.get_ready("js-a-1")
    stage.play()
    assert stage.names == ["js-a-0", "js-a-1", "js-b-0", "js-b-1"]


def test_ji_48_a_chain_of_complete_and_ready() -> None:
    stage = Stage(make_jobset(make_replicated("a"), depends("b", ("a", "Complete")), depends("c", ("b", "Ready"))))
    stage.get_ready("js-a-0")
    stage.play()
    assert stage.names == ["js-a-0"]
    stage.end("js-a-0")
    stage.play()
    assert stage.names == ["js-a-0", "js-b-0"]
    stage.get_ready("js-b-0")
    stage.play()
    assert stage.names == ["js-a-0", "js-b-0", "js-c-0"]


@pytest.mark.parametrize(
    ("second", "step"),
    [
        pytest.param("Complete", "end", id="JI-49 both complete"),
        pytest.param("Ready", "get_ready", id="JI-50 one complete and one ready"),
    ],
)
def test_two_dependencies_must_both_hold(second: str, step: str) -> None:
    node = depends("node", ("a", "Complete"), ("b", second))
    stage = Stage(make_jobset(make_replicated("a"), make_replicated("b"), node))
    stage.end("js-a-0")
    stage.play()
    assert stage.names == ["js-a-0", "js-b-0"]
    getattr(stage, step)("js-b-0")
    stage.play()
    assert stage.names == ["js-a-0", "js-b-0", "js-node-0"]


def test_ji_51_suspended_only_the_root_is_made_and_the_rest_follows_after_resume() -> None:
    stage = Stage(make_jobset(make_replicated("a"), depends("b", ("a", "Ready")), suspend=True))
    assert stage.suspended == {"js-a-0": True}
    stage.edit(suspend=False)
    stage.play()
    assert stage.suspended == {"js-a-0": False}
    stage.get_ready("js-a-0")
    stage.play()
    assert stage.suspended == {"js-a-0": False, "js-b-0": False}


def test_after_resume_a_dependent_waits_for_its_dependency_again() -> None:
    stage = Stage(make_jobset(make_replicated("a"), depends("b", ("a", "Ready"))))
    stage.get_ready("js-a-0")
    stage.play()
    stage.edit(suspend=True)
    stage.play()
    rest(stage, "js-a-0", "js-b-0")
    stage.edit(suspend=False)
    stage.play()
    assert stage.suspended == {"js-a-0": False, "js-b-0": True}
    stage.get_ready("js-a-0")
    stage.play()
    assert stage.suspended == {"js-a-0": False, "js-b-0": False}


@pytest.mark.parametrize("suspend", [False, True])
def test_ji_52_what_another_controller_manages_is_left_alone(suspend: bool) -> None:
    stage = Stage(make_jobset(managedBy="acme.io/x", suspend=suspend))
    stage.merge(JOB_SETS, "js", {"status": {"restarts": 7}})
    stage.play()
    assert (stage.names, stage.status) == ([], {"restarts": 7})
    own = Stage(make_jobset(managedBy="jobset.sigs.k8s.io/jobset-controller"))
    assert own.names == list(ALL)


def test_ji_53_the_ttl_takes_the_jobset_away_and_without_one_it_stays() -> None:
    stage = Stage(make_jobset(ttlSecondsAfterFinished=2), linger=True)
    stage.fail("js-a-0")
    assert stage.play().requeue_after == 2.0
    stage.now += timedelta(seconds=2)
    plan = stage.step()
    delete = plan.writes[-1]
    assert isinstance(delete, Delete)
    assert (delete.gvr, delete.propagation) == (JOB_SETS, "Foreground")
    assert "deletionTimestamp" in stage.jobset["metadata"]
    assert "deletionTimestamp" in stage.get(JOBS, "js-b-0")["metadata"]
    assert stage.play().all_writes == ()
    other = Stage(make_jobset())
    other.fail("js-a-0")
    assert other.wait(1_000_000).requeue_after is None


@pytest.mark.parametrize(
    ("ttl", "seconds", "want"),
    [
        pytest.param(None, 10, (False, None), id="JU-09 unset"),
        pytest.param(10, 4, (False, 6.0), id="JU-09 not yet"),
        pytest.param(10, 10, (True, None), id="JU-09 expired"),
        pytest.param(0, 0, (True, None), id="JU-09 at once"),
    ],
)
def test_ju_09_the_ttl_counts_from_the_stored_end(ttl: int | None, seconds: float, want: tuple[bool, Any]) -> None:
    stage = Stage(make_jobset(make_replicated("a"), ttlSecondsAfterFinished=60))
    stage.end("js-a-0")
    stage.play()
    stage.edit(ttlSecondsAfterFinished=ttl)
    stage.now += timedelta(seconds=seconds)
    revision = stage.jobset["metadata"]["resourceVersion"]
    plan = stage.step()
    deletes = [write for write in plan.writes if isinstance(write, Delete) and write.gvr == JOB_SETS]
    assert (bool(deletes), plan.requeue_after) == want
    assert all(delete.resource_version == revision for delete in deletes)


def test_the_ttl_waits_until_the_trainjob_has_noted_the_end() -> None:
    world = World()
    trainjob = world.add(TRAIN_JOBS, make_trainjob(name="js"))
    reference = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "js", "controller": True}
    jobset = make_jobset(make_replicated("a"), ttlSecondsAfterFinished=0)
    jobset["metadata"]["ownerReferences"] = [{**reference, "uid": trainjob["metadata"]["uid"]}]
    world.add(JOB_SETS, jobset)
    ended = {"type": "Completed", "status": "True", "reason": "r", "lastTransitionTime": format_time(NOW)}
    world.merge(JOB_SETS, "js", {"status": {"conditions": [ended]}})
    world.run(CONTROLLER, "js")
    assert world.run(CONTROLLER, "js").all_writes == ()
    assert list(map_trainjob(world, trainjob)) == []
    noted = world.merge(TRAIN_JOBS, "js", {"status": {"conditions": [{**ended, "type": "Complete"}]}})
    assert list(map_trainjob(world, noted)) == [Request("default", "js")]
    world.run(CONTROLLER, "js")
    assert world.find(JOB_SETS, "default", "js") is None


def test_jobs_get_the_ttl_of_their_template_when_nobody_makes_them_again() -> None:
    replicated = make_replicated("a", 2)
    replicated["template"]["spec"]["ttlSecondsAfterFinished"] = 7
    stage = Stage(make_jobset(replicated))
    stage.end("js-a-0")
    stage.play()
    assert "ttlSecondsAfterFinished" not in stage.get(JOBS, "js-a-0")["spec"]
    stage.end("js-a-1")
    stage.play()
    assert {job["spec"]["ttlSecondsAfterFinished"] for job in stage.list(JOBS)} == {7}


def test_ji_54_a_job_that_is_refused_is_an_event_for_each_attempt() -> None:
    stage = Stage()
    error = StatusError(422, "Invalid", "no completions")
    refusal = WriteRefusal(Create(JOBS, {"metadata": {"name": "js-a-0"}}), error)
    text = 'job "js-a-0" creation failed with error: no completions'
    for _ in range(2):
        plan = CONTROLLER.reconcile(stage, Request("default", "js"), Now(NOW), (refusal,))
        stage.carry_out(plan.all_writes)
        assert [(note.reason, note.message, note.warning) for note in plan.notes] == [("JobCreationFailed", text, True)]
    assert stage.waiting["message"] == text


@pytest.mark.parametrize(
    ("gvr", "want"), [(SERVICES, "HeadlessServiceCreationFailed"), (PERSISTENT_VOLUME_CLAIMS, "PVCCreationFailed")]
)
def test_a_service_or_claim_that_is_refused_is_said(gvr: Any, want: str) -> None:
    stage = Stage()
    refusal = WriteRefusal(Create(gvr, {"metadata": {"name": "x"}}), StatusError(403, "Forbidden", "quota"))
    plan = CONTROLLER.reconcile(stage, Request("default", "js"), Now(NOW), (refusal,))
    assert [(note.reason, note.message) for note in plan.notes] == [(want, "quota")]


def test_exclusive_placement_is_passed_on_and_what_it_means_here_is_said_once() -> None:
    stage = Stage(make_jobset(make_replicated("a", 2), annotations={labels.EXCLUSIVE_TOPOLOGY: "rack"}))
    for job in stage.list(JOBS):
        assert job["metadata"]["annotations"][labels.EXCLUSIVE_TOPOLOGY] == "rack"
        assert job["spec"]["template"]["metadata"]["annotations"][labels.EXCLUSIVE_TOPOLOGY] == "rack"
        assert labels.EXCLUSIVE_TOPOLOGY not in job["metadata"]["labels"]
    text = "there is one node, so all jobs share one value of rack"
    assert stage.notes == [("Warning", "ExclusivePlacementApproximated", text)]


def test_the_node_selector_strategy_selects_the_node_that_carries_the_job() -> None:
    given = {labels.EXCLUSIVE_TOPOLOGY: "rack", labels.NODE_SELECTOR_STRATEGY: "true"}
    stage = Stage(make_jobset(make_replicated("a"), annotations=given))
    pod = stage.get(JOBS, "js-a-0")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {labels.NAMESPACED_JOB: "default_js-a-0"}
    assert pod["tolerations"] == [{"key": labels.NO_SCHEDULE_TAINT, "operator": "Exists", "effect": "NoSchedule"}]


def test_why_a_job_waits_is_said_on_the_jobset_until_it_does_not() -> None:
    stage = Stage(make_jobset(make_replicated("a")))
    reason = orjson.dumps({"reason": "NoAccount", "message": "no such account", "since": format_time(NOW)}).decode()
    stage.merge(JOBS, "js-a-0", {"metadata": {"annotations": {labels.WAITING: reason}}})
    stage.play()
    assert (stage.waiting["reason"], stage.waiting["message"]) == (
        "NoAccount",
        'job "js-a-0": no such account',
    )
    stage.merge(JOBS, "js-a-0", {"metadata": {"annotations": {labels.WAITING: None}}})
    stage.play()
    assert labels.WAITING not in stage.jobset["metadata"]["annotations"]
