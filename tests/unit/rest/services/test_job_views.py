"""A job as /api/v1 tells it."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.labels import COMPLETION_INDEX, JOBSET_UID, REPLICATED_JOB_NAME
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.rest.services.job_reader import describe_ended
from trainmaster.rest.services.job_views import JobFacts, build_change, build_detail, build_listed, build_summary
from trainmaster.rest.services.live.job_events import build_event

pytestmark = pytest.mark.unit

JOB: dict[str, Any] = {
    "metadata": {"name": "volly", "namespace": "ann", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"runtimeRef": {"name": "pytorch-simple"}, "trainer": {"numNodes": 2}},
    "status": {"jobsStatus": [{"name": "node", "active": 2}]},
}
MISSING = {"reason": "ContainerCreating", "message": 'persistentvolumeclaim "data" not found'}


def build_pod(index: int, waiting: dict[str, str]) -> Pod:
    labels = {JOBSET_UID: "s1", REPLICATED_JOB_NAME: "node", COMPLETION_INDEX: str(index)}
    status = {"phase": "Pending", "containerStatuses": [{"restartCount": 0, "state": {"waiting": waiting}}]}
    return Pod({"metadata": {"name": f"volly-{index}", "labels": labels}, "spec": {}, "status": status})


def test_a_job_that_cannot_start_says_what_its_worker_lacks() -> None:
    pods = [build_pod(0, {"reason": "ContainerCreating"}), build_pod(1, MISSING)]
    told = build_detail(JobFacts(TrainJob(JOB), pods=pods))
    assert (told["state"], told["reason"]) == ("Pending", "Starting")
    assert told["message"] == 'worker 1: ContainerCreating: persistentvolumeclaim "data" not found'


def test_a_job_whose_workers_say_nothing_is_starting() -> None:
    told = build_detail(JobFacts(TrainJob(JOB), pods=[build_pod(0, {"reason": "ContainerCreating"})]))
    assert told["message"] == "Pods are being started"


def test_a_running_worker_has_not_the_exit_code_of_its_init_container() -> None:
    pod = build_pod(0, {})
    done = {"exitCode": 0, "reason": "Completed", "startedAt": "2026-01-01T00:00:00Z"}
    running = {"running": {"startedAt": "2026-01-01T00:00:05Z"}}
    init = [{"name": "init-pytorch", "restartCount": 1, "state": {"terminated": done}}]
    status = {"phase": "Running", "initContainerStatuses": init, "containerStatuses": [{"state": running}]}
    told = build_detail(JobFacts(TrainJob(JOB), pods=[Pod({**pod.raw, "status": status})]))["workers"][0]
    assert (told["exit_code"], told["reason"], told["restarts"]) == (None, None, 1)
    assert told["started_at"] == "2026-01-01T00:00:05Z"
    init[0]["state"] = {"terminated": {**done, "exitCode": 1, "reason": "Error"}}
    status = {"phase": "Pending", "initContainerStatuses": init}
    told = build_detail(JobFacts(TrainJob(JOB), pods=[Pod({**pod.raw, "status": status})]))["workers"][0]
    assert (told["exit_code"], told["reason"]) == (1, "Error")


def test_both_apis_say_the_same_of_an_end_without_a_time() -> None:
    job = TrainJob({**JOB, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    ended = describe_ended(job)
    assert ended is not None and ended.completed_at == build_summary(job)["completed_at"] == job.created_at


def test_an_event_has_the_time_and_the_count_of_its_series() -> None:
    series = {"count": 5, "lastObservedTime": "2026-01-01T00:09:00.000000Z"}
    event = ObjectEvent({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "series": series})
    told = build_event(event)
    assert (told["count"], told["time"]) == (5, series["lastObservedTime"])


def test_a_listed_job_says_what_it_asks_for_as_far_as_it_says_so_itself() -> None:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}
    override = {"targetJobs": [{"name": "node"}], "spec": {"priorityClassName": "urgent"}}
    spec = {
        **JOB["spec"],
        "trainer": {"numNodes": 2, "resourcesPerNode": resources},
        "podTemplateOverrides": [override],
    }
    listed = build_listed(TrainJob({**JOB, "spec": spec}))
    assert listed["requests"] == {"cpu": 1.0, "memory": 2.0 * 2**30, "nvidia.com/gpu": 2.0}
    assert listed["priority"] == "urgent"
    bare = build_listed(TrainJob(JOB))
    assert (bare["requests"], bare["priority"], bare["rerun_of"]) == (None, None, None)


def test_a_change_is_applied_only_if_nothing_else_is_needed() -> None:
    change = {"text": "with 1 node", "how": "delete it", "patch": {"spec": {}}, "kind": "nodes", "loss": 0.5}
    assert build_change({**change, "is_enough": True})["patch"] == {"spec": {}}
    assert build_change({**change, "is_enough": False})["patch"] is None
    assert build_change({**change, "patch": {}, "is_enough": True})["patch"] is None
