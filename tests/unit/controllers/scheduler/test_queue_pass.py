"""Who starts and who waits: whole gangs, in order, without starving anybody, and never more than there is."""

from __future__ import annotations

import pytest

from tests.unit.controllers.scheduler.stage import Stage, make_role
from tests.unit.controllers.world import NOW
from trainmaster.api.labels import MIRROR, WAITING
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, NODES, PODS
from trainmaster.api.status import StatusError
from trainmaster.client.writes import WriteRefusal
from trainmaster.controllers.scheduler.queue_pass import ENOUGH
from trainmaster.controllers.scheduler.reconciler import BIND, CONTROLLER
from trainmaster.kit.timeline import Now

pytestmark = pytest.mark.unit


def test_a_gang_that_fits_is_bound_in_one_plan() -> None:
    stage = Stage()
    names = stage.add_gang("a", 2, cpu="4")
    plan = stage.run(CONTROLLER, "local", namespace="")
    assert len(plan.all_writes) == 2
    assert stage.is_bound(*names)
    assert stage.look().all_writes == ()


def test_a_gang_that_does_not_fit_whole_waits_whole() -> None:
    stage = Stage(cpu="8")
    first = stage.add_gang("a", 1, cpu="6")
    second = stage.add_gang("b", 3, cpu="1")
    stage.look()
    assert stage.is_bound(*first)
    assert not stage.is_bound(*second)
    assert {stage.get_condition(name) for name in second} == {"0/1 nodes are available: 1 Insufficient cpu."}
    stage.end(*first)
    stage.look()
    assert stage.is_bound(*second)


def test_a_gang_is_not_begun_before_all_its_pods_are_there() -> None:
    stage = Stage()
    jobset = stage.add_jobset("a", make_role("launcher", 1, cpu="1"), make_role("node", 2, cpu="1"))
    some = stage.add_pods(jobset, "launcher")
    assert stage.look().all_writes == ()
    others = stage.add_pods(jobset, "node")
    stage.look()
    assert stage.is_bound(*some, *others)


def test_the_peak_over_the_stages_is_kept_for_a_gang() -> None:
    stage = Stage(cpu="8")
    later = make_role("node", 2, after={"first": "Complete"}, cpu="3")
    jobset = stage.add_jobset("a", make_role("first", 1, cpu="1"), later)
    first = stage.add_pods(jobset, "first")
    other = stage.add_gang("b", 1, cpu="3")
    small = stage.add_gang("c", 1, cpu="2")
    stage.look()
    assert stage.is_bound(*first)
    assert not stage.is_bound(*other)
    assert not stage.is_bound(*small), "nobody overtakes, even with what is left"
    stage.end(*first)
    nodes = stage.add_pods(jobset, "node")
    stage.look()
    assert stage.is_bound(*nodes)
    stage.end(*nodes)
    stage.look()
    assert stage.is_bound(*other) and stage.is_bound(*small)


def test_stages_that_only_wait_for_readiness_run_side_by_side() -> None:
    stage = Stage(cpu="4")
    jobset = stage.add_jobset(
        "a", make_role("first", 1, cpu="2"), make_role("node", 1, after={"first": "Ready"}, cpu="3")
    )
    first = stage.add_pods(jobset, "first")
    stage.look()
    assert not stage.is_bound(*first)
    assert stage.get_sentence(*first) == "the job asks for 5 CPUs, node local has 4: ask for less, or use fewer nodes"


def test_what_a_cut_plan_left_is_finished_before_anybody_else_starts() -> None:
    stage = Stage(cpu="4")
    names = stage.add_gang("a", 4, cpu="1")
    stage.merge(PODS, names[0], {"spec": {"nodeName": "local"}})
    urgent = stage.add_gang("urgent", 1, priority=100, cpu="1")
    stage.look()
    assert stage.is_bound(*names)
    assert not stage.is_bound(*urgent)


def test_a_large_gang_at_the_head_is_never_overtaken_by_small_ones() -> None:
    stage = Stage(cpu="8")
    running = [stage.add_gang(f"r{number}", 1, cpu="4")[0] for number in range(2)]
    stage.look()
    large = stage.add_gang("large", 1, cpu="8")
    stage.look()
    for number in range(10):
        small = stage.add_gang(f"s{number}", 1, cpu="4")
        stage.look()
        if number == 2:
            stage.end(running[0])
        stage.look()
        assert not stage.is_bound(*small), f"number {number} took what the one at the head waits for"
    stage.end(running[1])
    stage.look()
    assert stage.is_bound(*large)


