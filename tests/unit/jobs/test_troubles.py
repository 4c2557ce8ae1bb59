"""What keeps Pods from starting or staying, as kubelets and schedulers say it."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.troubles import find_refusal, find_trouble

pytestmark = pytest.mark.unit


def make_pod(name: str, state: Any = None, *, last: Any = None, **more: Any) -> Pod:
    container = {"name": "node", "restartCount": 1 if last else 0, "state": state or {}, "lastState": last or {}}
    status = {"phase": "Pending", "containerStatuses": [container], **more.pop("status", {})}
    return Pod({"metadata": {"name": name, "namespace": "default", **more}, "status": status})


def waiting(reason: str, message: str = "") -> Any:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def unschedulable(name: str, message: str) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return Pod({"metadata": {"name": name}, "status": {"phase": "Pending", "conditions": [condition]}})


_AGAIN = "and is restarted again and again, with growing pauses"
EXIT_3 = {"terminated": {"exitCode": 3, "reason": "Error"}}
START_ERROR = {"terminated": {"exitCode": 128, "reason": "StartError"}}


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param([make_pod("a", waiting("ContainerCreating"))], None, id="starting"),
        pytest.param([make_pod("a", {"running": {}}, last=EXIT_3)], None, id="running again"),
        pytest.param(
            [make_pod("a", waiting("CrashLoopBackOff"), last=EXIT_3, deletionTimestamp="x")], None, id="stopped"
        ),
        pytest.param([make_pod("a", waiting("X"), status={"phase": "Failed"})], None, id="over"),
        pytest.param(
            [unschedulable("b", "0/1 nodes are available"), unschedulable("a", "0/1 nodes are available")],
            ("Unschedulable", "Pod a: 0/1 nodes are available; the same for 1 other Pod"),
            id="unschedulable",
        ),
        pytest.param(
            [make_pod("a", waiting("ErrImagePull", "not found"))],
            ("ErrImagePull", "Pod a: container node: not found"),
            id="image",
        ),
        pytest.param(
            [make_pod("a", waiting("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found'))],
            ("ErrImagePull", "Pod a: container node: not found"),
            id="image, between two tries",
        ),
        pytest.param(
            [make_pod("a", waiting("ErrImageNeverPull", "is not present"))],
            ("ErrImageNeverPull", "Pod a: container node: is not present"),
            id="image, never pulled",
        ),
        pytest.param(
            [make_pod("a", waiting("CrashLoopBackOff", "back-off 10s restarting failed"), last=EXIT_3)],
            ("CrashLoopBackOff", f"Pod a: container node: it ended with exit code 3 {_AGAIN}"),
            id="crashing",
        ),
        pytest.param(
            [make_pod("a", EXIT_3, last=START_ERROR, status={"phase": "Running"})],
            ("CrashLoopBackOff", f"Pod a: container node: it ended with exit code 3 {_AGAIN}"),
            id="crashing, and not reported yet",
        ),
        pytest.param([make_pod("a", EXIT_3, status={"phase": "Running"})], None, id="about to fail or to be restarted"),
        pytest.param(
            [make_pod("a", waiting("CrashLoopBackOff"), last=START_ERROR)],
            (
                "CrashLoopBackOff",
                f"Pod a: container node: it ended with exit code 128 (StartError) {_AGAIN}",
            ),
            id="missing program",
        ),
        pytest.param(
            [make_pod("a", waiting("CrashLoopBackOff"), last=EXIT_3), unschedulable("b", "no node")],
            ("Unschedulable", "Pod b: no node"),
            id="the most basic one",
        ),
    ],
)
def test_the_trouble_of_pods(pods: list[Pod], want: tuple[str, str] | None) -> None:
    found = find_trouble(pods)
    assert (None if found is None else (found.reason, found.message)) == want


def make_event(uid: str, message: str, time: str, reason: str = "FailedCreate") -> ObjectEvent:
    about = {"kind": "Job", "name": "j-node-0", "uid": uid}
    return ObjectEvent(
        {
            "metadata": {"name": time},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "lastTimestamp": time,
        }
    )


def test_a_refused_pod_is_told_by_the_newest_event_of_its_job() -> None:
    events = [
        make_event("1", "Error creating: too old", "2026-01-01T00:00:00Z"),
        make_event("1", "Error creating: violates PodSecurity", "2026-01-01T00:00:01Z"),
        make_event("2", "Error creating: of another", "2026-01-01T00:00:02Z"),
        make_event("1", "Created pod", "2026-01-01T00:00:03Z", "SuccessfulCreate"),
    ]
    found = find_refusal(["1"], events)
    assert found is not None
    assert (found.reason, found.message) == ("FailedCreate", 'job "j-node-0": Error creating: violates PodSecurity')
    assert find_refusal(["3"], events) is None
