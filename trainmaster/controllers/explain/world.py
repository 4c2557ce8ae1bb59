"""A copy of what the scheduler sees, for what-if questions.

An `Overlay` is a view with some objects changed; nothing is written anywhere. `play` runs the real scheduler on it (its
own `reconcile`, pass after pass, applying only the bindings) until no other gang would start, so the answers always
follow the scheduler's own rules.

Used by `changes` and `reasons`. A property test in tests/flow applies the proposed changes and checks that the jobs
start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from trainmaster.api import labels
from trainmaster.api.formats import quantity
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.node_policy import NAME, NAMESPACE, read_node_policy
from trainmaster.api.patches import merge
from trainmaster.api.pods.quotas import Usage, list_unspecified, measure_pod
from trainmaster.api.pods.requests import CPU, render_amount
from trainmaster.api.reading import read_fields, read_labels, read_spec
from trainmaster.api.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    LIMIT_RANGES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
)
from trainmaster.api.workloads import read_gang, read_v1_gang
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import Patch
from trainmaster.controllers.scheduler.ledger import V1_MODELS, SchedulingLedger
from trainmaster.controllers.scheduler.node_room import NodeRoom, make_room
from trainmaster.controllers.scheduler.queue_pass import SchedulingPass, SchedulingVerdict
from trainmaster.controllers.scheduler.reconciler import BIND, NODE, reconcile
from trainmaster.controllers.scheduler.shapes import read_shape
from trainmaster.controllers.v1jobs.pods import build_pod
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.quotas import ResourceQuota
from trainmaster.jobs.models.v1jobs import V1Job
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

HYPOTHETICAL_UID = "supposed"
"""The uid of a hypothetical JobSet or v1 job, or of a hypothetical Pod without one."""
HYPOTHETICAL_VERSION = "0"
"""The resource version of hypothetical Pods."""
_LISTED = (PODS, JOB_SETS, *V1_MODELS, JOBS, NODES)
_MOST_PASSES = 10_000
"""A safeguard against a scheduler that never finishes; normally each pass binds at least one Pod."""


def read_ledger(view: View) -> SchedulingLedger:
    """The scheduler's ledger for a view, settled and ready to be read."""
    ledger = summarize(view, SchedulingLedger)
    ledger.settle()
    return ledger


def judge_gang(view: View, gang: str) -> tuple[SchedulingVerdict, NodeRoom, int] | None:
    """The scheduler's verdict on a gang that does not run, what the node has, and how many gangs wait in the queue.
    None if there is no node of ours, or the gang does not wait."""
    node = view.find(NODES, "", NODE)
    if node is None:
        return None
    ledger = read_ledger(view)
    policy = read_node_policy(view.find(CONFIG_MAPS, NAMESPACE, NAME))
    room = make_room(node, ledger)
    # Visit the whole queue. The scheduler itself stops once no resources are left.
    look = SchedulingPass(view, ledger, Node(node), room, policy, to_the_end=True).run()
    queue = sum(1 for verdict in look.waiting if verdict.position)
    own = next((one for one in look.waiting if one.gang.id == gang), None)
    return None if own is None else (own, room, queue)


