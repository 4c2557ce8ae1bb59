"""Invariants of sharing one node (I17): no overcommitment, no GPU leased twice, no partial gangs.

The first two hold at every binding: only the scheduler binds, and its view includes its own writes. The last holds for
every plan, and is checked again at rest, because a crash may interrupt a plan. Imported for its checks, which register
themselves.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.simulation import quiescence, steps
from tests.simulation.machine import read_gang_uid
from tests.simulation.quiescence import Rest, get_name
from tests.simulation.steps import BUCKETS, PODS, TRAINING, Step, find_verdict, get_phase, is_going, show
from trainmaster.api import labels
from trainmaster.api.devices import list_leased
from trainmaster.api.meta import Object
from trainmaster.api.pods.requests import Amounts, add_into, count_requests, read_amounts
from trainmaster.api.resources import PODS as POD_GVR
from trainmaster.client.view import View
from trainmaster.client.writes import Patch
from trainmaster.engine.plan import Plan
from trainmaster.jobs.models.v1jobs import MODELS

NODE = ("nodes", "local")
STATUS: Object = {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "100", "nvidia.com/gpu": "2"}}
"""The capacity of the simulated node: small, so that jobs compete."""
_SIZES: tuple[dict[str, str], ...] = (
    {},
    {"cpu": "1"},
    {"cpu": "2"},
    {"nvidia.com/gpu": "1"},
    {"nvidia.com/gpu": "1"},
    {"cpu": "4"},
)
_CROWDED = 3
"""In one of so many worlds jobs request resources. In the others Pods can always start at once, which finds bugs in the
order of actions."""


def set_size(seed: int, trainjob: Object) -> None:
    """Sets the resources of each node, with a separate random sequence, so that the rest does not change."""
    if seed % _CROWDED:
        return
    meta, trainer = trainjob["metadata"], trainjob["spec"]["trainer"]
    limits = random.Random(f"{seed}/{meta['name']}/{trainer.get('numNodes')}").choice(_SIZES)
    if limits:
        trainer["resourcesPerNode"] = {"limits": dict(limits), "requests": dict(limits)}


def is_running(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and get_phase(pod) not in ("Succeeded", "Failed")


def _list_others(step: Step) -> Iterable[Object]:
    return (
        pod for (bucket, name), pod in step.shadow.items() if bucket == PODS and name != step.name and is_running(pod)
    )


def _is_binding(step: Step) -> bool:
    if step.bucket != PODS or step.after is None or step.before is None:
        return False
    return not step.before["spec"].get("nodeName") and bool(step.after["spec"].get("nodeName"))


@steps.invariant("I17")
def check_nothing_is_overcommitted(step: Step) -> str | None:
    if not _is_binding(step) or step.after is None:
        return None
    taken: Amounts = count_requests(step.after["spec"])
    for pod in _list_others(step):
        add_into(taken, count_requests(pod["spec"]))
    offered = read_amounts((step.shadow[NODE].get("status") or {}).get("allocatable"))
    over = [
        f"{name} {amount} of {offered[name]}" for name, amount in taken.items() if amount > offered.get(name, amount)
    ]
    return f"{show(step)} is bound to a full node: {', '.join(over)}" if over else None


@steps.invariant("I17")
def check_devices_are_leased_once(step: Step) -> str | None:
    if not _is_binding(step) or step.after is None:
        return None
    own = list_leased(step.after)
    asked = count_requests(step.after["spec"]).get("nvidia.com/gpu", 0)
    if len(own) != asked:
        return f"{show(step)} asks for {asked} GPUs and gets {len(own)}"
    for pod in _list_others(step):
        twice = set(own) & set(list_leased(pod))
        if twice:
            return f"{show(step)} gets {sorted(twice)}, which {pod['metadata']['name']} has"
    return None


def check_binding_plan(view: View, plan: Plan) -> Iterator[str]:
    """A plan that binds Pods of a gang leaves none of them waiting, or has bound as many as the job needs; those that
    succeeded are not needed any more."""
    starting = {
        (write.namespace, write.name)
        for write in plan.all_writes
        if isinstance(write, Patch) and "nodeName" in (write.patch.get("spec") or ())
    }
    if not starting:
        return
    gangs: dict[tuple[str, str], list[bool]] = {}
    succeeded: Counter[tuple[str, str]] = Counter()
    for pod in view.list(POD_GVR):
        key, place = _find_gang(pod), (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if key is not None and get_phase(pod) == "Succeeded":
            succeeded[key] += 1
        elif key is not None and not is_going(pod) and get_phase(pod) != "Failed":
            is_bound = bool(pod["spec"].get("nodeName")) or place in starting
            gangs.setdefault(key, []).append(is_bound)
    for uid, attempt in {key for key in map(_find_gang, _list_pods(view, starting)) if key is not None}:
        found = gangs.get((uid, attempt), [])
        least = _find_least(view, uid)
        if not all(found) and (not least or sum(found) + succeeded[uid, attempt] < least):
            yield f"binds {sum(found)} of {len(found)} Pods of the gang {uid[:8]}, attempt {attempt}"


def _list_pods(view: View, places: Iterable[tuple[str, str]]) -> Iterator[Object]:
    return (pod for place in places if (pod := view.find(POD_GVR, *place)) is not None)


def _find_gang(pod: Object) -> tuple[str, str] | None:
    """(uid of the JobSet or v1 job, attempt); None for a Pod that is a gang of its own."""
    uid = read_gang_uid(pod)
    return (uid, (pod["metadata"].get("labels") or {}).get(labels.RESTART_ATTEMPT, "0")) if uid else None


def _find_least(view: View, uid: str) -> int:
    """How many Pods a v1 job has to start with; 0 for all."""
    jobs = (job for model in MODELS for job in view.list(model.gvr))
    return next((get_least(job) for job in jobs if job["metadata"]["uid"] == uid), 0)


def get_least(job: Object) -> int:
    policy = (job["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
    return int(policy.get("minAvailable") or 0)


@quiescence.invariant("I17")
def check_no_gang_is_half_bound(rest: Rest) -> Iterable[str]:
    gangs: dict[tuple[str, str], list[bool]] = {}
    for pod in rest.list(PODS):
        gang = _find_gang(pod)
        if get_phase(pod) not in ("Succeeded", "Failed") and not is_going(pod) and gang is not None:
            gangs.setdefault(gang, []).append(bool(pod["spec"].get("nodeName")))
    for (uid, attempt), found in gangs.items():
        job = next((obj for obj in rest.objects.values() if obj["metadata"]["uid"] == uid), None)
        is_half = any(found) and not all(found)
        if is_half and job is not None and not _may_be_half_bound(rest, job):
            yield f"some Pods of {get_name(job)}, attempt {attempt}, have a node and some have none"


def has_room(rest: Rest, pod: Object) -> bool:
    """Whether what runs leaves enough for a Pod."""
    needed: Amounts = count_requests(pod["spec"])
    for other in filter(is_running, rest.list(PODS)):
        add_into(needed, count_requests(other["spec"]))
    offered = read_amounts((rest.objects[NODE].get("status") or {}).get("allocatable"))
    return all(amount <= offered.get(name, amount) for name, amount in needed.items())


def _may_be_half_bound(rest: Rest, job: Object) -> bool:
    """Pods of a job that has ended may be left, but get no node any more. A v1 job that was scaled while it ran may
    wait for room, and says so. One that needs fewer Pods is judged by `v1_resting`."""
    if get_least(job):
        return True
    is_over = bool(find_verdict(BUCKETS[job["kind"]], job))
    was_changed = BUCKETS[job["kind"]] in TRAINING and job["metadata"]["name"] in rest.disturbed
    return is_over or (was_changed and bool((job.get("status") or {}).get("waiting")))
