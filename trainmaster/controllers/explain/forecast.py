"""Predicts whether an object that does not exist yet would start: now, later, or never. Used by `trainmaster check`.

Like the proposals of `explain`, the answer comes from the real scheduler on a copy of the view. The object is added
behind all others of its priority; an existing one of the same name is replaced. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_spec
from trainmaster.api.resources import JOB_SETS, LIMIT_RANGES, NODES
from trainmaster.api.v1jobs.frameworks import FRAMEWORKS
from trainmaster.api.workloads import build_gang
from trainmaster.client.view import View
from trainmaster.controllers.explain.changes import describe_sharing
from trainmaster.controllers.explain.world import HYPOTHETICAL_UID, Overlay, judge_gang, read_ledger
from trainmaster.controllers.scheduler.node_room import NodeRoom
from trainmaster.controllers.scheduler.queue_pass import SchedulingVerdict, VerdictKind
from trainmaster.controllers.scheduler.reconciler import NODE
from trainmaster.controllers.scheduler.sentences import describe, list_all_obstacles
from trainmaster.jobs.models.nodes import Node
from trainmaster.kit.timeline import Now

NOW, LATER, NEVER = "now", "later", "never"
_GANGS = {"JobSet": JOB_SETS, **{framework.kind: framework.gvr for framework in FRAMEWORKS}}
"""Kinds whose Pods start together; the scheduler knows any other Pod by its uid."""


@dataclass(frozen=True, slots=True)
class StartForecast:
    state: str
    """`now`; `later`, when there is room; or `never`, unless the job or the node is changed."""
    text: str = ""
    """For `later`: what it would wait for."""
    obstacles: tuple[str, ...] = ()
    """For `never`: one sentence each, in the order in which to remove them."""


def forecast(view: View, obj: Object, now: Now) -> StartForecast | None:
    """`obj`: a JobSet, a v1 job, a Job or a Pod with its defaults. None if nothing can be said: without a node of ours
    in the view, only quotas are known."""
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    world, gvr = Overlay(view), _GANGS.get(obj["kind"])
    if gvr is None:
        gang = HYPOTHETICAL_UID
        world.add_pod(namespace, name, _read_pod_spec(obj), now)
    else:
        gang, before = build_gang(namespace, HYPOTHETICAL_UID), world.find(gvr, namespace, name)
        if before is not None:
            world.drop_gang(build_gang(namespace, before["metadata"]["uid"]))
        world.add_gang(gvr, obj, now)
    never, full = (world.list_exceeded(namespace, alone=alone) for alone in (True, False))
    if view.find(NODES, "", NODE) is None:
        return StartForecast(NEVER, obstacles=tuple(never)) if never else None
    world.play(now)
    found = None if world.has_started(gang) else judge_gang(world, gang)
    is_stuck = found is not None and found[0].kind is VerdictKind.STUCK
    obstacles = (*never, *(_list_obstacles(world, *found[:2]) if found is not None and is_stuck else ()))
    if obstacles:
        return StartForecast(NEVER, obstacles=obstacles)
    unless = "; the LimitRange of its namespace may change this" if view.list(LIMIT_RANGES, namespace) else ""
    if full:
        return StartForecast(LATER, f"{'; '.join(full)}: it waits until other jobs of the namespace end{unless}")
    if found is None:
        return StartForecast(NOW, unless.removeprefix("; "))
    if found[0].kind is not VerdictKind.WAITS:
        return StartForecast(LATER, found[0].message)
    return StartForecast(LATER, f"{describe(*found[:2], read_ledger(world).list_holders())}{unless}")


def _read_pod_spec(obj: Object) -> Fields:
    """Of a Pod or a Job. The Pods of a Job start one by one, so one of them is considered."""
    return read_spec(obj) if obj["kind"] == "Pod" else read_fields(obj, "spec", "template", "spec")


def _list_obstacles(world: Overlay, verdict: SchedulingVerdict, room: NodeRoom) -> Iterator[str]:
    node = world.find(NODES, "", NODE)
    for obstacle in list_all_obstacles(verdict, room):
        if obstacle.change is not None:
            how = f"`{obstacle.change.how}` changes that" if obstacle.change.patch else obstacle.change.how
            yield f"{obstacle.text}; {how}"
            continue
        shared = describe_sharing(verdict, Node(node)) if obstacle.is_jobs and node is not None else None
        yield f"{obstacle.text}{f'; or {shared[1]}, so that jobs share CPUs' if shared is not None else ''}"