class Overlay:
    """Implements `client.view.View`. Objects are shared with the underlying view and never modified."""

    def __init__(self, base: View) -> None:
        self._base = base
        self._objects: dict[GVR, dict[tuple[str, str], Object]] = {
            gvr: {(obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj for obj in base.list(gvr)}
            for gvr in _LISTED
        }
        self._others: dict[tuple[GVR, str, str], Object] = {}

    def copy(self) -> Overlay:
        twin = object.__new__(Overlay)
        twin._base = self._base
        twin._objects = {gvr: dict(objects) for gvr, objects in self._objects.items()}
        twin._others = dict(self._others)
        return twin

    # The view

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        if gvr in self._objects:
            return self._objects[gvr].get((namespace, name))
        return self._others.get((gvr, namespace, name)) or self._base.find(gvr, namespace, name)

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        if gvr not in self._objects:
            return self._base.list(gvr, namespace, labels)
        return [
            obj
            for (space, _), obj in self._objects[gvr].items()
            if namespace in ("", space) and _has_labels(obj, labels or {})
        ]

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return [obj for obj in self.list(gvr, namespace) if ObjectModel(obj).is_owned_by(owner_uid)]

    # Hypothetical changes

    def put(self, gvr: GVR, obj: Object) -> None:
        place = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if gvr in self._objects:
            self._objects[gvr][place] = obj
        else:
            self._others[(gvr, *place)] = obj

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        self._objects[gvr].pop((namespace, name), None)

    def list_members(self, gang: str) -> Sequence[Object]:
        """The Pods of a gang."""
        pods = self.list(PODS, gang.partition("/")[0]) if gang else ()
        return [pod for pod in pods if gang in (read_gang(pod), read_v1_gang(pod))]

    def drop_gang(self, gang: str) -> None:
        """Removes the JobSet or v1 job with its Jobs and Pods."""
        namespace, _, uid = gang.partition("/")
        for pod in self.list_members(gang):
            self.drop(PODS, namespace, pod["metadata"]["name"])
        for job in self.owned(JOBS, namespace, uid):
            self.drop(JOBS, namespace, job["metadata"]["name"])
        for gvr in (JOB_SETS, *V1_MODELS):
            for obj in self.list(gvr, namespace):
                if obj["metadata"]["uid"] == uid:
                    self.drop(gvr, namespace, obj["metadata"]["name"])

    def add_gang(self, gvr: GVR, gang: Object, now: Now) -> None:
        """Adds the JobSet or v1 job as if it had just been created, with the Pods that would be created first."""
        own = {name: value for name, value in gang["metadata"].items() if name != "annotations"}
        meta = {**own, "uid": HYPOTHETICAL_UID, "creationTimestamp": format_time(now.wall), "generation": 1}
        model = V1_MODELS.get(gvr)
        resumed = {"spec": {"suspend": False}} if model is None else model.build_suspension(False)
        obj: Object = {**merge.apply(gang, resumed), "metadata": meta, "status": {}}
        self.put(gvr, obj)
        for pod in self._build_pods(JobSet(obj)) if model is None else self._build_v1_pods(model(obj)):
            self.put(PODS, pod)

    def add_pod(self, namespace: str, name: str, spec: Fields, now: Now) -> None:
        """Adds a Pod without a JobSet as if it had just been created."""
        meta = {"name": name, "namespace": namespace, "uid": HYPOTHETICAL_UID, "resourceVersion": HYPOTHETICAL_VERSION}
        done = _complete(spec) | {"priority": self._get_priority(spec)}
        self.put(PODS, {"metadata": {**meta, "creationTimestamp": format_time(now.wall)}, "spec": done})

    def fits_quotas(self, namespace: str) -> bool:
        """Whether the unfinished Pods of the namespace, including the hypothetical ones, are within its quotas."""
        return not self.list_exceeded(namespace)

    def list_exceeded(self, namespace: str, *, alone: bool = False) -> Sequence[str]:
        """The quotas that the unfinished Pods of the namespace exceed, one sentence each. `alone`: of the Pods only the
        hypothetical ones."""
        pods = [
            pod["spec"]
            for pod in self.list(PODS, namespace)
            if not Pod(pod).is_over and not (alone and pod["metadata"].get("resourceVersion") != HYPOTHETICAL_VERSION)
        ]
        found = []
        for quota in map(ResourceQuota, self._base.list(RESOURCE_QUOTAS, namespace)):
            total: Usage = {"pods": Fraction(len(pods)), "count/pods": Fraction(len(pods))}
            for spec in pods:
                for name, amount in measure_pod(spec).items():
                    total[name] = total.get(name, Fraction(0)) + amount
            for name, limit in quota.hard.items():
                amount = total.get(name, Fraction(0))
                if amount > quantity.parse(limit):
                    text = f"{name} would be {_render_usage(name, amount)}, and at most {limit} is allowed"
                    found.append(f"quota {quota.name} of namespace {namespace}: {text}")
            # A LimitRange usually adds what containers do not specify.
            checked = () if self._base.list(LIMIT_RANGES, namespace) else pods
            missing = sorted({text for spec in checked for text in list_unspecified(spec, quota.hard)})
            found += [f"quota {quota.name} of namespace {namespace}: it requires {text}" for text in missing]
        return found

    def play(self, now: Now) -> None:
        """Runs the scheduler until no waiting gang would start."""
        for _ in range(_MOST_PASSES):
            plan = reconcile(self, BIND, now)
            bindings = [
                write for write in plan.all_writes if isinstance(write, Patch) and "nodeName" in read_spec(write.patch)
            ]
            if not bindings:
                return
            for write in bindings:
                pod = self._objects[PODS][write.namespace, write.name]
                self.put(PODS, merge.apply(pod, write.patch))
        raise AssertionError("the scheduler finds no end")

    def has_started(self, gang: str) -> bool:
        """Whether all its current Pods are bound, except those that it does not need to start (`minAvailable`)."""
        found = read_ledger(self).gangs.get(gang)
        if found is None or not found.is_admitted:
            return False
        least = {role.name: role.least for role in found.shape.roles} if found.shape is not None else {}
        return all(
            not part.waiting or (role in least and part.bound + part.done >= least[role])
            for role, part in found.list_parts()
        )

    def _build_pods(self, jobset: JobSet) -> Iterator[Object]:
        specs = {job["name"]: job for job in jobset.replicated_jobs}
        for role in read_shape(jobset).roles:
            if not role.starts_first:
                continue
            template = read_fields(specs[role.name], "template", "spec", "template")
            marks = {
                **read_labels(template),
                labels.JOBSET_NAME: jobset.name,
                labels.JOBSET_UID: jobset.uid,
                labels.REPLICATED_JOB_NAME: role.name,
                labels.RESTART_ATTEMPT: "0",
            }
            spec = _complete(read_spec(template))
            spec["priority"] = self._get_priority(spec)
            for number in range(role.width):
                name = f"{jobset.name}-{role.name}-{HYPOTHETICAL_UID}-{number}"
                yield _make_pod(jobset, name, {"labels": marks}, spec)

    def _build_v1_pods(self, job: V1Job) -> Iterator[Object]:
        """One Pod of each type is built completely; the scheduler reads nothing in which the others differ."""
        for replica in job.replicas.values():
            pod = build_pod(job, replica, 0)
            spec = _complete(pod["spec"])
            spec["priority"] = self._get_priority(spec)
            for number in range(replica.count):
                name = f"{job.name}-{replica.word}-{HYPOTHETICAL_UID}-{number}"
                yield _make_pod(job, name, pod["metadata"], spec)

    def _get_priority(self, spec: Fields) -> int:
        """As in admission: the priority of the named class, otherwise of the default class."""
        name = spec.get("priorityClassName")
        classes = self._base.list(PRIORITY_CLASSES)
        chosen = [entry for entry in classes if entry["metadata"]["name"] == name] if name else []
        if not name:
            chosen = [entry for entry in classes if entry.get("globalDefault")]
        return max((int(entry.get("value") or 0) for entry in chosen), default=0)


def _make_pod(owner: ObjectModel, name: str, meta: Fields, spec: Fields) -> Object:
    own = {"name": name, "namespace": owner.namespace, "uid": name, "creationTimestamp": owner.created_at}
    head = {**meta, **own, "resourceVersion": HYPOTHETICAL_VERSION}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}


def _render_usage(name: str, amount: Fraction) -> str:
    resource = name.rpartition(".")[2]
    return render_amount(resource, math.ceil(amount * (1000 if resource == CPU else 1)))


def _complete(spec: Fields) -> Object:
    """Copies limits to missing requests. This is done for stored Pods, but not for templates."""
    done = dict(spec)
    for group in ("containers", "initContainers"):
        if spec.get(group):
            done[group] = [_complete_container(container) for container in spec[group]]
    return done


def _complete_container(container: Fields) -> Fields:
    resources = read_fields(container, "resources")
    if not resources.get("limits"):
        return container
    requests = {**resources["limits"], **read_fields(resources, "requests")}
    return {**container, "resources": {**resources, "requests": requests}}


def _has_labels(obj: Object, wanted: Mapping[str, str]) -> bool:
    own = obj["metadata"].get("labels")
    return all(own.get(key) == value for key, value in wanted.items()) if own else not wanted
