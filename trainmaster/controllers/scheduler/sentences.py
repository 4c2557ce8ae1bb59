"""Why a gang waits, in one sentence: what it asks for and what is free, its position, what would let it start.

waiting for 2 GPUs: 1 of 2 free; third in the queue behind default/a and default/b; starts when default/c ends

In the namespace of a tenant, jobs of other users are counted instead of named (`apart`):

waiting for 2 GPUs: 1 of 2 free; third in the queue behind 2 jobs of other users; starts when 1 job of another user ends
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from trainmaster.api.pods.requests import CPU, GPU, PODS, read_amounts, render_amount
from trainmaster.controllers.scheduler.ledger import Gang
from trainmaster.controllers.scheduler.node_room import NodeRoom
from trainmaster.controllers.scheduler.placement import Obstacle
from trainmaster.controllers.scheduler.queue_pass import SHOWN, SchedulingVerdict, VerdictKind
from trainmaster.jobs.models.nodes import Node

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_NAMED = 3
"""The maximum number of names in a list; the rest is counted."""
_HOLDERS = 100
"""The maximum number of running gangs to examine, to limit the cost of a sentence."""


def describe(verdict: SchedulingVerdict, room: NodeRoom, holders: Iterable[Gang], *, apart: str = "") -> str:
    """`apart`: the only namespace whose jobs are named; "" names all jobs."""
    if verdict.kind is VerdictKind.STUCK:
        return _describe_stuck(verdict, room, apart)
    needs = ", ".join(_describe_need(verdict, room, name) for name in verdict.lacking)
    troubles = room.list_troubles(discreet=bool(apart)) if GPU in verdict.lacking else []
    position, start = _describe_position(verdict, apart), _describe_start(verdict, room, holders, apart)
    return "; ".join(part for part in (f"waiting for {needs}", *troubles, position, start) if part)


def list_all_obstacles(verdict: SchedulingVerdict, room: NodeRoom) -> list[Obstacle]:
    """In the order in which to remove them: first those for which the job has to be submitted again."""
    own = [_describe_impossible(verdict, room)] if verdict.lacking else []
    return sorted([*own, *verdict.obstacles], key=lambda obstacle: not obstacle.is_jobs)


def _describe_stuck(verdict: SchedulingVerdict, room: NodeRoom, apart: str) -> str:
    found = list_all_obstacles(verdict, room)
    texts = [obstacle.discreet or obstacle.text if apart else obstacle.text for obstacle in found]
    if len(texts) == 1:
        change = found[0].change if not apart else None
        return f"{texts[0]}; `{change.how}` changes that" if change is not None and change.patch else texts[0]
    who = "the job" if verdict.gang.names_job else "it"
    parts = "; ".join(f"({number}) {text}" for number, text in enumerate(texts, 1))
    return f"{who} cannot start for {len(texts)} reasons: {parts}"


def name_amount(name: str, amount: int) -> str:
    if name == GPU:
        return f"{amount} GPU{'s' if amount != 1 else ''}"
    if name == CPU:
        return f"{render_amount(name, amount)} CPU{'s' if amount != 1000 else ''}"
    if name == PODS:
        return f"{amount} place{'s' if amount != 1 else ''} for Pods"
    if name in ("memory", "ephemeral-storage"):
        return f"{render_amount(name, amount)} of {name}"
    return f"{amount} of {name}"


def describe_overcommit(node: Node) -> str:
    """Whether jobs may request more CPUs than the node has; "" if not."""
    has, offers = (read_amounts(amounts).get(CPU, 0) for amounts in (node.capacity, node.allocatable))
    if not 0 < has < offers:
        return ""
    owned, offered = name_amount(CPU, has), render_amount(CPU, offers)
    return f"jobs on node {node.name} share its {owned}: together they may request {offered} (setting node.overcommit)"


def _describe_need(verdict: SchedulingVerdict, room: NodeRoom, name: str) -> str:
    growth, free = verdict.growth.get(name, 0), room.get_free(name)
    there = f"{render_amount(name, max(0, free))} of {render_amount(name, room.count(name))} free"
    text = f"{name_amount(name, growth)}: {there}"
    return f"{text} and kept for those ahead" if 0 < growth <= free and verdict.kept.get(name) else text


def _describe_impossible(verdict: SchedulingVerdict, room: NodeRoom) -> Obstacle:
    texts, steps = [], []
    for name in verdict.lacking:
        asked, there = name_amount(name, verdict.need.get(name, 0)), room.count(name)
        texts.append(f"{asked}, node {room.node} has {render_amount(name, there) if there else 'none'}")
        steps.append(f"ask for at most {name_amount(name, there)} in total" if there else f"leave out {name}")
    who = "the job asks" if verdict.gang.names_job else "it asks"
    advice = "ask for less, or use fewer nodes" if verdict.gang.names_job else "ask for less"
    if not any(map(room.count, verdict.lacking)):
        advice = "leave them out, or run it on another machine"
    return Obstacle(f"{who} for {'; '.join(texts)}: {advice}", advice=", ".join(steps), is_jobs=True)


def _describe_position(verdict: SchedulingVerdict, apart: str) -> str:
    if not verdict.position:
        return ""
    if verdict.position > SHOWN:
        return f"behind {SHOWN} others or more in the queue"
    number = _ORDINALS[verdict.position - 1] if verdict.position <= len(_ORDINALS) else f"{verdict.position}th"
    if not verdict.ahead:
        return f"{number} in the queue"
    return f"{number} in the queue behind {join(verdict.ahead, apart)}"


def join(labels: Sequence[str], apart: str = "") -> str:
    """ "a", "a and b", "a, b, c and 4 others", "n/a and 2 jobs of other users"."""
    own = [label for label in labels if not apart or label.startswith(f"{apart}/")]
    parts = own[:_NAMED]
    if more := len(own) - len(parts):
        parts.append(f"{more} other{'s' if more > 1 else ''}")
    if strangers := len(labels) - len(own):
        parts.append("1 job of another user" if strangers == 1 else f"{strangers} jobs of other users")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _describe_start(verdict: SchedulingVerdict, room: NodeRoom, holders: Iterable[Gang], apart: str) -> str:
    """Which running gangs would have to end. Resources for the gangs ahead have to become free as well."""
    missing = {}
    for name in verdict.lacking:
        gap = verdict.growth.get(name, 0) + verdict.kept.get(name, 0) - room.get_free(name)
        if gap > 0:
            missing[name] = gap
    found = [gang for gang in islice(holders, _HOLDERS) if any(gang.holds.get(name) for name in missing)]
    if not missing or not found:
        return ""
    single = [gang.label for gang in found if all(gang.holds.get(name, 0) >= gap for name, gap in missing.items())]
    if len(single) == 1:
        return f"starts when {join(single, apart)} ends"
    if single:
        return f"starts when one of {join(single, apart)} ends"
    needed = _choose(found, dict(missing))
    if needed:
        return f"starts when {join(needed, apart)} have ended"
    return f"starts after {join(verdict.ahead, apart)}, once enough has ended" if verdict.ahead else ""


def _choose(gangs: Sequence[Gang], missing: dict[str, int]) -> list[str]:
    """Gangs that together hold enough, largest first; empty if all of them are not enough."""
    chosen = []
    for gang in sorted(gangs, key=lambda item: _measure(item.holds, missing), reverse=True):
        chosen.append(gang.label)
        for name in tuple(missing):
            missing[name] -= gang.holds.get(name, 0)
            if missing[name] <= 0:
                del missing[name]
        if not missing:
            return chosen
    return []


def _measure(holds: Mapping[str, int], missing: Mapping[str, int]) -> float:
    return sum(holds.get(name, 0) / gap for name, gap in missing.items())
