"""The ledger follows changes one by one, and must always say what one made anew from the same objects says."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.unit.controllers.scheduler.stage import Stage, make_role
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, PODS
from trainmaster.client.view import summarize
from trainmaster.controllers.scheduler.ledger import SchedulingLedger
from trainmaster.controllers.scheduler.shapes import get_peak, read_shape
from trainmaster.jobs.models.jobsets import JobSet

pytestmark = pytest.mark.unit


class Kept(Stage):
    """Tells one ledger of every change."""

    def __init__(self) -> None:
        self.ledger = SchedulingLedger()
        super().__init__(cpu="100", gpus=4)

    def add(self, gvr: Any, obj: Any) -> Object:
        made = super().add(gvr, obj)
        if gvr in SchedulingLedger.gvrs:
            self.ledger.put(gvr, made)
        return made

    def take_away(self, gvr: Any, name: str) -> None:
        del self.objects[gvr, "default", name]
        self.ledger.drop(gvr, "default", name)


def show(ledger: SchedulingLedger) -> object:
    ledger.settle()
    gangs = {
        gang.id: (gang.waits, gang.uses, gang.holds, gang.order is None, gang.marked, gang.is_admitted)
        for gang in ledger.gangs.values()
        if gang.parts or gang.order is not None
    }
    queue = sorted(gang.id for gang in ledger.list_queue())
    return gangs, ledger.held, ledger.firm, ledger.used, ledger.leases, queue, ledger.kinds, set(ledger.silent)


def change(stage: Kept, rng: random.Random) -> None:
    pods = [name for gvr, _, name in stage.objects if gvr == PODS]
    jobsets = [obj for (gvr, _, _), obj in stage.objects.items() if gvr == JOB_SETS]
    match rng.randrange(10):
        case 0:
            later = make_role("b", 1, after={"a": rng.choice(("Complete", "Ready"))}, cpu="3")
            stage.add_jobset(f"j{rng.randrange(4)}", make_role("a", 2, cpu="1", gpu="1"), later)
        case 1 if jobsets:
            stage.add_pods(rng.choice(jobsets), rng.choice("ab"), rng.choice((1, 2)), priority=rng.choice((0, 5)))
        case 2:
            stage.add_pod(f"p{rng.randrange(4)}", cpu="2")
        case 3 if pods:
            notes = {"trainmaster.dev/devices": f'{{"main":[{{"index":0,"id":"GPU-{rng.randrange(4)}"}}]}}'}
            stage.merge(PODS, rng.choice(pods), {"metadata": {"annotations": notes}, "spec": {"nodeName": "local"}})
        case 4 if pods:
            stage.merge(PODS, rng.choice(pods), {"status": {"phase": rng.choice(("Running", "Succeeded", "Failed"))}})
        case 5 if pods:
            stage.take_away(PODS, rng.choice(pods))
        case 6 if jobsets:
            jobset = rng.choice(jobsets)
            stage.merge(JOB_SETS, jobset["metadata"]["name"], {"status": {"restarts": rng.randrange(3)}})
        case 7 if jobsets:
            name = rng.choice(jobsets)["metadata"]["name"]
            if rng.random() < 0.5:
                stage.merge(JOB_SETS, name, {"spec": {"suspend": rng.random() < 0.5}})
            else:
                stage.take_away(JOB_SETS, name)
        case 8 if pods:
            said = {"conditions": [{"type": "PodScheduled", "status": "False", "message": rng.choice("xy")}]}
            marks = {"annotations": {"trainmaster.dev/waiting": rng.choice(("{}", None))}}
            stage.merge(PODS, rng.choice(pods), {"metadata": marks, "status": said})
        case 9 if jobsets:
            reason = rng.choice(('{"reason":"NameConflict"}', '{"reason":"Queued"}', None))
            marks = {"annotations": {"trainmaster.dev/waiting": reason}}
            stage.merge(JOB_SETS, rng.choice(jobsets)["metadata"]["name"], {"metadata": marks})


@pytest.mark.parametrize("seed", range(40))
def test_a_ledger_that_follows_changes_says_what_a_new_one_says(seed: int) -> None:
    rng = random.Random(seed)
    stage = Kept()
    for _ in range(80):
        change(stage, rng)
        if rng.random() < 0.3:
            stage.ledger.settle()
    # Two Pods with one device cannot come about through the scheduler; who is named then is left open.
    fresh = summarize(stage, SchedulingLedger)
    stage.ledger.leases = fresh.leases = {}
    assert show(stage.ledger) == show(fresh)


def measure_peak(*roles: Object) -> dict[str, int]:
    meta = {"uid": "u", "name": "a", "namespace": "default"}
    shape = read_shape(JobSet({"metadata": meta, "spec": {"replicatedJobs": list(roles)}}))
    return get_peak(
        [(role, {name: amount * role.width for name, amount in role.amounts.items()}) for role in shape.roles]
    )


@pytest.mark.parametrize(
    ("roles", "cpu"),
    [
        pytest.param((make_role("a", 2, cpu="1"), make_role("b", 1, cpu="3")), 5000, id="side by side"),
        pytest.param(
            (make_role("a", 2, cpu="1"), make_role("b", 1, after={"a": "Complete"}, cpu="3")), 3000, id="after"
        ),
        pytest.param((make_role("a", 2, cpu="1"), make_role("b", 1, after={"a": "Ready"}, cpu="3")), 5000, id="ready"),
        pytest.param(
            (
                make_role("a", cpu="4"),
                make_role("b", after={"a": "Ready"}, cpu="1"),
                make_role("c", after={"b": "Complete"}, cpu="2"),
            ),
            6000,
            id="what an ended one only waited for may run on",
        ),
        pytest.param(
            (
                make_role("a", cpu="4"),
                make_role("b", after={"a": "Complete"}, cpu="1"),
                make_role("c", after={"b": "Ready"}, cpu="2"),
            ),
            4000,
            id="what was over before the one before is over",
        ),
    ],
)
def test_the_peak_is_the_most_that_can_run_at_once(roles: tuple[Object, ...], cpu: int) -> None:
    assert measure_peak(*roles)["cpu"] == cpu
