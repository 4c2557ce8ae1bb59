"""A copy of what the scheduler sees, for questions that begin with "what if".

An `Overlay` is a view with some objects changed; nothing is written anywhere. `play` lets the real scheduler decide on
it (its own `reconcile`, pass after pass, carrying out nothing but bindings) until nobody else would start. So an answer
is never a second opinion about the rules of the queue.

Used by `changes` and `reasons`; the property test in tests/flow carries out what is promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from trainmaster.api import labels, quantity
from trainmaster.api.meta import GVR, Object
from trainmaster.api.patches import merge
from trainmaster.api.pods.phases import is_over
from trainmaster.api.pods.quotas import Usage, list_unspecified, measure_pod
from trainmaster.api.resources import JOB_SETS, JOBS, NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS
from trainmaster.api.training.steps import list_jobs
from trainmaster.client.view import View, summarize
from trainmaster.client.writes import Patch
from trainmaster.controllers.scheduler.ledger import SchedulingLedger, read_attempt
from trainmaster.controllers.scheduler.reconciler import BIND, reconcile
from trainmaster.controllers.scheduler.shapes import read_shape
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Now

SUPPOSED = "supposed"
"""The uid of a JobSet that is only thought of."""
_LISTED = (PODS, JOB_SETS, JOBS, NODES)
_MOST_PASSES = 10_000
"""Each binds a Pod at least, so that an end comes anyway; this catches a scheduler that goes round in circles."""


def read_ledger(view: View) -> SchedulingLedger:
    """The scheduler's own summary of a view, brought up to date as the scheduler does before it looks."""
    ledger = summarize(view, SchedulingLedger)
    ledger.settle()
    return ledger


class Overlay:
    """Implements `client.view.View`. Objects are shared with the view below: they are replaced, never changed."""

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

    # View

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
        return [
            obj
            for obj in self.list(gvr, namespace)
            if any(ref["uid"] == owner_uid and ref.get("controller") for ref in _list_owners(obj))
        ]

    # What if

    def put(self, gvr: GVR, obj: Object) -> None:
        place = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if gvr in self._objects:
            self._objects[gvr][place] = obj
        else:
            self._others[(gvr, *place)] = obj

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        self._objects[gvr].pop((namespace, name), None)

    def drop_gang(self, namespace: str, name: str) -> None:
        """The JobSet goes, with its Jobs and Pods."""
        self.drop(JOB_SETS, namespace, name)
        for gvr in (JOBS, PODS):
            for obj in self.list(gvr, namespace, {labels.JOBSET_NAME: name}):
                self.drop(gvr, namespace, obj["metadata"]["name"])

    def add_gang(self, jobset: Object, now: Now) -> None:
        """The JobSet comes new, with the Pods that its Jobs would make first."""
        own = {name: value for name, value in jobset["metadata"].items() if name != "annotations"}
        meta = {**own, "uid": SUPPOSED, "creationTimestamp": format_time(now.wall), "generation": 1}
        obj = {**jobset, "metadata": meta, "spec": {**jobset["spec"], "suspend": False}, "status": {}}
        self.put(JOB_SETS, obj)
        for pod in self._build_pods(obj):
            self.put(PODS, pod)

    def fits_quotas(self, namespace: str) -> bool:
        """Whether the Pods of the namespace that are not over, those thought of among them, keep to its quotas."""
        pods = [pod["spec"] for pod in self.list(PODS, namespace) if not is_over(pod)]
        for quota in self._base.list(RESOURCE_QUOTAS, namespace):
            hard = quota["spec"].get("hard") or {}
            total: Usage = {"pods": Fraction(len(pods)), "count/pods": Fraction(len(pods))}
            for spec in pods:
                for name, amount in measure_pod(spec).items():
                    total[name] = total.get(name, Fraction(0)) + amount
            if any(total.get(name, Fraction(0)) > quantity.parse(limit) for name, limit in hard.items()):
                return False
            if any(list_unspecified(spec, hard) for spec in pods):
                return False
        return True

    def play(self, now: Now) -> None:
        """Until nobody who waits would start."""
        for _ in range(_MOST_PASSES):
            plan = reconcile(self, BIND, now)
            bindings = [
                write for write in plan.all_writes if isinstance(write, Patch) and "nodeName" in _get_spec(write.patch)
            ]
            if not bindings:
                return
            for write in bindings:
                pod = self._objects[PODS][write.namespace, write.name]
                self.put(PODS, merge.apply(pod, write.patch))
        raise AssertionError("the scheduler finds no end")

    def has_started(self, namespace: str, name: str) -> bool:
        """All Pods that the JobSet has now are bound."""
        jobset = self.find(JOB_SETS, namespace, name)
        if jobset is None:
            return False
        attempt = read_shape(jobset).attempt
        marks = {labels.JOBSET_UID: jobset["metadata"]["uid"]}
        pods = [pod for pod in self.list(PODS, namespace, marks) if read_attempt(pod) == attempt]
        return bool(pods) and all(pod["spec"].get("nodeName") for pod in pods)

    def _build_pods(self, jobset: Object) -> Iterator[Object]:
        meta = jobset["metadata"]
        specs = {job["name"]: job for job in list_jobs(jobset["spec"])}
        for role in read_shape(jobset).roles:
            if not role.starts_first:
                continue
            template = specs[role.name]["template"]["spec"].get("template") or {}
            marks = {
                **((template.get("metadata") or {}).get("labels") or {}),
                labels.JOBSET_NAME: meta["name"],
                labels.JOBSET_UID: meta["uid"],
                labels.REPLICATED_JOB_NAME: role.name,
                labels.RESTART_ATTEMPT: "0",
            }
            spec = _complete(template.get("spec") or {})
            spec["priority"] = self._find_priority(spec)
            for number in range(role.width):
                name = f"{meta['name']}-{role.name}-{SUPPOSED}-{number}"
                head = {"name": name, "namespace": meta["namespace"], "uid": name, "labels": marks}
                head |= {"creationTimestamp": meta["creationTimestamp"], "resourceVersion": "0"}
                yield {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}

    def _find_priority(self, spec: Mapping[str, object]) -> int:
        """As admission: of the class that is named, else of the default one."""
        name = spec.get("priorityClassName")
        classes = self._base.list(PRIORITY_CLASSES)
        chosen = [entry for entry in classes if entry["metadata"]["name"] == name] if name else []
        if not name:
            chosen = [entry for entry in classes if entry.get("globalDefault")]
        return max((int(entry.get("value") or 0) for entry in chosen), default=0)


def _complete(spec: Object) -> Object:
    """A limit without a request asks for as much: Pods are stored so, templates are not."""
    done = dict(spec)
    for group in ("containers", "initContainers"):
        if spec.get(group):
            done[group] = [_complete_container(container) for container in spec[group]]
    return done


def _complete_container(container: Object) -> Object:
    resources = container.get("resources") or {}
    if not resources.get("limits"):
        return container
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def _has_labels(obj: Object, wanted: Mapping[str, str]) -> bool:
    own = obj["metadata"].get("labels") or {}
    return all(own.get(key) == value for key, value in wanted.items())


def _list_owners(obj: Object) -> Sequence[Mapping[str, object]]:
    return obj["metadata"].get("ownerReferences") or ()


def _get_spec(patch: Mapping[str, object]) -> Mapping[str, object]:
    spec = patch.get("spec")
    return spec if isinstance(spec, dict) else {}
