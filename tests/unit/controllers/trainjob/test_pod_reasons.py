"""On a cluster a TrainJob says why its Pods do not run, and is resumed only when its old Pods are gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.controllers.world import NOW, World, make_runtime, make_trainjob
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, EVENTS, JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.ownership import build_owner_reference
from trainmaster.controllers.trainjob import pod_reasons
from trainmaster.controllers.trainjob.reconciler import build_controller
from trainmaster.engine.plan import Plan
from trainmaster.engine.request import Request
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit

CONTROLLER = build_controller(FrameworkContext(on_cluster=True, logs_as_messages=True))
REQUEST = Request("default", "tj")
IMAGE = {"waiting": {"reason": "ErrImageNeverPull", "message": "is not present"}}
RUNNING: Object = {"running": {}}


class Stage(World):
    def __init__(self) -> None:
        super().__init__()
        self.add(CLUSTER_TRAINING_RUNTIMES, make_runtime())
        self.add(TRAIN_JOBS, make_trainjob(name="tj"))
        self.look()
        jobset = self.add(JOB_SETS, {**self.get(JOB_SETS, "tj"), "status": {}})
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "tj",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
        }
        self.job = self._make(JOBS, "Job", "tj-node-0", jobset, {}, labels=labels)
        self._labels = labels

    def _make(self, gvr: GVR, kind: str, name: str, owner: Object, status: Object, **meta: Any) -> Object:
        head = {"name": name, "namespace": "default", "ownerReferences": [build_owner_reference(owner)], **meta}
        return self.add(gvr, {"apiVersion": "v1", "kind": kind, "metadata": head, "spec": {}, "status": status})

    def look(self) -> Plan:
        plan = CONTROLLER.reconcile(self, REQUEST, Now(NOW), ())
        self.carry_out(plan.all_writes)
        return plan

    def set_pod(self, name: str, state: Object, **meta: Any) -> Object:
        phase = "Running" if "running" in state else "Pending"
        status = {"phase": phase, "containerStatuses": [{"name": "node", "state": state}]}
        return self._make(PODS, "Pod", name, self.job, status, labels=self._labels, **meta)

    def refuse(self) -> Object:
        about = {"kind": "Job", "name": "tj-node-0", "uid": self.job["metadata"]["uid"]}
        return self.add(
            EVENTS,
            {
                "metadata": {"name": "tj-node-0.1", "namespace": "default"},
                "involvedObject": about,
                "reason": "FailedCreate",
                "message": 'Error creating: pods "x" is forbidden: violates PodSecurity',
                "lastTimestamp": "2026-01-01T00:00:00Z",
            },
        )

    @property
    def waiting(self) -> Object:
        found: Object = (self.get(TRAIN_JOBS, "tj").get("status") or {}).get("waiting") or {}
        return found


def test_the_reason_of_a_pod_appears_and_goes_with_one_event() -> None:
    stage = Stage()
    stage.set_pod("tj-node-0-0", IMAGE)
    plan = stage.look()
    assert (stage.waiting["reason"], stage.waiting["message"]) == (
        "ErrImageNeverPull",
        "Pod tj-node-0-0: container node: is not present",
    )
    assert [note.reason for note in plan.notes] == ["ErrImageNeverPull"]
    assert not stage.look().all_writes, "nothing has changed"
    stage.set_pod("tj-node-0-0", RUNNING)
    stage.look()
    assert stage.waiting == {}


def test_a_job_without_pods_says_why_the_server_refuses_them() -> None:
    stage = Stage()
    event = stage.refuse()
    assert list(pod_reasons.map_refusal(stage, event)) == [REQUEST]
    stage.look()
    want = 'job "tj-node-0": Error creating: pods "x" is forbidden: violates PodSecurity'
    assert (stage.waiting["reason"], stage.waiting["message"]) == ("FailedCreate", want)
    for rank in range(2):
        stage.set_pod(f"tj-node-0-{rank}", RUNNING)
    stage.look()
    assert stage.waiting == {}, "the event is old news when the Pods are there"


def test_only_pods_with_trouble_and_those_of_waiting_jobs_cause_a_pass() -> None:
    stage = Stage()
    assert list(pod_reasons.map_pod(stage, stage.set_pod("tj-node-0-0", RUNNING))) == []
    pod = stage.set_pod("tj-node-0-0", IMAGE)
    assert list(pod_reasons.map_pod(stage, pod)) == [REQUEST]
    stage.look()
    assert list(pod_reasons.map_pod(stage, stage.set_pod("tj-node-0-0", RUNNING))) == [REQUEST]


def test_a_job_is_resumed_only_when_its_old_pods_are_gone() -> None:
    stage = Stage()
    stage.merge(TRAIN_JOBS, "tj", {"spec": {"suspend": True}})
    stage.look()
    assert stage.get(JOB_SETS, "tj")["spec"]["suspend"] is True
    stage.set_pod("tj-node-0-0", RUNNING, deletionTimestamp="2026-01-01T00:00:30Z", deletionGracePeriodSeconds=30)
    stage.merge(TRAIN_JOBS, "tj", {"spec": {"suspend": False}})
    plan = stage.look()
    assert stage.get(JOB_SETS, "tj")["spec"]["suspend"] is True, "they have the same names and ranks"
    assert stage.waiting["reason"] == "LeftoverPod"
    assert [(note.reason, note.warning) for note in plan.notes] == [("LeftoverPod", False)]
    pod = stage.objects.pop((PODS, "default", "tj-node-0-0"))
    assert list(pod_reasons.map_pod(stage, pod)) == [REQUEST]
    stage.look()
    assert stage.get(JOB_SETS, "tj")["spec"]["suspend"] is False
    assert stage.waiting == {}


def test_containers_keep_the_end_of_their_log_unless_their_template_says_otherwise() -> None:
    stage = Stage()
    containers = [
        container
        for job in stage.get(JOB_SETS, "tj")["spec"]["replicatedJobs"]
        for container in job["template"]["spec"]["template"]["spec"]["containers"]
    ]
    assert {container["terminationMessagePolicy"] for container in containers} == {"FallbackToLogsOnError"}
