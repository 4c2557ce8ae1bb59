"""What a restarted control plane makes of a Pod object and its directory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.node.machine.player import NOW, Player, container, make_pod
from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.machine.model import read_plan
from trainmaster.node.machine.outcome import decide_phase
from trainmaster.node.machine.state import ContainerStage, HookStage, Moment, PodState
from trainmaster.node.recovery import note_lost, rebuild_state
from trainmaster.node.shims.pod_directory import FoundAttempt, FoundPod
from trainmaster.shim.protocol import Exited, Started

pytestmark = pytest.mark.unit

T = NOW.timestamp()
MOMENT = Moment(1000.0, NOW)


def rebuild(pod: Object, *attempts: FoundAttempt, alive: bool = True, rebooted: bool = False) -> PodState:
    return rebuild_state(Pod(pod), read_plan(Pod(pod)), FoundPod("u", alive, rebooted, None, attempts), MOMENT)


def attempt(number: int = 0, *, start: float | None = -10, end: float | None = None, code: int = 0) -> FoundAttempt:
    started = None if start is None else Started(5, T + start)
    return FoundAttempt("node", number, started, None if end is None else Exited(code, T + end))


def with_status(pod: Object, **entry: Any) -> Object:
    pod["status"] = {"containerStatuses": [{"name": "node", "restartCount": 0, **entry}]}
    return pod


def test_an_empty_directory_is_a_pod_that_was_never_begun() -> None:
    (node,) = rebuild(make_pod()).containers
    assert (node.stage, node.attempt) == (ContainerStage.WAITING, 0)


def test_an_intent_without_a_start_is_begun_with_the_same_number() -> None:
    (node,) = rebuild(make_pod(policy="Always"), attempt(end=-5, code=1), attempt(1, start=None)).containers
    assert (node.stage, node.attempt, node.series) == (ContainerStage.WAITING, 1, 1)
    assert node.last is not None and node.last.exit_code == 1


def test_what_runs_is_running_with_what_hooks_and_probes_had_found() -> None:
    pod = with_status(make_pod(), state={"running": {}}, started=True, ready=True)
    (node,) = rebuild(pod, attempt()).containers
    assert (node.stage, node.since) == (ContainerStage.RUNNING, 990.0)
    assert (node.post_start, node.is_started, node.is_ready) == (HookStage.DONE, True, True)


def test_an_end_that_nobody_saw_is_read_from_the_directory() -> None:
    pod = with_status(make_pod(), state={"running": {}})
    state = rebuild(pod, attempt(end=-1, code=3), alive=False)
    assert state.containers[0].ended is not None and state.containers[0].ended.exit_code == 3
    assert (decide_phase(read_plan(Pod(pod)), state), state.ending) == ("Failed", None)


def test_a_lost_shim_is_unknown_and_no_disruption() -> None:
    state = rebuild(make_pod(), attempt(), alive=False)
    assert state.containers[0].ended is not None
    assert (state.containers[0].ended.reason, state.ending) == ("ContainerStatusUnknown", None)


@pytest.mark.parametrize(("policy", "is_disrupted"), [("Never", True), ("OnFailure", True), ("Always", False)], ids=str)
def test_a_reboot_is_a_disruption_unless_the_pod_restarts_in_place(policy: str, is_disrupted: bool) -> None:
    state = rebuild(make_pod(policy=policy), attempt(), alive=False, rebooted=True)
    assert (state.ending is not None and state.ending.disruption == "TerminationByKubelet") is is_disrupted


def test_a_pod_that_had_ended_before_the_reboot_is_not_disrupted() -> None:
    state = rebuild(make_pod(), attempt(end=-1), alive=False, rebooted=True)
    assert state.ending is None


def test_without_a_directory_what_the_api_was_told_to_run_is_lost_and_not_begun_again() -> None:
    pod = with_status(make_pod(), state={"running": {"startedAt": "2026-11-15T11:00:00Z"}}, restartCount=2)
    state = rebuild(pod, alive=False)
    assert (state.containers[0].stage, state.containers[0].attempt) == (ContainerStage.ENDED, 2)
    assert state.ending is not None and state.ending.disruption


def test_an_attempt_that_could_not_be_executed_is_known_from_the_status_alone() -> None:
    ended = {"exitCode": 128, "reason": "StartError", "finishedAt": "2026-11-15T11:59:59Z"}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    pod = with_status(make_pod(policy="Always"), state=waiting, lastState={"terminated": ended}, restartCount=3)
    (node,) = rebuild(pod, alive=False).containers
    assert (node.stage, node.attempt, node.over) == (ContainerStage.ENDED, 3, 999.0)
    assert node.ended is not None and node.ended.exit_code == 128


def test_init_containers_are_not_run_again_once_a_main_container_was() -> None:
    pod = make_pod(inits=(container("setup"),))
    assert rebuild(pod, attempt()).is_initialized
    assert not rebuild(pod).is_initialized


def test_a_long_run_starts_the_series_of_restarts_over() -> None:
    attempts = (attempt(start=-2000, end=-1999), attempt(1, start=-1900, end=-1200), attempt(2, start=-100))
    assert rebuild(make_pod(policy="Always"), *attempts).containers[0].series == 1


def test_when_the_shim_dies_all_that_ran_is_lost() -> None:
    player = Player(make_pod("a", "b"))
    player.run_all()
    player.end("a", 0)
    state = note_lost(player.state, player.now)
    codes = [item.ended.exit_code if item.ended else None for item in state.containers]
    assert codes == [0, 137]
