"""TrainJobs explained from what stands in their objects alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.world import NOW, World
from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.api.state_texts import WAITING
from trainmaster.controllers.explain.changes import compute_largest
from trainmaster.controllers.explain.reasons import JobExplanation, explain, list_waiting
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit


def make(name: str = "a", **parts: Any) -> Object:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", **parts.pop("metadata", {})}
    spec = {"runtimeRef": {"name": "none"}, **parts.pop("spec", {})}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec, **parts}


def make_jobset() -> Object:
    owner = {"kind": "TrainJob", "name": "a", "uid": "uid-a", "controller": True}
    meta = {"name": "a", "namespace": "default", "uid": "js", "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"replicatedJobs": []}}


def ask(*jobs: Object, name: str = "a") -> JobExplanation:
    world = World()
    for job in jobs:
        world.add(TRAIN_JOBS, job)
    found = explain(world, "default", name, Now(NOW))
    assert found is not None
    return found


def ago(seconds: float) -> str:
    return format_time(NOW - timedelta(seconds=seconds))


@pytest.mark.parametrize("reason", sorted(WAITING))
def test_every_reason_to_wait_comes_with_what_to_do(reason: str) -> None:
    waiting = {"reason": reason, "message": "something is not there", "since": ago(60)}
    found = ask(make(status={"waiting": waiting}))
    assert found.state == "Waiting"
    assert found.sentence == f"waits ({reason}): something is not there"
    assert found.unblock == (WAITING[reason].advice,)


def test_a_pause_before_a_restart_says_when_it_ends() -> None:
    until = format_time(NOW + timedelta(seconds=30))
    waiting = {"reason": "RestartBackOff", "message": "failed", "since": ago(2), "until": until}
    assert ask(make(status={"waiting": waiting})).unblock[0] == f"goes on by itself in 30s, at {until}"


def test_a_reason_of_another_version_is_still_told() -> None:
    found = ask(make(status={"waiting": {"reason": "Novel", "message": "something new"}}))
    assert (found.sentence, found.unblock) == ("waits (Novel): something new", ("read the message",))


def test_a_deleted_job_names_the_finalizer_that_keeps_it() -> None:
    meta = {"deletionTimestamp": ago(120), "finalizers": ["example.com/backup"]}
    found = ask(make(metadata=meta))
    assert found.state == "Deleting"
    assert "kept by example.com/backup" in found.sentence


def test_a_stalled_job_says_since_when_and_what_can_be_done() -> None:
    stalled = {"since": ago(7200), "position": "7", "message": "no step has come after step 7"}
    job = make(status={"stalled": stalled, "jobsStatus": [{"name": "node", "ready": 1, "active": 1}]})
    found = ask_running(job)
    assert (found.state, found.reason, found.since) == ("Running", "Stalled", ago(7200))
    assert (
        found.sentence
        == "has been running for 3h: 1 Pod runs, but stands still since 2h: no step has come after step 7"
    )
    assert any("trainmaster restart a" in line for line in found.unblock)


def ask_running(job: Object) -> JobExplanation:
    world = World()
    world.add(TRAIN_JOBS, job)
    world.add(JOB_SETS, make_jobset())
    marks = {labels.JOBSET_NAME: "a", labels.JOBSET_UID: "js", labels.REPLICATED_JOB_NAME: "node"}
    meta = {"name": "a-node-0-0", "namespace": "default", "labels": marks}
    status = {
        "phase": "Running",
        "startTime": ago(10_800),
        "containerStatuses": [{"name": "node", "state": {"running": {}}}],
    }
    world.add(PODS, {"metadata": meta, "spec": {"containers": [{"name": "node"}]}, "status": status})
    found = explain(world, "default", "a", Now(NOW))
    assert found is not None
    return found


def test_a_job_without_pods_points_to_the_doctor() -> None:
    found = ask(make())
    assert found.state == "Starting"
    assert "trainmaster doctor trainjob a -n default" in found.unblock[0]


def test_a_failed_job_is_told_how_to_go_on() -> None:
    condition = {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "lastTransitionTime": ago(5)}
    found = ask(make(status={"conditions": [condition]}))
    assert found.unblock[:2] == (
        "`trainmaster logs a -n default` shows what it printed",
        "`trainmaster restart a -n default` submits it again under a new name",
    )
    assert "--max-restarts" in found.unblock[2]


def make_failed(reason: str, message: str = "", **spec: Object) -> Object:
    condition = {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "lastTransitionTime": ago(5)}
    failure = {"rank": 1, "replicatedJob": "node", "exitCode": 137, "reason": reason, "message": message}
    job = make(status={"conditions": [condition], "failure": failure})
    job["spec"].update(spec)
    return job


def test_a_job_that_ran_out_of_memory_is_told_to_raise_it_and_not_to_try_again() -> None:
    resources = {"resourcesPerNode": {"limits": {"memory": "256Mi"}}}
    found = ask(make_failed("OOMKilled", trainer=resources))
    assert found.unblock[0].startswith("it used more memory than its limit of 256Mi: raise it with `run --memory`")
    assert "--max-restarts" not in " ".join(found.unblock)
    assert ask(make_failed("OOMKilled")).unblock[0].startswith("it used more memory than its limit: raise it")


def test_the_reason_of_a_failed_job_is_the_one_of_all_commands() -> None:
    trace = 'Traceback (most recent call last):\n  File "/workspace/code/a.py", line 3\nValueError: no'
    found = ask(make_failed("Error", trace))
    assert found.sentence.endswith("(ReachedMaxRestarts): rank 1: exit code 137: ValueError: no, at a.py:3")


def test_a_missing_module_is_suggested_as_a_package_only_if_the_job_does_not_bring_it() -> None:
    world, error = World(), "ModuleNotFoundError: No module named 'cv2'"
    world.add(TRAIN_JOBS, make_failed("Error", error))
    texts = {}
    for name, own in (("known", {"train"}), ("own", {"train", "cv2"}), ("unknown", None)):
        found = explain(world, "default", "a", Now(NOW), own=lambda job, own=own: own)  # type: ignore[misc]
        assert found is not None
        texts[name] = " ".join(found.unblock)
    assert "`run --package opencv-python` installs it" in texts["known"]
    assert "--package" not in texts["own"] + texts["unknown"]


def test_a_pod_that_lacks_something_makes_its_job_one_that_waits() -> None:
    world = World()
    world.add(TRAIN_JOBS, make())
    world.add(JOB_SETS, make_jobset())
    marks = {labels.JOBSET_NAME: "a", labels.JOBSET_UID: "js", labels.REPLICATED_JOB_NAME: "node"}
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "keys" not found'}
    status = {"phase": "Pending", "containerStatuses": [{"name": "node", "state": {"waiting": waiting}}]}
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "p", "labels": marks}, "spec": {}, "status": status}
    world.add(PODS, pod)
    assert list_waiting(world) == [("default", "trainjob/a")]
    found = explain(world, "default", "a", Now(NOW))
    assert found is not None
    assert found.sentence.endswith('CreateContainerConfigError: secret "keys" not found')
    assert found.unblock[0].startswith("create what is missing")


def test_a_deadline_that_was_missed_says_what_to_raise() -> None:
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "DeadlineExceeded",
        "message": "TrainJob exceeded its active deadline",
        "lastTransitionTime": ago(7200),
    }
    found = ask(make(status={"conditions": [condition]}))
    assert found.sentence == "failed 2h ago (DeadlineExceeded): TrainJob exceeded its active deadline"
    assert found.unblock[0] == "raise activeDeadlineSeconds and submit it again"


def test_those_that_wait_longest_come_first() -> None:
    world = World()
    for name, age in (("young", 5), ("old", 500)):
        world.add(TRAIN_JOBS, make(name, status={"waiting": {"reason": "Queued", "message": "", "since": ago(age)}}))
    world.add(TRAIN_JOBS, make("busy"))
    assert list_waiting(world) == [("default", "trainjob/old"), ("default", "trainjob/young")]
    assert list_waiting(world, "other") == []


def test_a_pod_without_a_node_on_a_cluster_makes_its_job_wait() -> None:
    world = World()
    world.add(TRAIN_JOBS, make())
    world.add(JOB_SETS, make_jobset())
    marks = {labels.JOBSET_NAME: "a", labels.JOBSET_UID: "js", labels.REPLICATED_JOB_NAME: "node"}
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
    pod = {"metadata": {"name": "a-0", "namespace": "default", "labels": marks}, "spec": {"containers": []}}
    world.add(PODS, {**pod, "status": {"phase": "Pending", "conditions": [condition]}})
    assert list_waiting(world) == [("default", "trainjob/a")]
    found = explain(world, "default", "a", Now(NOW))
    assert found is not None and found.sentence.endswith("Pod a-0: 0/3 nodes are available: 3 Insufficient cpu.")


@pytest.mark.parametrize(("limit", "edge"), [(0, 0), (1, 0), (1, 1), (7, 5), (100, 64), (100, 100)])
def test_the_largest_number_that_works_is_found(limit: int, edge: int) -> None:
    assert compute_largest(limit, lambda count: count <= edge) == min(limit, edge)


def make_pod(name: str, state: Object, **more: Any) -> Object:
    marks = {labels.JOBSET_NAME: "a", labels.JOBSET_UID: "js", labels.REPLICATED_JOB_NAME: "node"}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": marks, **more}
    status = {
        "phase": "Running",
        "startTime": ago(27),
        "containerStatuses": [{"name": "node", "restartCount": 1, **state}],
    }
    return {"metadata": meta, "spec": {}, "status": status}


def ask_about(job: Object, *pods: Object) -> str:
    world = World()
    world.add(TRAIN_JOBS, job)
    world.add(JOB_SETS, make_jobset())
    for pod in pods:
        world.add(PODS, pod)
    found = explain(world, "default", "a", Now(NOW))
    assert found is not None
    return found.sentence


STOPPING = {"deletionTimestamp": format_time(NOW + timedelta(seconds=20)), "deletionGracePeriodSeconds": 30}
RUNNING: Object = {"state": {"running": {}}}
CRASHED: Object = {"state": {"terminated": {"exitCode": 3}}}


def test_pods_that_crash_or_are_being_stopped_do_not_run() -> None:
    job = make(metadata={"creationTimestamp": ago(30)}, status={"jobsStatus": [{"name": "node", "active": 1}]})
    assert ask_about(job, make_pod("x", RUNNING), make_pod("y", RUNNING)) == "has been running for 27s: 2 Pods run"
    crashing = ask_about(job, make_pod("x", RUNNING), make_pod("y", CRASHED))
    assert "1 Pod runs; Pod y" in crashing and "exit code 3" in crashing
    stopping = ask_about(job, make_pod("x", RUNNING, **STOPPING))
    assert stopping == "has been starting for 30s: 1 Pod is still ending, for at most 20s"


def test_a_suspended_job_whose_pods_are_still_ending_says_so() -> None:
    condition = {"type": "Suspended", "status": "True", "lastTransitionTime": ago(5)}
    job = make(spec={"suspend": True}, status={"conditions": [condition]})
    assert ask_about(job) == "has been suspended for 5s: nothing of it runs"
    pods = [make_pod(name, RUNNING, **STOPPING) for name in ("x", "y")]
    assert ask_about(job, *pods) == "has been suspended for 5s: 2 Pods are still ending, for at most 20s"


def test_a_job_that_waits_for_its_old_pods_before_it_is_resumed_says_so() -> None:
    condition = {"type": "Suspended", "status": "True", "lastTransitionTime": ago(5)}
    waiting = {"reason": "LeftoverPod", "message": "a Pod is still ending", "since": ago(1)}
    job = make(spec={"suspend": False}, status={"conditions": [condition], "waiting": waiting})
    assert ask_about(job) == "waits (LeftoverPod): a Pod is still ending"