def test_what_the_head_does_not_need_is_given_to_those_behind() -> None:
    stage = Stage(cpu="8", gpus=2)
    running = stage.add_gang("running", 1, cpu="1", gpu="1")
    stage.look()
    head = stage.add_gang("head", 1, cpu="2", gpu="2")
    light = stage.add_gang("light", 1, cpu="5")
    heavy = stage.add_gang("heavy", 1, cpu="1")
    stage.look()
    assert stage.is_bound(*running) and stage.is_bound(*light)
    assert not stage.is_bound(*head)
    assert not stage.is_bound(*heavy), "the last two CPUs are the head's"


def test_higher_priority_goes_first_and_equals_in_the_order_of_their_coming() -> None:
    stage = Stage(cpu="2")
    running = stage.add_gang("running", 1, cpu="2")
    stage.look()
    gangs = {
        "old": stage.add_gang("old", 1, cpu="2"),
        "young": stage.add_gang("young", 1, cpu="2"),
        "urgent": stage.add_gang("urgent", 1, priority=10, cpu="2"),
    }
    order: list[str] = []
    last = running
    while len(order) < 3:
        stage.end(*last)
        stage.look()
        name = next(name for name, pods in gangs.items() if name not in order and stage.is_bound(*pods))
        order.append(name)
        last = gangs[name]
    assert order == ["urgent", "old", "young"]


def test_a_gang_that_restarts_keeps_its_place_before_its_pods_are_there_again() -> None:
    stage = Stage(cpu="4")
    first = stage.add_gang("first", 1, cpu="4")
    stage.look()
    other = stage.add_gang("other", 1, cpu="4")
    stage.look()
    jobset = stage.merge(JOB_SETS, "first", {"status": {"restarts": 1}})
    stage.remove(*first)
    stage.look()
    assert not stage.is_bound(*other)
    again = stage.add_pods(jobset, "node")
    stage.look()
    assert stage.is_bound(*again) and not stage.is_bound(*other)


@pytest.mark.parametrize(
    "change", [{"spec": {"suspend": True}}, {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}]
)
def test_a_jobset_that_is_suspended_or_over_keeps_nothing(change: dict[str, object]) -> None:
    stage = Stage(cpu="4")
    stage.add_jobset("first", make_role("node", 1, cpu="4"), restarts=1)
    other = stage.add_gang("other", 1, cpu="4")
    stage.look()
    assert not stage.is_bound(*other)
    stage.merge(JOB_SETS, "first", change)
    stage.look()
    assert stage.is_bound(*other)


def test_pods_of_an_attempt_that_is_over_are_not_bound() -> None:
    stage = Stage()
    names = stage.add_gang("a", 1, cpu="1")
    stage.merge(JOB_SETS, "a", {"status": {"restarts": 1}})
    stage.look()
    assert not stage.is_bound(*names)


def test_a_rank_that_is_replaced_has_its_place_kept() -> None:
    stage = Stage(cpu="4")
    jobset = stage.add_jobset("a", make_role("node", 2, cpu="2"))
    names = stage.add_pods(jobset, "node")
    stage.look()
    other = stage.add_gang("b", 1, cpu="2")
    stage.end(names[1], phase="Failed")
    stage.look()
    assert not stage.is_bound(*other)
    replacement = stage.add(
        PODS,
        {
            **stage.get(PODS, names[0]),
            "metadata": {**stage.get(PODS, names[0])["metadata"], "name": "again", "uid": "new"},
            "spec": {**jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]},
        },
    )
    stage.look()
    assert stage.is_bound(replacement["metadata"]["name"])


def test_what_ranks_that_ended_well_had_is_given_back() -> None:
    stage = Stage(cpu="4")
    names = stage.add_gang("a", 2, cpu="2")
    stage.look()
    other = stage.add_gang("b", 1, cpu="2")
    stage.end(names[0])
    stage.look()
    assert stage.is_bound(*other)


def test_too_large_for_the_machine_is_said_at_once_and_keeps_nobody_waiting() -> None:
    stage = Stage(gpus=2)
    huge = stage.add_gang("huge", 4, gpu="1")
    other = stage.add_gang("other", 1, gpu="2")
    stage.look()
    assert stage.is_bound(*other)
    assert stage.get_sentence(*huge) == "the job asks for 4 GPUs, node local has 2: ask for less, or use fewer nodes"
    assert stage.get_condition(huge[0]) == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_the_queue_says_what_is_missing_where_one_stands_and_what_would_help() -> None:
    stage = Stage(gpus=2)
    stage.add_gang("a", 1, gpu="1")
    stage.look()
    second = stage.add_gang("b", 1, gpu="2")
    third = stage.add_gang("c", 1, gpu="1")
    stage.look()
    assert (
        stage.get_sentence(*second) == "waiting for 2 GPUs: 1 of 2 free; first in the queue; starts when default/a ends"
    )
    text = "waiting for 1 GPU: 1 of 2 free and kept for those ahead; second in the queue behind default/b"
    assert stage.get_sentence(*third) == f"{text}; starts after default/b, once enough has ended"


