"""What the REST API shows of nodes and of the queue: built from the caller's own lists, with the scheduler's rules.

Imported on demand, because it imports the scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trainmaster.api.devices import Device, list_devices
from trainmaster.api.meta import Fields, Object
from trainmaster.api.node_policy import NAME, NAMESPACE, read_node_policy
from trainmaster.api.pods.requests import CPU, Amounts, add_into, count_requests, read_amounts
from trainmaster.api.reading import read_text
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, NODES, PODS
from trainmaster.app.rest.node_loads import Load, lease_unnamed, list_loads
from trainmaster.client.contract import Client
from trainmaster.client.listed import ListedView, fetch
from trainmaster.client.view import View
from trainmaster.controllers.explain import gathering
from trainmaster.controllers.explain.world import read_ledger
from trainmaster.controllers.scheduler.ledger import V1_MODELS
from trainmaster.controllers.scheduler.node_room import make_room
from trainmaster.controllers.scheduler.queue_pass import SchedulingPass, SchedulingVerdict, VerdictKind
from trainmaster.controllers.scheduler.reconciler import NODE
from trainmaster.controllers.scheduler.sentences import describe
from trainmaster.jobs.kinds import TRAINING_KINDS, get_kind_name
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.nodes import Drain, Node
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.troubles import find_trouble

_SHOWN_LABELS = 64


async def read_nodes(client: Client) -> list[Object]:
    """StatusError 403 if the caller may not list nodes. What is taken is known to those who may list all Pods."""
    nodes = (await client.list(NODES)).items
    view = await fetch(client, dict.fromkeys((PODS, JOB_SETS, JOBS, *V1_MODELS), ""), needed=(PODS,))
    return build_nodes(nodes, None if PODS in view.missing else view)


def build_nodes(nodes: list[Object], view: ListedView | None) -> list[Object]:
    """`view`: None if the Pods are not known."""
    if view is None:
        return [_build_node(node, None, {}) for node in nodes]
    loads: defaultdict[str, list[Load]] = defaultdict(list)
    for load in list_loads(view):
        loads[load.node].append(load)
    leases: Mapping[str, str] = read_ledger(view).leases
    return [_build_node(node, loads[node["metadata"]["name"]], leases) for node in nodes]


def _build_node(raw: Object, loads: Sequence[Load] | None, leases: Mapping[str, str]) -> Object:
    node, devices = Node(raw), list_devices(raw)
    taken = None if loads is None else _sum_requests([load for load in loads if not _is_idle_mirror(load)])
    if loads is not None:
        leases = {**leases, **lease_unnamed(devices, loads, leases)}
    has, offers = read_amounts(node.capacity), read_amounts(node.allocatable)
    return {
        "name": node.name,
        "ready": node.is_true("Ready"),
        "cordoned": node.is_cordoned,
        "drain": _build_drain(node.drain),
        "created_at": node.created_at,
        "labels": dict(sorted(node.labels.items())[:_SHOWN_LABELS]),
        "conditions": [_build_condition(condition) for condition in node.conditions],
        "resources": [
            {
                "name": name,
                "capacity": _scale(name, has.get(name, 0)),
                "allocatable": _scale(name, offers.get(name, 0)),
                "taken": None if taken is None else _scale(name, taken.get(name, 0)),
            }
            for name in sorted({*has, *offers})
        ],
        "gpus": [_build_gpu(device, leases, is_known=loads is not None) for device in devices],
        "jobs": None if loads is None else _build_jobs(loads),
    }


def _build_drain(drain: Drain | None) -> Object | None:
    if drain is None:
        return None
    by, reason = drain.by or None, drain.reason or None
    return {"since": drain.since, "by": by, "reason": reason, "ends_with_start": drain.ends_with_start}


def _is_idle_mirror(load: Load) -> bool:
    """Whether it has no process and takes no place: those of a home, for the scheduler, too."""
    return load.is_mirror and load.requests.keys() <= {"pods"}


def _build_jobs(loads: Sequence[Load]) -> list[Object]:
    """Without the Pods that mirror the control plane."""
    jobs: dict[tuple[str, str, str], list[Load]] = {}
    for load in loads:
        if not load.is_mirror:
            jobs.setdefault((load.namespace, load.job, load.kind), []).append(load)
    return [_build_job(jobs[key]) for key in sorted(jobs)]


def _build_job(loads: Sequence[Load]) -> Object:
    return {
        "namespace": loads[0].namespace,
        "name": loads[0].job,
        "kind": loads[0].kind or None,
        "uid": loads[0].uid or None,
        "pods": len(loads),
        "requests": _scale_all(_sum_requests(loads)),
    }


def _sum_requests(loads: Sequence[Load]) -> Amounts:
    total: Amounts = {}
    for load in loads:
        add_into(total, load.requests)
    return total


def _build_condition(condition: Fields) -> Object:
    return {
        "type": read_text(condition, "type"),
        "status": read_text(condition, "status"),
        "reason": read_text(condition, "reason") or None,
        "message": read_text(condition, "message") or None,
        "since": read_text(condition, "lastTransitionTime") or None,
    }


def _build_gpu(device: Device, leases: Mapping[str, str], *, is_known: bool) -> Object:
    job = leases.get(device.id)
    state = "leased" if job else "unhealthy" if device.unhealthy else "held" if device.held else ""
    return {
        "index": device.index,
        "id": device.id,
        "product": device.product or None,
        "memory_mib": device.memory_mib or None,
        "state": state or ("free" if is_known else "unknown"),
        "reason": device.unhealthy or device.held or None,
        "job": job,
    }


def _scale_all(amounts: Mapping[str, int]) -> dict[str, float]:
    return {name: _scale(name, amount) for name, amount in sorted(amounts.items()) if amount > 0}


def _scale(name: str, amount: int) -> float:
    """CPUs in cores, all others as they are: bytes and numbers."""
    return amount / 1000 if name == CPU else amount


async def read_queue(client: Client, namespace: str) -> Object:
    """`namespace`: of the jobs that the caller may read; "" is all."""
    view = await gathering.collect(client, namespace)
    # Without these the queue would have gaps that nobody sees.
    is_whole = view.missing.isdisjoint((PODS, JOB_SETS, NODES))
    return build_queue(view, namespace, is_whole=is_whole and view.find(NODES, "", NODE) is not None)


def build_queue(view: View, namespace: str, *, is_whole: bool) -> Object:
    """What waits, in the order in which it will start. `is_whole`: the view has the jobs of everybody and our node;
    otherwise each waiting job says itself what it waits for."""
    jobs = {job.uid: job for model in TRAINING_KINDS.values() for job in map(model, view.list(model.gvr, namespace))}
    entries = list(_judge_all(view, jobs)) if is_whole else []
    judged = {entry["uid"] for entry in entries}
    waiting = sorted((job for job in jobs.values() if job.waiting and job.uid not in judged), key=_get_age)
    entries = [entry for entry in entries if namespace in ("", entry["namespace"])]
    untold = [] if is_whole else [job for job in jobs.values() if not job.waiting]
    return {"whole": is_whole, "items": [*entries, *map(_build_waiting, waiting), *_list_unscheduled(view, untold)]}


def _list_unscheduled(view: View, jobs: Sequence[TrainingJob]) -> Iterator[Object]:
    """Upstream's controllers do not say in a job what it waits for, but the cluster's scheduler says it in the Pods."""
    pods: defaultdict[tuple[str, str, str], list[Pod]] = defaultdict(list)
    for pod in map(Pod, view.list(PODS)):
        if pod.unscheduled and not pod.is_deleting and not pod.is_over:
            for label, name in pod.labels.items():
                pods[pod.namespace, label, name].append(pod)
    for job in sorted(jobs, key=_get_age):
        own = pods.get((job.namespace, job.pod_label, job.name), [])
        if not job.state_ignoring_deletion.is_final and (trouble := find_trouble(own)) is not None:
            total: Amounts = {}
            for pod in own:
                add_into(total, count_requests(pod.spec))
            told = {"reason": trouble.reason, "sentence": trouble.message, "since": job.created_at}
            yield {**_build_waiting(job), **told, "requests": _scale_all(total)}


def _judge_all(view: View, jobs: Mapping[str, TrainingJob]) -> Iterator[Object]:
    """The scheduler's verdicts, those with a position first."""
    node = view.find(NODES, "", NODE)
    assert node is not None
    ledger = read_ledger(view)
    room = make_room(node, ledger)
    policy = read_node_policy(view.find(CONFIG_MAPS, NAMESPACE, NAME))
    look = SchedulingPass(view, ledger, Node(node), room, policy, to_the_end=True).run()
    owners = _map_owners(view)
    for verdict in sorted(look.waiting, key=_get_place):
        if verdict.kind in (VerdictKind.WAITS, VerdictKind.STUCK):
            uid = verdict.gang.id.partition("/")[2]
            job = jobs.get(owners.get(uid, uid))
            yield _build_verdict(verdict, job, describe(verdict, room, ledger.list_holders()))


