"""The Pod machine: what happens next, decided without processes or an event loop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trainmaster.api.meta import Object
from trainmaster.kit.clock import format_time
from trainmaster.node import machine
from trainmaster.node.machine import Confirm, Ended, PodState, Refused, Signal, Start
from trainmaster.node.status import build_status

pytestmark = pytest.mark.unit

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def make_pod(*containers: str, policy: str = "Never", deleted_at: datetime | None = None) -> Object:
    names = containers or ("node",)
    meta: Object = {"name": "p", "namespace": "default", "uid": "u"}
    if deleted_at is not None:
        meta["deletionTimestamp"] = format_time(deleted_at)
        meta["deletionGracePeriodSeconds"] = 30
    spec = {"containers": [{"name": name, "image": "i"} for name in names], "restartPolicy": policy}
    return {"metadata": meta, "spec": spec}


def end(code: int, seconds: float = 0) -> Ended:
    return Ended(code, NOW, later(seconds), "Completed" if code == 0 else "Error")


def start(pod: Object, now: datetime = NOW) -> PodState:
    """All containers run."""
    state = machine.decide(pod, machine.make_state(pod, now), now).state
    for container in state.containers:
        state = machine.mark_started(state, container.name, 0, now)
    return state


def test_each_container_is_started_once() -> None:
    pod = make_pod("a", "b")
    step = machine.decide(pod, machine.make_state(pod, NOW), NOW)
    assert step.instructions == (Start("a", 0), Start("b", 0))
    assert machine.decide(pod, step.state, NOW).instructions == ()
    assert machine.decide_phase(pod, step.state) == "Pending"
    assert machine.decide_phase(pod, start(pod)) == "Running"


@pytest.mark.parametrize(
    ("codes", "want"),
    [
        pytest.param((0, 0), "Succeeded", id="all zero"),
        pytest.param((0, 3), "Failed", id="one failed"),
        pytest.param((3, None), "Running", id="one failed while another runs"),
    ],
)
def test_the_phase_follows_from_all_containers(codes: tuple[int | None, ...], want: str) -> None:
    pod = make_pod("a", "b")
    state = start(pod)
    for name, code in zip("ab", codes, strict=True):
        if code is not None:
            state = machine.mark_ended(state, name, 0, end(code))
    assert machine.decide_phase(pod, state) == want
    assert machine.decide(pod, state, NOW).instructions == ()


def test_a_container_restarts_in_place_at_once_and_then_with_growing_pauses() -> None:
    pod = make_pod(policy="OnFailure")
    state = machine.mark_ended(start(pod), "node", 0, end(1))
    step = machine.decide(pod, state, NOW)
    assert step.instructions == (Start("node", 1),)
    state = machine.mark_started(step.state, "node", 1, NOW)
    state = machine.mark_ended(state, "node", 1, end(1))
    step = machine.decide(pod, state, NOW)
    assert (step.instructions, step.wake_after) == ((), 1.0)
    status = build_status(pod, step.state, NOW)
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert machine.decide(pod, step.state, later(1)).instructions == (Start("node", 2),)


def test_a_success_is_not_restarted_unless_the_policy_is_always() -> None:
    for policy, want in (("OnFailure", ()), ("Always", (Start("node", 1),))):
        pod = make_pod(policy=policy)
        state = machine.mark_ended(start(pod), "node", 0, end(0))
        assert machine.decide(pod, state, NOW).instructions == want


def test_a_late_report_of_an_earlier_attempt_changes_nothing() -> None:
    pod = make_pod(policy="OnFailure")
    state = machine.mark_ended(start(pod), "node", 0, end(1))
    state = machine.decide(pod, state, NOW).state
    assert machine.mark_ended(state, "node", 0, end(5)) == state


def test_deletion_asks_first_kills_after_the_grace_period_and_confirms_at_the_end() -> None:
    running = start(make_pod("a", "b"))
    pod = make_pod("a", "b", deleted_at=later(30))
    step = machine.decide(pod, running, NOW)
    assert step.instructions == (Signal("a", force=False), Signal("b", force=False))
    assert step.wake_after == 31
    assert machine.decide(pod, step.state, later(1)).instructions == ()
    state = machine.mark_ended(step.state, "a", 0, end(143))
    assert machine.decide(pod, state, later(30.5)).instructions == ()
    step = machine.decide(pod, state, later(31))
    assert step.instructions == (Signal("b", force=True),)
    state = machine.mark_ended(step.state, "b", 0, end(137))
    step = machine.decide(pod, state, later(32))
    assert step.instructions == (Confirm(),)
    assert machine.decide(pod, step.state, later(33)).instructions == ()


def test_a_shortened_grace_period_is_heard() -> None:
    running = start(make_pod())
    step = machine.decide(make_pod(deleted_at=later(30)), running, NOW)
    step = machine.decide(make_pod(deleted_at=later(1)), step.state, later(2))
    assert step.instructions == (Signal("node", force=True),)


def test_a_pod_deleted_before_it_started_is_confirmed_and_never_started() -> None:
    pod = make_pod(deleted_at=NOW)
    step = machine.decide(pod, machine.make_state(pod, NOW), NOW)
    assert step.instructions == (Confirm(),)


def test_a_deleted_pod_is_not_restarted() -> None:
    pod = make_pod(policy="Always", deleted_at=later(30))
    state = machine.mark_ended(start(make_pod(policy="Always")), "node", 0, end(1))
    assert machine.decide(pod, state, NOW).instructions == (Confirm(),)


def test_a_refused_pod_has_failed_and_says_why() -> None:
    pod = make_pod()
    state = machine.make_state(pod, NOW, Refused("Unsupported", "this node does not carry out spec.volumes"))
    assert machine.decide(pod, state, NOW).instructions == ()
    status = build_status(pod, state, NOW)
    assert (status["phase"], status["reason"]) == ("Failed", "Unsupported")
    assert status["message"] == "this node does not carry out spec.volumes"


def test_the_status_has_every_required_key_and_keeps_times_that_still_hold() -> None:
    pod = make_pod()
    state = start(pod)
    pod["status"] = build_status(pod, state, NOW)
    container = pod["status"]["containerStatuses"][0]
    assert {"name", "image", "imageID", "ready", "restartCount"} <= set(container)
    assert (container["ready"], container["state"]) == (True, {"running": {"startedAt": format_time(NOW)}})
    assert build_status(pod, state, later(60)) == pod["status"]
    ended = machine.mark_ended(state, "node", 0, Ended(137, NOW, later(60), "Error", signal=9))
    status = build_status(pod, ended, later(60))
    ready = next(entry for entry in status["conditions"] if entry["type"] == "Ready")
    assert (ready["status"], ready["reason"], ready["lastTransitionTime"]) == (
        "False",
        "PodFailed",
        format_time(later(60)),
    )
    assert status["containerStatuses"][0]["state"]["terminated"] == {
        "exitCode": 137,
        "reason": "Error",
        "signal": 9,
        "startedAt": format_time(NOW),
        "finishedAt": format_time(later(60)),
    }