def test_the_position_is_kept_current_when_the_queue_moves() -> None:
    stage = Stage(cpu="2")
    running = stage.add_gang("a", 1, cpu="2")
    stage.look()
    second, third = stage.add_gang("b", 1, cpu="2"), stage.add_gang("c", 1, cpu="2")
    stage.look()
    assert "second in the queue behind default/b" in stage.get_sentence(*third)
    stage.end(*running)
    stage.look()
    assert stage.is_bound(*second)
    stage.report()
    assert "first in the queue; starts when default/b ends" in stage.get_sentence(*third)
    assert stage.report().all_writes == ()


def test_only_the_head_of_a_long_queue_is_rewritten_when_it_moves() -> None:
    stage = Stage(cpu="1")
    running = stage.add_gang("a", 1, cpu="1")
    stage.look()
    for number in range(60):
        stage.add_gang(f"w{number}", 1, cpu="1")
    stage.look()
    assert "behind 20 others or more" in stage.get_sentence("w59-node-0-0")
    stage.end(*running)
    stage.look()
    assert len(stage.report().all_writes) <= 21


def test_a_pod_alone_is_a_gang_of_its_own() -> None:
    stage = Stage(cpu="1")
    stage.add_pod("a", cpu="1")
    stage.add_pod("b", cpu="500m")
    stage.look()
    assert stage.is_bound("a") and not stage.is_bound("b")
    text = "waiting for 0.5 CPUs: 0 of 1 free; first in the queue; starts when default/a ends"
    assert stage.get_sentence("b") == text


def test_the_number_of_pods_is_limited_too() -> None:
    stage = Stage()
    stage.merge(NODES, "local", {"status": {"allocatable": {"pods": "1"}}}, "")
    stage.add_pod("a")
    stage.add_pod("b")
    stage.look()
    assert stage.get_condition("b") == "0/1 nodes are available: 1 Too many pods."


def test_pods_that_show_the_control_plane_take_no_place_from_jobs() -> None:
    """Otherwise a job of as many nodes as the node has places would count as possible, and wait for ever."""
    stage = Stage()
    mirror = {"metadata": {"name": "manager", "namespace": "kubeflow-system", "annotations": {MIRROR: "manager"}}}
    stage.add(PODS, {**mirror, "spec": {"nodeName": "local", "containers": [{"name": "manager"}]}})
    names = stage.add_gang("a", 100)
    stage.look()
    assert stage.is_bound(*names)
    stage.end(*names)
    stage.merge(JOB_SETS, "a", {"status": {"conditions": [{"type": "Completed", "status": "True"}]}})
    more = stage.add_gang("b", 101)
    stage.look()
    text = "the job asks for 101 places for Pods, node local has 100: ask for less, or use fewer nodes"
    assert stage.get_sentence(*more) == text


def test_a_large_gang_is_bound_in_several_passes_and_nobody_gets_in_between() -> None:
    stage = Stage()
    names = stage.add_gang("a", ENOUGH + 20)
    stage.run(CONTROLLER, "local", namespace="")
    assert [stage.is_bound(name) for name in names].count(True) == ENOUGH
    more = stage.add_gang("b", 100 - ENOUGH - 10)
    stage.look()
    assert stage.is_bound(*names) and not any(stage.is_bound(name) for name in more)


def test_one_gated_pod_keeps_its_whole_gang_waiting() -> None:
    stage = Stage()
    names = stage.add_gang("a", 2, cpu="1")
    stage.merge(PODS, names[1], {"spec": {"schedulingGates": [{"name": "example.com/quota"}]}})
    stage.look()
    assert not stage.is_bound(*names)
    stage.merge(PODS, names[1], {"spec": {"schedulingGates": None}})
    stage.look()
    assert stage.is_bound(*names)