def _map_owners(view: View) -> dict[str, str]:
    """By uid of a JobSet, that of its TrainJob."""
    owners = {}
    for jobset in view.list(JOB_SETS):
        for reference in JobSet(jobset).owners:
            owners[jobset["metadata"]["uid"]] = str(reference["uid"])
    return owners


def _build_verdict(verdict: SchedulingVerdict, job: TrainingJob | None, sentence: str) -> Object:
    namespace, _, name = verdict.gang.label.partition("/")
    waiting: Fields = {} if job is None else job.waiting
    return {
        "position": verdict.position or None,
        "namespace": namespace,
        "name": name,
        "kind": None if job is None else get_kind_name(type(job)),
        "uid": None if job is None else job.uid,
        "reason": read_text(waiting, "reason") or None,
        "sentence": sentence,
        "since": read_text(waiting, "since") or verdict.gang.created or None,
        "priority": verdict.gang.priority,
        "requests": _scale_all(verdict.growth),
    }


def _build_waiting(job: TrainingJob) -> Object:
    waiting = job.waiting
    return {
        "position": None,
        "namespace": job.namespace,
        "name": job.name,
        "kind": get_kind_name(type(job)),
        "uid": job.uid,
        "reason": job.waiting_reason or None,
        "sentence": read_text(waiting, "message"),
        "since": read_text(waiting, "since") or None,
        "priority": None,
        "requests": {},
    }


def _get_place(verdict: SchedulingVerdict) -> tuple[bool, int, str]:
    return not verdict.position, verdict.position, verdict.gang.created


def _get_age(job: TrainingJob) -> tuple[str, str]:
    return read_text(job.waiting, "since") or job.created_at, job.uid
