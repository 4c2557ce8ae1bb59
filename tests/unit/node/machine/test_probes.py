"""Probes and hooks of the Pod machine: when they are asked, and what the answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.node.machine.player import Player, container, make_pod
from trainmaster.node.machine import state as states
from trainmaster.node.machine.model import ProbeKind
from trainmaster.node.machine.steps import Hook, Kill, Probe, Signal, Start

pytestmark = pytest.mark.unit

TCP = {"tcpSocket": {"port": 80}}


def play(policy: str = "Always", **fields: Any) -> Player:
    player = Player(make_pod(container(**fields), policy=policy))
    player.run_all()
    return player


def is_ready(player: Player) -> bool:
    return bool(player.status["containerStatuses"][0]["ready"])


def list_kinds(todo: list[Any]) -> list[ProbeKind]:
    return [item.kind for item in todo if isinstance(item, Probe)]


def test_without_probes_a_container_is_ready_when_it_runs() -> None:
    player = play()
    assert is_ready(player)
    assert player.status["containerStatuses"][0]["started"]
    assert player.wake is None, "a Pod at rest asks for nothing"


def test_readiness_follows_the_thresholds_in_both_directions() -> None:
    player = play(readinessProbe={**TCP, "periodSeconds": 5, "successThreshold": 2, "failureThreshold": 2})
    assert not is_ready(player)
    player.answer("node", ProbeKind.READINESS, ok=True)
    assert not is_ready(player)
    assert player.wake == 5
    assert list_kinds(player.wait(5)) == [ProbeKind.READINESS]
    player.answer("node", ProbeKind.READINESS, ok=True)
    assert is_ready(player)
    player.wait(5)
    player.answer("node", ProbeKind.READINESS, ok=False)
    assert is_ready(player)
    player.wait(5)
    player.answer("node", ProbeKind.READINESS, ok=False)
    assert not is_ready(player)
    assert player.phase == "Running", "readiness ends nothing"
    assert [item.message for item in player.said] == ["Readiness probe failed: refused"] * 2


def test_a_probe_waits_for_its_initial_delay_and_is_never_asked_twice_at_a_time() -> None:
    player = Player(make_pod(container(livenessProbe={**TCP, "initialDelaySeconds": 3, "periodSeconds": 1})))
    player.run_all()
    assert player.wake == 3
    assert list_kinds(player.wait(3)) == [ProbeKind.LIVENESS]
    assert player.wait(10) == [], "the answer is still out"
    assert list_kinds(player.answer("node", ProbeKind.LIVENESS, ok=True)) == [ProbeKind.LIVENESS]


def test_liveness_ends_the_container_with_the_probes_own_grace_period_and_the_policy_restarts_it() -> None:
    probe = {**TCP, "periodSeconds": 1, "failureThreshold": 2, "terminationGracePeriodSeconds": 4}
    player = play(livenessProbe=probe)
    player.answer("node", ProbeKind.LIVENESS, ok=False)
    player.wait(1)
    assert player.answer("node", ProbeKind.LIVENESS, ok=False) == [Signal("node", 15)]
    assert player.said[-1].message == "Container node failed liveness probe, will be restarted"
    assert player.wait(3.9) == []
    assert player.wait(0.1) == [Kill("node")]
    assert player.end("node", 137) == [Start("node", 1)]
    assert list_kinds(player.begin("node", 1)) == [ProbeKind.LIVENESS], "with fresh counts"
    player.answer("node", ProbeKind.LIVENESS, ok=False, attempt=1)
    assert player.state.get("node").stop is None


def test_liveness_under_policy_never_fails_the_pod() -> None:
    player = play("Never", livenessProbe={**TCP, "failureThreshold": 1})
    assert player.answer("node", ProbeKind.LIVENESS, ok=False) == [Signal("node", 15)]
    assert player.end("node", 143) == []
    assert player.phase == "Failed"


def test_the_startup_probe_holds_back_the_others() -> None:
    player = Player(make_pod(container(startupProbe=TCP, readinessProbe=TCP, livenessProbe=TCP)))
    player.look()
    assert list_kinds(player.begin("node")) == [ProbeKind.STARTUP]
    assert not player.status["containerStatuses"][0]["started"]
    todo = player.answer("node", ProbeKind.STARTUP, ok=True)
    assert list_kinds(todo) == [ProbeKind.READINESS, ProbeKind.LIVENESS]
    assert player.status["containerStatuses"][0]["started"]


def test_a_startup_probe_that_fails_for_good_ends_the_container() -> None:
    player = play(startupProbe={**TCP, "periodSeconds": 1, "failureThreshold": 2})
    player.answer("node", ProbeKind.STARTUP, ok=False)
    player.wait(1)
    assert player.answer("node", ProbeKind.STARTUP, ok=False) == [Signal("node", 15)]


def test_answers_for_an_earlier_attempt_or_during_a_stop_change_nothing() -> None:
    player = play(livenessProbe={**TCP, "failureThreshold": 1}, readinessProbe=TCP)
    player.delete(30)
    player.answer("node", ProbeKind.LIVENESS, ok=False)
    assert player.wait(29) == []
    assert [item.reason for item in player.said] == ["Killing"]


def test_a_container_runs_when_its_post_start_hook_is_over() -> None:
    handler = {"exec": {"command": ["hello"]}}
    player = Player(make_pod(container(lifecycle={"postStart": handler}, livenessProbe=TCP)))
    player.look()
    assert player.begin("node") == [Hook("node", 0, "postStart", handler)]
    assert player.status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert not is_ready(player)
    todo = player.mark(lambda state: states.mark_post_start(state, "node", 0))
    assert list_kinds(todo) == [ProbeKind.LIVENESS]
    assert "running" in player.status["containerStatuses"][0]["state"]
    assert is_ready(player)


def test_a_post_start_hook_that_fails_ends_the_container() -> None:
    player = Player(make_pod(container(lifecycle={"postStart": {"exec": {"command": ["x"]}}}), policy="OnFailure"))
    player.look()
    player.begin("node")
    todo = player.mark(lambda state: states.mark_must_end(state, "node", 0, 30.0, player.now))
    assert todo == [Signal("node", 15)]
    assert player.end("node", 143) == [Start("node", 1)]


def test_a_closed_readiness_gate_keeps_the_pod_unready_but_not_its_containers() -> None:
    player = Player(make_pod(readinessGates=[{"conditionType": "example.com/ok"}]))
    player.run_all()
    conditions = {entry["type"]: entry for entry in player.status["conditions"]}
    assert conditions["ContainersReady"]["status"] == "True"
    assert conditions["Ready"]["reason"] == "ReadinessGatesNotReady"
    player.pod["status"] = {"conditions": [{"type": "example.com/ok", "status": "True"}]}
    conditions = {entry["type"]: entry for entry in player.status["conditions"]}
    assert conditions["Ready"]["status"] == "True"