def test_a_gang_whose_binding_is_refused_says_so_and_holds_up_nobody() -> None:
    stage = Stage()
    bad = stage.add_gang("bad", 1, cpu="1")
    plan = CONTROLLER.reconcile(stage, BIND, Now(NOW), ())
    refusal = WriteRefusal(plan.all_writes[0], StatusError(422, "Invalid", "no"))
    stage.carry_out(CONTROLLER.reconcile(stage, BIND, Now(NOW), (refusal,)).all_writes)
    assert stage.get_condition(bad[0]) == "binding was refused: no"
    good = stage.add_gang("good", 1, cpu="1")
    stage.run(CONTROLLER, "local", namespace="")
    assert stage.is_bound(*good) and not stage.is_bound(*bad)
    stage.look()
    assert stage.is_bound(*bad), "it is tried again, alone"


def test_pods_that_somebody_else_schedules_are_left_alone() -> None:
    stage = Stage()
    stage.add_pod("a", cpu="1")
    stage.merge(PODS, "a", {"spec": {"schedulerName": "other"}})
    assert stage.look().all_writes == ()


def test_a_finished_pod_that_somebody_removed_does_not_hold_up_the_next_stage() -> None:
    stage = Stage()
    later = make_role("node", 1, after={"first": "Complete"}, cpu="1")
    jobset = stage.add_jobset("a", make_role("first", 1, cpu="1"), later)
    first = stage.add_pods(jobset, "first")
    stage.look()
    stage.remove(*first)
    counts = [{"name": "first", "succeeded": 1}]
    jobset = stage.merge(JOB_SETS, "a", {"status": {"replicatedJobsStatus": counts}})
    nodes = stage.add_pods(jobset, "node")
    stage.look()
    assert stage.is_bound(*nodes)


CONFLICT = {"metadata": {"annotations": {WAITING: '{"reason":"NameConflict","message":"x","since":"y"}'}}}
SOLVED = {"metadata": {"annotations": {WAITING: None}}}


def make_staged_gang(stage: Stage, name: str) -> tuple[Object, list[str]]:
    """One that needs one CPU first and four after that; its first Pods are there."""
    later = make_role("node", 1, after={"first": "Complete"}, cpu="4")
    jobset = stage.add_jobset(name, make_role("first", 1, cpu="1"), later)
    return jobset, stage.add_pods(jobset, "first")


def test_a_gang_that_somebody_has_to_help_gives_back_what_it_does_not_use() -> None:
    stage = Stage(cpu="4")
    jobset, first = make_staged_gang(stage, "a")
    stage.look()
    other = stage.add_gang("b", 1, cpu="3")
    stage.merge(JOB_SETS, "a", CONFLICT)
    stage.look()
    assert not stage.is_bound(*other), "a stage still runs, and its place for the next one is kept"
    stage.end(*first)
    stage.look()
    assert stage.is_bound(*other)
    stage.merge(JOB_SETS, "a", SOLVED)
    nodes = stage.add_pods(jobset, "node")
    small = stage.add_gang("c", 1, cpu="1")
    stage.look()
    assert not stage.is_bound(*nodes) and not stage.is_bound(*small), "it is the next one, but has to wait for its turn"
    stage.end(*other)
    stage.look()
    assert stage.is_bound(*nodes) and not stage.is_bound(*small)


def test_gangs_that_come_back_at_once_start_one_after_the_other() -> None:
    """What they hold together is then more than there is, and each must still get through all of its stages."""
    stage = Stage(cpu="4")
    later = make_role("second", 1, {"first": "Complete"}, cpu="1"), make_role("third", 1, {"second": "Ready"}, cpu="3")
    jobsets = []
    for name in "ab":
        jobset = stage.add_jobset(name, make_role("first", 1, cpu="1"), *later)
        first = stage.add_pods(jobset, "first")
        stage.look()
        stage.end(*first)
        stage.merge(JOB_SETS, name, CONFLICT)
        jobsets.append(jobset)
    for name in "ab":
        stage.merge(JOB_SETS, name, SOLVED)
    seconds = [stage.add_pods(jobset, "second") for jobset in jobsets]
    stage.look()
    assert stage.is_bound(*seconds[0]) and not stage.is_bound(*seconds[1])
    third = stage.add_pods(jobsets[0], "third")
    stage.look()
    assert stage.is_bound(*third)
    stage.end(*seconds[0], *third)
    stage.look()
    assert stage.is_bound(*seconds[1])


def test_a_restart_that_somebody_has_to_help_keeps_nobody_waiting() -> None:
    stage = Stage(cpu="4")
    stage.add_jobset("first", make_role("node", 1, cpu="4"), restarts=1)
    other = stage.add_gang("other", 1, cpu="4")
    stage.look()
    assert not stage.is_bound(*other)
    stage.merge(JOB_SETS, "first", CONFLICT)
    stage.look()
    assert stage.is_bound(*other)
