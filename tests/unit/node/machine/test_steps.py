"""The Pod machine: what happens next, decided without processes or an event loop."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.unit.node.machine.player import Player, container, make_pod, sidecar
from trainmaster.api.meta import Object
from trainmaster.api.v1jobs.waits import build_wait
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.node.machine import state as states
from trainmaster.node.machine.decide import decide
from trainmaster.node.machine.model import ProbeKind
from trainmaster.node.machine.outcome import RestartRules, end_pod
from trainmaster.node.machine.state import Ending, Moment
from trainmaster.node.machine.steps import Confirm, Hook, Kill, Notice, Signal, Start

pytestmark = pytest.mark.unit


def play(*containers: object, **spec: object) -> Player:
    """All that starts by itself runs."""
    player = Player(make_pod(*containers, **spec))  # type: ignore[arg-type]  # tests pass what make_pod takes
    player.run_all()
    return player


def test_each_container_is_started_once() -> None:
    player = Player(make_pod("a", "b"))
    assert player.look() == [Start("a", 0), Start("b", 0)]
    assert player.look() == []
    assert player.phase == "Pending"
    player.begin("a")
    assert player.phase == "Pending"
    player.begin("b")
    assert player.phase == "Running"


@pytest.mark.parametrize(
    ("codes", "want"),
    [
        pytest.param((0, 0), "Succeeded", id="all zero"),
        pytest.param((0, 3), "Failed", id="one failed"),
        pytest.param((3, None), "Running", id="one failed while another runs"),
    ],
)
def test_the_phase_follows_from_all_containers(codes: tuple[int | None, ...], want: str) -> None:
    player = play("a", "b")
    for name, code in zip("ab", codes, strict=True):
        if code is not None:
            assert player.end(name, code) == []
    assert player.phase == want


def test_a_container_restarts_in_place_at_once_and_then_with_growing_pauses() -> None:
    player = play(policy="OnFailure")
    assert player.end("node", 1) == [Start("node", 1)]
    player.begin("node", 1)
    assert player.end("node", 1, attempt=1) == []
    assert player.wake == 1.0
    status = player.status
    assert status["phase"] == "Running"
    waiting = status["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff"
    assert waiting["message"] == "back-off 1s restarting failed container=node pod=p_default(u)"
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    assert [item.reason for item in player.said] == ["BackOff"]
    assert player.wait(0.5) == []
    assert len(player.said) == 1
    assert player.wait(0.5) == [Start("node", 2)]
    player.begin("node", 2)
    player.end("node", 1, attempt=2)
    assert player.wake == 2.0


def test_a_container_that_ran_for_long_begins_a_new_series_of_restarts() -> None:
    rules = RestartRules(restart=BackoffPolicy(first=10, cap=300))
    player = Player(make_pod(policy="Always"), rules)
    player.run_all()
    player.end("node", 1)
    player.begin("node", 1)
    player.wait(599)
    assert player.end("node", 1, attempt=1) == []
    assert player.wake == 10
    player.wait(10)
    player.begin("node", 2)
    player.wait(600)
    assert player.end("node", 1, attempt=2) == [Start("node", 3)]
    player.begin("node", 3)
    player.end("node", 1, attempt=3)
    assert player.wake == 10


def test_a_success_is_not_restarted_unless_the_policy_is_always() -> None:
    assert play(policy="OnFailure").end("node", 0) == []
    assert play(policy="Always").end("node", 0) == [Start("node", 1)]


def test_a_late_report_of_an_earlier_attempt_changes_nothing() -> None:
    player = play(policy="OnFailure")
    player.end("node", 1)
    before = player.state
    assert player.end("node", 5) == []
    assert player.state == before


def test_a_container_that_cannot_be_created_waits_with_its_reason_and_is_tried_again() -> None:
    player = Player(make_pod())
    player.look()
    text = 'configmap "c" not found'
    player.mark(lambda state: states.mark_blocked(state, "node", 0, ("CreateContainerConfigError", text), player.now))
    assert player.phase == "Pending"
    entry = player.status["containerStatuses"][0]
    assert entry["state"] == {"waiting": {"reason": "CreateContainerConfigError", "message": text}}
    assert (entry["restartCount"], player.wake) == (0, 1.0)
    assert player.wait(1) == [Start("node", 0)]
    player.mark(lambda state: states.mark_blocked(state, "node", 0, ("ErrImagePull", "no rule"), player.now))
    assert player.wake == 2.0
    assert player.wait(2) == [Start("node", 0)]
    player.begin("node")
    assert player.phase == "Running"


# Init containers and sidecars


def test_init_containers_run_one_after_the_other_and_then_the_main_ones() -> None:
    player = Player(make_pod("a", "b", inits=(container("one"), container("two"))))
    assert player.look() == [Start("one", 0)]
    assert player.begin("one") == []
    conditions = {entry["type"]: entry for entry in player.status["conditions"]}
    assert conditions["Initialized"]["reason"] == "ContainersNotInitialized"
    assert conditions["Initialized"]["message"] == "containers with incomplete status: [one two]"
    assert player.status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert player.end("one") == [Start("two", 0)]
    player.begin("two")
    assert player.phase == "Pending"
    assert player.end("two") == [Start("a", 0), Start("b", 0)]
    assert [entry["ready"] for entry in player.status["initContainerStatuses"]] == [True, True]


def test_a_failing_init_container_fails_the_pod_or_is_retried_by_policy() -> None:
    never = Player(make_pod(inits=(container("one"),)))
    never.run_all()
    assert never.end("one", 3) == []
    assert never.phase == "Failed"
    assert never.status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    always = Player(make_pod(policy="Always", inits=(container("one"),)))
    always.run_all()
    assert always.end("one", 3) == [Start("one", 1)]
    always.begin("one", 1)
    assert always.end("one", 0, attempt=1) == [Start("node", 0)]
    assert always.end("one", 0, attempt=1) == []


def test_a_sidecar_starts_before_the_main_containers_and_is_stopped_after_them_last_one_first() -> None:
    player = Player(make_pod(inits=(sidecar("first"), container("mid"), sidecar("second"))))
    assert player.look() == [Start("first", 0)]
    assert player.begin("first") == [Start("mid", 0)]
    player.begin("mid")
    assert player.end("mid") == [Start("second", 0)]
    assert player.begin("second") == [Start("node", 0)]
    player.begin("node")
    assert player.phase == "Running"
    assert player.end("second", 1) == [Start("second", 1)], "a sidecar always comes back"
    player.begin("second", 1)
    assert player.end("node") == [Notice("Completed", 30.0), Signal("second", 15)]
    assert player.phase == "Running", "not over while anything runs"
    assert player.end("second", 143, attempt=1) == [Signal("first", 15)]
    assert player.end("first", 143) == []
    assert player.phase == "Succeeded", "the exit codes of sidecars do not count"


def test_a_sidecar_holds_up_the_next_container_until_its_startup_probe_has_passed() -> None:
    slow = sidecar("proxy", startupProbe={"tcpSocket": {"port": 80}, "periodSeconds": 1})
    player = Player(make_pod(inits=(slow,)))
    player.look()
    player.begin("proxy")
    assert player.answer("proxy", ProbeKind.STARTUP, ok=False) == []
    player.wait(1)
    assert player.answer("proxy", ProbeKind.STARTUP, ok=True) == [Start("node", 0)]


# The end of a Pod


def test_deletion_tells_the_program_asks_kills_after_the_grace_period_and_confirms_at_the_end() -> None:
    player = play("a", "b")
    assert player.delete(30) == [Notice("Deleted", 30.0), Signal("b", 15), Signal("a", 15)]
    assert player.wake == 30.0
    assert player.wait(1) == []
    player.end("a", 143)
    assert player.wait(28.9) == []
    assert player.wait(0.2) == [Kill("b")]
    assert player.wait(5) == []
    assert player.end("b", 137) == [Confirm()]
    assert player.look() == []
    assert player.phase == "Failed"


def test_a_shortened_grace_period_is_heard() -> None:
    player = play()
    player.delete(30)
    player.wait(2)
    assert player.delete(1) == [Kill("node")]


def test_without_a_grace_period_there_is_no_hook_and_no_question() -> None:
    player = play(container(lifecycle={"preStop": {"sleep": {"seconds": 1}}}))
    assert player.delete(0) == [Notice("Deleted", 0.0), Kill("node")]


def test_the_grace_period_counts_from_the_request_even_when_the_node_was_away() -> None:
    pod = make_pod()
    pod["metadata"] |= {"deletionTimestamp": "2026-11-15T12:00:30Z", "deletionGracePeriodSeconds": 30}
    player = Player(pod)
    player.seconds = 20.0
    player.state = states.make_state(player.plan, player.now)
    player.begin("node")
    assert player.wake == 11.0, "one more second than stored: it was cut to whole seconds"


def test_a_step_of_the_wall_clock_neither_hastens_nor_delays_the_kill() -> None:
    for jump in (-3600, 3600):
        player = play()
        player.delete(30)
        stepped = Moment(player.now.boot + 29, player.now.wall + timedelta(seconds=29 + jump))
        assert decide(player.plan, player.state, stepped).instructions == ()
        stepped = Moment(player.now.boot + 30, stepped.wall)
        assert decide(player.plan, player.state, stepped).instructions == (Kill("node"),)


def test_the_pre_stop_hook_comes_first_and_uses_up_the_grace_period_but_for_a_moment() -> None:
    handler = {"exec": {"command": ["bye"]}}
    player = play(container(lifecycle={"preStop": handler, "stopSignal": "SIGUSR1"}))
    assert player.delete(10) == [Notice("Deleted", 10.0), Hook("node", 0, "preStop", handler, 10.0)]
    assert player.wait(4) == []
    quick = player.state
    assert player.mark(lambda state: states.mark_pre_stop(state, "node", 0)) == [Signal("node", 10)]
    assert player.wait(6) == [Kill("node")]
    player.state, player.seconds = quick, 10.0
    assert player.look() == [Signal("node", 10)], "a hook that takes too long does not take the last moment"
    assert player.wait(1.9) == []
    assert player.wait(0.1) == [Kill("node")]


def test_deletion_stops_main_containers_before_sidecars() -> None:
    player = Player(make_pod("a", "b", inits=(sidecar("log"),)))
    player.run_all()
    assert player.delete(30) == [Notice("Deleted", 30.0), Signal("b", 15), Signal("a", 15)]
    player.end("a", 0)
    assert player.end("b", 0) == [Signal("log", 15)]
    assert player.end("log", 0) == [Confirm()]
    assert player.phase == "Succeeded", "all main containers left with 0"


def test_a_sidecar_whose_turn_does_not_come_is_killed_with_the_others() -> None:
    player = Player(make_pod(inits=(sidecar("log"),)))
    player.run_all()
    player.delete(5)
    assert player.wait(5) == [Kill("node"), Kill("log")]


def test_a_pod_deleted_before_it_started_is_confirmed_and_never_started() -> None:
    player = Player(make_pod())
    assert player.delete(0) == [Confirm()]
    assert player.look() == []
    assert player.phase == "Failed"


def test_a_deleted_pod_is_not_restarted() -> None:
    player = play(policy="Always")
    player.end("node", 1)
    player.begin("node", 1)
    player.end("node", 1, attempt=1)
    assert player.delete() == [Confirm()]
    assert player.wait(100) == []


def test_a_pod_past_its_deadline_is_stopped_and_failed() -> None:
    player = play(policy="Always", activeDeadlineSeconds=60, terminationGracePeriodSeconds=5)
    assert player.wake == 60
    assert player.wait(60) == [Notice("DeadlineExceeded", 5.0), Signal("node", 15)]
    assert player.phase == "Running"
    assert "reason" not in player.status
    assert player.wait(5) == [Kill("node")]
    assert player.end("node", 137) == []
    assert (player.phase, player.status["reason"]) == ("Failed", "DeadlineExceeded")
    assert player.status["message"] == "Pod was active on the node longer than the specified deadline"


def test_a_pod_that_is_over_has_no_deadline() -> None:
    player = play(activeDeadlineSeconds=60)
    player.end("node", 0)
    assert player.wake is None
    assert player.wait(100) == []
    assert player.phase == "Succeeded"


def test_a_refused_pod_has_failed_and_says_why() -> None:
    player = Player(make_pod())
    ending = Ending("Unsupported", "this node does not carry out spec.volumes")
    assert player.mark(lambda state: end_pod(player.plan, state, ending)) == []
    status = player.status
    assert (status["phase"], status["reason"]) == ("Failed", "Unsupported")
    assert status["message"] == "this node does not carry out spec.volumes"


def test_a_disrupted_pod_fails_with_the_condition_that_failure_policies_know() -> None:
    player = play(policy="Always")
    player.end("node", 137)
    ending = Ending("Terminated", "the machine was restarted", disruption="TerminationByKubelet")
    player.mark(lambda state: end_pod(player.plan, state, ending))
    player.end("node", 137, attempt=1)
    conditions = {entry["type"]: entry for entry in player.status["conditions"]}
    assert player.phase == "Failed"
    assert conditions["DisruptionTarget"]["reason"] == "TerminationByKubelet"
    assert conditions["DisruptionTarget"]["status"] == "True"


def test_an_outcome_that_is_settled_is_not_overturned() -> None:
    player = play()
    player.end("node", 0)
    player.mark(lambda state: end_pod(player.plan, state, Ending("Evicted", "disk")))
    assert player.phase == "Succeeded"
    player.delete(0)
    assert player.phase == "Succeeded"


def make_worker(*inits: Object) -> Object:
    pod = make_pod(container("pytorch"), inits=inits, policy="OnFailure")
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "pt", "uid": "u", "controller": True}
    pod["metadata"] |= {"labels": {"training.kubeflow.org/job-name": "pt"}, "ownerReferences": [owner]}
    return pod


def test_waiting_for_the_name_of_the_master_is_over_at_once() -> None:
    player = Player(make_worker(container("mine"), build_wait("pt-master-0"), container("after")))
    assert player.look() == [Start("mine", 0)]
    player.begin("mine")
    assert player.end("mine", 0) == [Start("after", 0)]
    player.begin("after")
    assert player.end("after", 0) == [Start("pytorch", 0)]
    waited = player.status["initContainerStatuses"][1]
    assert (waited["state"]["terminated"]["reason"], waited["ready"], waited["restartCount"]) == ("Completed", True, 0)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_worker(build_wait("other-master-0")), id="another job's master"),
        pytest.param(make_worker({**build_wait("pt-master-0"), "command": ["sh"]}), id="another command"),
        pytest.param(make_pod(container("pytorch"), inits=(build_wait("pt-master-0"),)), id="a Pod of no job"),
    ],
)
def test_other_init_containers_of_that_name_run(pod: Object) -> None:
    assert Player(pod).look() == [Start("init-pytorch", 0)]
