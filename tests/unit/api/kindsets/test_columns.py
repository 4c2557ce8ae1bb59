"""What `kubectl get` shows of each kind, compared with what a kube-apiserver 1.36 sends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainmaster.api.declaring.catalogue import build
from trainmaster.api.meta import Object
from trainmaster.kit.clock import format_time

pytestmark = pytest.mark.unit

CREATED = "2026-11-15T12:40:21Z"
NOW = 1794746421.0 + 900


def cells_of(obj: Object) -> dict[str, Any]:
    kind = build().find_type(obj["apiVersion"], obj["kind"])
    assert kind is not None
    obj["metadata"] = {"name": "x", "creationTimestamp": CREATED} | obj.get("metadata", {})
    return {column.name: column.cell(obj, NOW) for column in kind.columns}


def make_pod(status: Object, *, metadata: Object | None = None, **spec: Any) -> Object:
    spec = {"containers": [{"name": "c"}]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata or {}, "spec": spec, "status": status}


def container(state: Object, **more: Any) -> Object:
    return {"name": "c", "state": state, "restartCount": 0, "ready": False} | more


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (make_pod({"phase": "Pending"}), ("0/1", "Pending", "0")),
        (
            make_pod({"phase": "Running", "containerStatuses": [container({"running": {}}, ready=True)]}),
            ("1/1", "Running", "0"),
        ),
        (
            make_pod(
                {"phase": "Pending", "containerStatuses": [container({"waiting": {"reason": "ContainerCreating"}})]}
            ),
            ("0/1", "ContainerCreating", "0"),
        ),
        (
            make_pod(
                {
                    "phase": "Succeeded",
                    "containerStatuses": [container({"terminated": {"exitCode": 0, "reason": "Completed"}})],
                }
            ),
            ("0/1", "Completed", "0"),
        ),
        (
            make_pod({"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 3}})]}),
            ("0/1", "ExitCode:3", "0"),
        ),
        (
            make_pod(
                {"phase": "Failed", "containerStatuses": [container({"terminated": {"signal": 9, "exitCode": 137}})]}
            ),
            ("0/1", "Signal:9", "0"),
        ),
        (
            make_pod(
                {
                    "phase": "Running",
                    "containerStatuses": [
                        container(
                            {"running": {}},
                            ready=True,
                            restartCount=2,
                            lastState={"terminated": {"finishedAt": "2026-11-15T12:50:21Z"}},
                        )
                    ],
                }
            ),
            ("1/1", "Running", "2 (5m ago)"),
        ),
        (
            make_pod(
                {"phase": "Pending", "initContainerStatuses": [container({"running": {}})]},
                initContainers=[{"name": "i"}, {"name": "j"}],
            ),
            ("0/1", "Init:0/2", "0"),
        ),
        (
            make_pod(
                {
                    "phase": "Failed",
                    "initContainerStatuses": [container({"terminated": {"exitCode": 1, "reason": "Error"}})],
                },
                initContainers=[{"name": "c"}],
            ),
            ("0/1", "Init:Error", "0"),
        ),
        (make_pod({"phase": "Failed", "reason": "Evicted"}), ("0/1", "Evicted", "0")),
        (make_pod({"phase": "Running"}, metadata={"deletionTimestamp": CREATED}), ("0/1", "Terminating", "0")),
        (
            make_pod(
                {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            ),
            ("0/1", "SchedulingGated", "0"),
        ),
    ],
)
def test_a_pod_is_summed_up_in_one_word(pod: Object, want: tuple[str, str, str]) -> None:
    shown = cells_of(pod)
    assert (shown["Ready"], shown["Status"], shown["Restarts"]) == want
    assert (shown["Age"], shown["IP"], shown["Node"]) == ("15m", "<none>", "<none>")


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({"active": 1, "startTime": CREATED}, ("Running", "0/3", "15m")),
        ({}, ("Running", "0/3", "")),
        (
            {
                "succeeded": 3,
                "startTime": CREATED,
                "completionTime": "2026-11-15T12:41:00Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
            ("Complete", "3/3", "39s"),
        ),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, ("Failed", "0/3", "")),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, ("Suspended", "0/3", "")),
    ],
)
def test_a_job_shows_how_far_it_is(status: Object, want: tuple[str, str, str]) -> None:
    shown = cells_of({"apiVersion": "batch/v1", "kind": "Job", "spec": {"completions": 3}, "status": status})
    assert (shown["Status"], shown["Completions"], shown["Duration"]) == want


def test_a_trainjob_shows_its_last_condition_then_what_is_ours() -> None:
    conditions = [{"type": "Suspended", "status": "False"}, {"type": "Complete", "status": "True"}]
    job: Object = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    job |= {"spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}}, "status": {"conditions": conditions}}
    want = {"Name": "x", "State": "Complete", "Age": "15m", "Waiting": None, "Progress": None, "ETA": None}
    assert cells_of(job) == {**want, "Runtime": "torch", "Nodes": 2}
    assert list(cells_of(job))[:3] == ["Name", "State", "Age"]


@pytest.mark.parametrize(
    ("report", "conditions", "want"),
    [
        pytest.param({"progressPercentage": 42, "estimatedRemainingSeconds": 150}, [], ("42%", "2m"), id="it runs"),
        pytest.param({"progressPercentage": 0, "estimatedRemainingSeconds": 20}, [], ("0%", "0s"), id="it is late"),
        pytest.param({"metrics": [{"name": "a", "value": "1"}]}, [], (None, None), id="only metrics"),
        pytest.param(
            {"progressPercentage": 42, "estimatedRemainingSeconds": 150}, ["Failed"], ("42%", None), id="over"
        ),
        pytest.param(
            {"progressPercentage": 7, "estimatedRemainingSeconds": 9}, ["Suspended"], ("7%", None), id="rests"
        ),
    ],
)
def test_a_trainjob_shows_what_its_program_reports(
    report: Object, conditions: list[str], want: tuple[Any, Any]
) -> None:
    """The time that is left runs on between two reports, and not when the job does not."""
    before = format_time(datetime.fromtimestamp(NOW - 30, UTC))
    status: Object = {"trainerStatus": {**report, "lastUpdatedTime": before}}
    status |= {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}
    job: Object = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": {}, "status": status}
    shown = cells_of(job)
    assert (shown["Progress"], shown["ETA"]) == want


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (
            {
                "apiVersion": "v1",
                "kind": "Service",
                "spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30000}]},
            },
            {"Type": "NodePort", "Cluster-IP": "10.0.0.1", "External-IP": "<none>", "Port(s)": "80:30000/TCP"},
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "Event",
                "involvedObject": {"kind": "Pod", "name": "p"},
                "lastTimestamp": CREATED,
                "source": {"component": "me", "host": "here"},
                "message": "hello\n",
            },
            {"Last Seen": "15m", "Object": "pod/p", "Source": "me, here", "Message": "hello", "Count": 1},
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
                "spec": {"unschedulable": True},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
            {"Status": "Ready,SchedulingDisabled", "Roles": "worker", "OS-Image": "<unknown>"},
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "status": {"hard": {"pods": "100", "cpu": "2"}, "used": {"pods": "3"}},
            },
            {"Request": "cpu: 0/2, pods: 3/100", "Limit": ""},
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "Endpoints",
                "subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(5)], "ports": [{"port": 80}]}],
            },
            {"Endpoints": "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."},
        ),
        (
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [
                    {"kind": "ServiceAccount", "name": "sa", "namespace": "n"},
                    {"kind": "User", "name": "bob"},
                ],
            },
            {"Role": "Role/r", "Users": "bob", "ServiceAccounts": "n/sa"},
        ),
        (
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "spec": {"suspend": False},
                "status": {"restarts": 0, "conditions": [{"type": "Completed", "status": "True"}]},
            },
            {"TerminalState": None, "Restarts": "0", "Completed": "True", "Suspended": "false"},
        ),
    ],
)
def test_other_kinds_show_what_upstream_shows(obj: Object, want: Object) -> None:
    shown = cells_of(obj)
    assert {name: shown[name] for name in want} == want
