"""Invariants of a drain (I20): nothing is bound to a drained machine, and its end resumes what it has suspended, and no
other job.

Imported for its checks, which register themselves. Only scenarios drain the machine (`scenarios.DRAINED`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation import quiescence, steps
from tests.simulation.quiescence import Rest, get_name
from tests.simulation.steps import JOB_SETS, PODS, TRAIN_JOBS, Step, find_verdict, show
from trainmaster.api.labels import KEEPS_PLACE, SUSPENDED_BY_DRAIN
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations
from trainmaster.controllers.drain.reconciler import CONTROLLERS
from trainmaster.jobs.models.nodes import Node

NODE = ("nodes", "local")
CONTROLLER = "drain-trainjobs"
DRAINING = tuple(item for item in CONTROLLERS if item.name in (CONTROLLER, "drain-nodes"))


def _is_suspended(obj: Object | None) -> bool:
    return bool(((obj or {}).get("spec") or {}).get("suspend"))


def _is_marked(obj: Object) -> bool:
    return SUSPENDED_BY_DRAIN in read_annotations(obj)


@steps.invariant("I20")
def check_nothing_is_bound_to_a_drained_machine(step: Step) -> str | None:
    if step.bucket != PODS or step.after is None or not step.after["spec"].get("nodeName"):
        return None
    was_bound = step.before is not None and step.before["spec"].get("nodeName")
    if was_bound or Node(step.shadow[NODE]).drain is None:
        return None
    return f"{show(step)} is bound to a drained machine"


@steps.invariant("I20")
def check_who_suspends_and_resumes(step: Step) -> str | None:
    if step.actor != CONTROLLER or step.bucket != TRAIN_JOBS or step.before is None or step.after is None:
        return None
    is_drained = Node(step.shadow[NODE]).drain is not None
    if _is_suspended(step.before) and not _is_suspended(step.after):
        if is_drained:
            return f"{show(step)} is resumed on a drained machine"
        return None if _is_marked(step.before) else f"{show(step)} is resumed, which a person has suspended"
    if not _is_suspended(step.before) and _is_suspended(step.after):
        if not is_drained:
            return f"{show(step)} is suspended, and the machine is not drained"
        return None if _is_marked(step.after) else f"{show(step)} is suspended without a mark, so nobody resumes it"
    return None


@steps.invariant("I20")
def check_a_drained_job_keeps_its_place(step: Step) -> str | None:
    """The JobSet has its mark before the job is suspended, so no crash can lose the place."""
    if step.bucket != TRAIN_JOBS or step.actor != CONTROLLER or step.before is None or step.after is None:
        return None
    jobset = step.shadow.get((JOB_SETS, step.name))
    if _is_suspended(step.before) or not _is_suspended(step.after) or jobset is None:
        return None
    return None if KEEPS_PLACE in read_annotations(jobset) else f"{show(step)} is suspended and loses its place"


@quiescence.invariant("I20")
def check_a_drain_leaves_nothing_behind(rest: Rest) -> Iterable[str]:
    node = Node(rest.objects[NODE])
    for trainjob in rest.list(TRAIN_JOBS):
        if node.drain is None and _is_marked(trainjob) and not find_verdict(TRAIN_JOBS, trainjob):
            yield f"{get_name(trainjob)} is still marked after the drain"
    if node.drain is not None:
        for process in rest.processes.values():
            if not process.ended:
                yield f"the process of {process.pod} runs on a drained machine"
