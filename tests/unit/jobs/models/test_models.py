"""Models of objects: every predicate once, and nothing that the wire may leave out breaks one."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api.labels import (
    COMPLETION_INDEX,
    DERIVED,
    FIRST_ATTEMPT,
    JOBSET_NAME,
    MIRROR,
    REPLICATED_JOB_NAME,
    RESTART_ATTEMPT,
)
from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_fields, read_labels, read_text
from trainmaster.api.storage import DRIVER
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import (
    Pod,
    count_restarts,
    has_started,
    is_between_runs,
    is_running,
    read_last_terminated,
    read_running,
    read_terminated,
    read_waiting,
)
from trainmaster.jobs.models.quotas import ResourceQuota
from trainmaster.jobs.models.runtimes import TrainingRuntime
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.models.volumes import PersistentVolume, PersistentVolumeClaim

pytestmark = pytest.mark.unit

MODELS = (
    ObjectModel,
    TrainJob,
    JobSet,
    Job,
    Pod,
    TrainingRuntime,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    ObjectEvent,
    ResourceQuota,
)


def build(status: Object | None = None, spec: Object | None = None, **meta: Any) -> Object:
    return {"metadata": {"name": "one", "uid": "u1", **meta}, "spec": spec or {}, "status": status or {}}


def build_condition(kind: str, status: str = "True", **more: str) -> Object:
    return {"type": kind, "status": status, **more}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "raw",
    [
        {"metadata": {"name": "one", "uid": "u1"}},
        {
            "metadata": {"name": "one", "uid": "u1", "labels": None, "annotations": None, "ownerReferences": None},
            "spec": None,
            "status": None,
        },
        {
            "metadata": {"name": "one", "uid": "u1"},
            "spec": {"trainer": None, "network": None, "failurePolicy": None, "template": None, "containers": None},
            "status": {"conditions": None, "waiting": None, "jobsStatus": None, "containerStatuses": None},
        },
    ],
)
def test_what_is_absent_or_null_is_nothing(model: type[ObjectModel], raw: Object) -> None:
    one = model(raw)
    read = {name: getattr(one, name) for kind in model.__mro__ for name in vars(kind) if not name.startswith("_")}
    assert read["name"] == "one" and read["uid"] == "u1"
    assert not one.labels and not one.owners and not one.conditions and one.controller is None
    assert not one.is_true("Ready") and one.find_condition("Ready") is None and not one.is_owned_by("u2")


def test_ownership_is_by_uid_of_the_controller() -> None:
    owners = [{"uid": "friend", "name": "one"}, {"uid": "boss", "name": "one", "controller": True}]
    one = ObjectModel(build(ownerReferences=owners))
    assert one.is_owned_by("boss") and not one.is_owned_by("friend") and not one.is_owned_by("one")


def test_the_head_of_a_patch_names_one_version_of_one_object() -> None:
    assert ObjectModel(build(resourceVersion="7")).head == {"uid": "u1", "resourceVersion": "7"}


def test_the_end_of_a_trainjob_and_of_its_children() -> None:
    at = "2026-01-01T00:00:00Z"
    done = build({"conditions": [build_condition("Complete", lastTransitionTime=at)]})
    assert TrainJob(done).is_finished and TrainJob(done).end == ("Complete", at) and TrainJob(done).state.is_final
    over = build({"conditions": [build_condition("Completed")]})
    assert JobSet(over).is_finished and not Job(over).is_finished
    end = JobSet(over).end
    assert end is not None and end["type"] == "Completed"
    failing = build({"conditions": [build_condition("Failed", "False")]})
    assert not any(model(failing).is_finished for model in (TrainJob, JobSet, Job))


@pytest.mark.parametrize(
    ("status", "word", "sentence"),
    [
        ({}, "Starting", ""),
        ({"jobsStatus": [{"active": 1}]}, "Starting", "Pods are being started"),
        ({"jobsStatus": [{"ready": 1}]}, "Running", ""),
        (
            {"waiting": {"reason": "Queued", "message": 'job "a": waiting for a GPU'}},
            "Waiting",
            "Queued: waiting for a GPU",
        ),
        ({"conditions": [build_condition("Suspended")]}, "Suspended", ""),
        ({"conditions": [build_condition("Complete", reason="AllJobsCompleted", message="jobset")]}, "Complete", ""),
        (
            {
                "conditions": [build_condition("Failed", reason="FailedJobs", message="long")],
                "failure": {"rank": 1, "exitCode": 3, "message": "ValueError: broken"},
            },
            "Failed",
            "rank 1: exit code 3: ValueError: broken",
        ),
        (
            {
                "conditions": [build_condition("Failed", reason="DeadlineExceeded", message="too long")],
                "failure": {"rank": 1, "exitCode": 3},
            },
            "Failed",
            "DeadlineExceeded: too long",
        ),
    ],
)
def test_the_state_of_a_trainjob(status: Object, word: str, sentence: str) -> None:
    state = TrainJob(build(status)).state
    assert (state.word, state.sentence) == (word, sentence)
    assert TrainJob(build(status, deletionTimestamp="2026-01-01T00:00:00Z")).state.word == "Deleting"


def test_attempts_are_counted_over_all_jobsets_of_a_trainjob() -> None:
    jobset = JobSet(build({"restarts": 2}, {"failurePolicy": {"maxRestarts": 5}}, annotations={FIRST_ATTEMPT: "3"}))
    assert (jobset.restarts, jobset.first_attempt, jobset.attempt, jobset.max_restarts) == (2, 3, 5, 5)
    assert JobSet(build(annotations={FIRST_ATTEMPT: "many"})).attempt == 0


def test_a_runtime_is_of_a_namespace_or_of_the_cluster() -> None:
    reference = {"name": "torch", "kind": "TrainingRuntime"}
    assert TrainJob(build(spec={"runtimeRef": reference}, namespace="lab")).runtime_key == ("lab", "torch")
    assert TrainJob(build(spec={"runtimeRef": {"name": "torch"}}, namespace="lab")).runtime_key == ("", "torch")
    assert TrainingRuntime(build(labels={DERIVED: "true"})).is_derived and not TrainingRuntime(build()).is_derived


def test_an_empty_failure_policy_is_one() -> None:
    assert JobSet(build(spec={"failurePolicy": {}})).has_failure_policy and not JobSet(build()).has_failure_policy
    assert JobSet(build(spec={"failurePolicy": {"rules": [{"name": "r"}]}})).failure_rules == [{"name": "r"}]


def test_a_runtime_says_how_many_nodes_a_job_gets() -> None:
    assert TrainingRuntime(build(spec={"mlPolicy": {"numNodes": 2}})).nodes == 2
    assert TrainingRuntime(build()).nodes is None and TrainingRuntime(build()).max_restarts == 0


def test_a_pod_says_which_member_of_its_job_it_is() -> None:
    marks = {JOBSET_NAME: "one", REPLICATED_JOB_NAME: "node", RESTART_ATTEMPT: "2", COMPLETION_INDEX: "7"}
    pod = Pod(build({"phase": "Succeeded"}, labels=marks))
    assert (pod.jobset, pod.step, pod.attempt, pod.index, pod.is_over) == ("one", "node", 2, 7, True)
    waits = {"state": {"waiting": {"reason": "Queued"}}}
    assert read_waiting(waits)["reason"] == "Queued" and not read_running(waits) and not read_terminated({})
    assert not pod.unscheduled and Pod(build({"conditions": [build_condition("PodScheduled", "False")]})).unscheduled


def test_a_pod_says_how_far_it_is_and_why() -> None:
    pod = Pod(build({"phase": "Failed", "reason": "Evicted"}))
    assert (pod.phase, pod.reason, pod.is_running, pod.is_mirror) == ("Failed", "Evicted", False, False)
    assert Pod(build({"phase": "Running"})).is_running and Pod(build({"phase": None})).phase == "Pending"
    assert Pod(build(annotations={MIRROR: "apiserver"})).is_mirror
    again = {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 3}}}
    assert read_last_terminated(again) == {"exitCode": 3} and not read_terminated(again)
    assert is_running(again) and has_started(again) and not is_between_runs(again) and not has_started({})
    crashed = {**again, "state": {"waiting": {}}, "restartCount": 4}
    assert is_between_runs(crashed) and has_started(crashed) and not is_running(crashed)
    assert (count_restarts(crashed), count_restarts({"restartCount": None})) == (4, 0)


def test_the_states_of_containers_come_in_the_order_in_which_they_start() -> None:
    spec = {"initContainers": [{"name": "load"}], "containers": [{"name": "node"}, {"name": "side"}]}
    pod = Pod(build({"containerStatuses": [{"name": "side", "ready": True}], "initContainerStatuses": None}, spec))
    assert list(pod.list_states()) == [("load", {}), ("node", {}), ("side", {"name": "side", "ready": True})]


def test_a_job_says_how_many_pods_it_wants() -> None:
    job = Job(build(spec={"completionMode": "Indexed", "parallelism": 0, "completions": 3}))
    assert (job.is_indexed, job.parallelism, job.completions) == (True, 0, 3)
    assert (Job(build()).is_indexed, Job(build()).parallelism, Job(build()).completions) == (False, 1, None)


def test_a_pod_that_has_ended_or_is_about_to_go_is_not_active() -> None:
    assert Pod(build({"phase": "Running"})).is_active and not Pod(build({"phase": "Failed"})).is_active
    assert not Pod(build({"phase": "Running"}, deletionTimestamp="2026-01-01T00:00:00Z")).is_active


def test_a_node_says_whom_it_keeps_off() -> None:
    node = Node(build({"allocatable": {"cpu": "4"}}, {"unschedulable": True, "taints": [{"key": "one"}]}))
    assert node.is_cordoned and node.taints == [{"key": "one"}] and node.allocatable == {"cpu": "4"}
    assert not Node(build()).is_cordoned


def test_a_volume_and_its_claim_name_one_another() -> None:
    csi = {"driver": DRIVER, "volumeHandle": "here"}
    spec = {"claimRef": {"name": "data"}, "csi": csi, "storageClassName": "local"}
    volume = PersistentVolume(build({"phase": "Bound"}, spec))
    assert volume.claim["name"] == "data" and volume.is_ours and volume.phase == "Bound"
    assert volume.handle == "here" and not volume.is_deleted_with_object
    claim = PersistentVolumeClaim(build(None, {"volumeName": "one", "resources": {"requests": {"storage": "1Gi"}}}))
    assert (claim.volume, claim.requests, claim.phase) == ("one", {"storage": "1Gi"}, "")
    assert (claim.volume_mode, claim.storage_class, volume.storage_class) == ("Filesystem", "", "local")


def test_an_event_has_a_time_however_it_was_written() -> None:
    old = ObjectEvent({**build(), "firstTimestamp": "1", "lastTimestamp": "2", "count": 3, "type": "Warning"})
    assert (old.first_at, old.last_at, old.time, old.count, old.is_warning) == ("1", "2", "2", 3, True)
    new = ObjectEvent(
        {**build(), "lastTimestamp": None, "eventTime": "1", "series": {"lastObservedTime": "4", "count": 7}}
    )
    assert (new.first_at, new.last_at, new.count, new.type) == ("1", "4", 7, "Normal")
    assert ObjectEvent({**build(), "firstTimestamp": "1"}).time == "1"
    about = ObjectEvent(
        {**build(), "involvedObject": {"kind": "Pod", "name": "one-0"}, "source": {"component": "node"}}
    )
    assert (about.about, about.reporter, about.time) == ("Pod/one-0", "node", "")


def test_an_event_of_the_second_in_which_its_object_was_created_is_not_older() -> None:
    event = ObjectEvent({**build(), "eventTime": "2026-11-16T10:00:00.123456Z"})
    assert event.is_since("2026-11-16T10:00:00Z") and not event.is_since("2026-11-16T10:00:01Z")


def test_a_pod_says_whom_its_containers_run_as_and_where_they_are_found() -> None:
    pod = Pod(build(spec={"subdomain": "ring", "securityContext": {"runAsUser": 7}, "serviceAccountName": "me"}))
    assert (pod.subdomain, pod.service_account, pod.security_context) == ("ring", "me", {"runAsUser": 7})
    assert Pod(build(spec={"hostNetwork": True})).uses_host_network and not pod.uses_host_network
    assert Pod(build()).service_account == "default"


def test_a_quota_says_what_is_allowed_and_used() -> None:
    quota = ResourceQuota(build({"used": {"pods": "1"}}, {"hard": {"pods": "2"}}))
    assert (quota.hard, quota.used) == ({"pods": "2"}, {"pods": "1"})


def test_parts_are_read_by_their_path() -> None:
    obj = build(spec={"network": {"ports": [1]}, "hosts": None})
    assert read_fields(obj, "spec", "network") == {"ports": [1]} and read_fields(obj, "spec", "hosts", "more") == {}
    assert list_items(obj, "spec", "network", "ports") == [1] and list_items(obj, "spec", "hosts") == ()
    assert read_text(obj, "metadata", "name") == "one" and read_text(obj, "status", "reason") == ""
    assert read_fields(None, "spec") == {} and read_labels({}) == {}
