"""Whatever the order of observations: nothing is asked for twice, no attempt starts twice, what is over stays over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.node.machine.player import Player, container, make_pod, sidecar
from trainmaster.node.machine import state as states
from trainmaster.node.machine.model import ProbeKind
from trainmaster.node.machine.outcome import end_pod
from trainmaster.node.machine.state import Ending
from trainmaster.node.machine.steps import Confirm, Start

pytestmark = pytest.mark.unit

_TCP = {"tcpSocket": {"port": 80}, "periodSeconds": 2, "failureThreshold": 2}
_LIFECYCLE = {"postStart": {"exec": {"command": ["a"]}}, "preStop": {"sleep": {"seconds": 3}}}

CONTAINERS = st.sampled_from([{}, {"livenessProbe": _TCP}, {"startupProbe": _TCP}, {"lifecycle": _LIFECYCLE}])
INITS = st.lists(st.booleans(), max_size=2)
ACTION = st.tuples(
    st.sampled_from(["begin", "end", "block", "probe", "hook", "unhook", "doom", "wait", "delete", "evict", "abandon"]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([0, 1, 137]),
)


def build(fields: list[Any], inits: list[bool], policy: str) -> Player:
    mains = [container(f"m{index}", **extra) for index, extra in enumerate(fields)]
    before = tuple(sidecar(f"i{i}") if is_sidecar else container(f"i{i}") for i, is_sidecar in enumerate(inits))
    return Player(make_pod(*mains, inits=before, policy=policy, activeDeadlineSeconds=500))


def get_name(player: Player, action: tuple[str, int, int, int]) -> str:
    return player.plan.containers[action[1] % len(player.plan.containers)].name


def list_starts(todo: list[Any]) -> set[tuple[str, int]]:
    return {(item.container, item.attempt) for item in todo if isinstance(item, Start)}


def is_impossible(player: Player, action: tuple[str, int, int, int], asked: set[tuple[str, int]]) -> bool:
    """Nobody begins what was not asked for, and what nobody asked for, or could not be started, does not end."""
    name = get_name(player, action)
    known = player.state.get(name)
    if action[0] == "end" and ((name, action[2]) not in asked or known.stage is states.ContainerStage.WAITING):
        return True
    return action[0] == "begin" and (known.stage is not states.ContainerStage.STARTING or known.attempt != action[2])


def act(player: Player, action: tuple[str, int, int, int]) -> list[Any]:
    what, number, attempt, code = action
    name = get_name(player, action)
    match what:
        case "begin":
            return player.begin(name, attempt)
        case "end":
            return player.end(name, code, attempt)
        case "block":
            return player.mark(lambda state: states.mark_blocked(state, name, attempt, ("R", "m"), player.now))
        case "probe":
            kind = ProbeKind.LIVENESS if number % 2 else ProbeKind.STARTUP
            return player.answer(name, kind, code == 0, attempt)
        case "hook":
            return player.mark(lambda state: states.mark_post_start(state, name, attempt))
        case "unhook":
            return player.mark(lambda state: states.mark_pre_stop(state, name, attempt))
        case "doom":
            return player.mark(lambda state: states.mark_must_end(state, name, attempt, 5.0, player.now))
        case "wait":
            return player.wait(float(1 + number * 7 + attempt * 60))
        case "delete":
            return player.delete(number * 10)
        case "abandon":
            return player.mark(lambda state: states.mark_not_begun(state, name, attempt))
        case _:
            return player.mark(lambda state: end_pod(player.plan, state, Ending("Evicted", "disk")))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(CONTAINERS, min_size=1, max_size=2),
    INITS,
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.lists(ACTION, max_size=40),
)
def test_any_order_of_observations_keeps_the_promises(
    fields: list[Any], inits: list[bool], policy: str, actions: list[tuple[str, int, int, int]]
) -> None:
    player = build(fields, inits, policy)
    begun: set[tuple[str, int]] = set()
    confirms = 0
    todo = player.look()
    asked = list_starts(todo)
    over = ""
    for action in actions:
        assert player.look() == [], "a second question without news gives nothing"
        asked |= list_starts(todo)
        if is_impossible(player, action, asked):
            continue
        if action[0] == "begin":
            begun.add((get_name(player, action), action[2]))
        todo = act(player, action)
        for item in todo:
            if isinstance(item, Start):
                assert (item.container, item.attempt) not in begun, "an attempt that ran is never started again"
                assert not over, "nothing starts in a Pod that is over"
                assert player.plan.deletion is None
        confirms += sum(isinstance(item, Confirm) for item in todo)
        if over:
            assert player.phase == over, "a terminal phase is never left"
        if player.phase in ("Succeeded", "Failed"):
            over = player.phase
            assert not player.state.is_alive
        assert player.status["phase"] == player.phase
    assert confirms <= 1


@settings(max_examples=100, deadline=None)
@given(
    st.lists(CONTAINERS, min_size=1, max_size=2),
    INITS,
    st.lists(ACTION, max_size=15),
)
def test_a_deleted_pod_always_comes_to_its_end(
    fields: list[Any], inits: list[bool], actions: list[tuple[str, int, int, int]]
) -> None:
    """Whatever happened before: kills come by time alone, and when all is dead the deletion is confirmed."""
    player = build(fields, inits, "Always")
    asked = list_starts(player.look())
    confirmed = False
    for action in actions:
        if is_impossible(player, action, asked):
            continue
        todo = act(player, action)
        asked |= list_starts(todo)
        confirmed = any(isinstance(item, Confirm) for item in todo) or confirmed
    confirmed = any(isinstance(item, Confirm) for item in player.delete(5)) or confirmed
    for _ in range(200):
        if confirmed:
            break
        for item in player.state.containers:
            if item.stage is states.ContainerStage.STARTING:
                confirmed = (
                    any(isinstance(step, Confirm) for step in player.begin(item.name, item.attempt)) or confirmed
                )
            elif item.stop is not None and item.stop.killed:
                step = player.end(item.name, 137, item.attempt)
                confirmed = any(isinstance(entry, Confirm) for entry in step) or confirmed
        confirmed = any(isinstance(item, Confirm) for item in player.wait(1.0)) or confirmed
    assert confirmed
    assert player.phase in ("Succeeded", "Failed")
