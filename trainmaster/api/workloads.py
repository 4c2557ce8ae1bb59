"""Whom a Pod works for: its topmost job, found through owner references, never through a label.

A label says what its author likes. An owner reference says as much, but can be verified: it counts when it names a
controller, and an object of that kind, name and uid exists in the Pod's own namespace. `node.workloads` walks up from a
Pod in this way; directories that outlive a Pod are handed out by what it finds.

What cannot wait for a look-up (addresses, the queue) uses `read_gang`: what the Pod's maker says of it, worth something
within the Pod's namespace only. In tenants' namespaces only our controllers make Pods that have a gang
(`apiserver.admission.ownership`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.resources import JOB_SETS, JOBS, TRAIN_JOBS

TRAIN_JOB, JOB_SET, JOB, POD = "TrainJob", "JobSet", "Job", "Pod"

_GROUPS = {TRAIN_JOB: TRAIN_JOBS, JOB_SET: JOB_SETS, JOB: JOBS}
_OWNERS = {POD: (JOB,), JOB: (JOB_SET,), JOB_SET: (TRAIN_JOB,)}
"""Whose Pods, Jobs and JobSets they may be. Kinds that make Pods themselves are added here, under `POD`."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A controller as an owner reference names it."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def gvr(self) -> GVR:
        return _GROUPS[self.kind]


@dataclass(frozen=True, slots=True)
class Workload:
    """A Pod's topmost job; the Pod itself when it works for nobody."""

    kind: str
    namespace: str
    name: str
    uid: str
    gang: str = ""
    """Uid of the object whose Pods start together and know each other; "" for a Pod alone."""
    gang_name: str = ""

    @property
    def trainjob(self) -> str:
        """Its uid; "" when the Pod works for no TrainJob."""
        return self.uid if self.kind == TRAIN_JOB else ""


def find_controller(obj: Fields, kind: str) -> Reference | None:
    """Who controls an object of that kind, by its own word; None when it is nobody that may."""
    meta = obj["metadata"]
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return _read_reference(owner, str(meta.get("namespace", "")), kind)
    return None


def _read_reference(owner: Mapping[str, Any], namespace: str, below: str) -> Reference | None:
    kind = str(owner.get("kind", ""))
    group, _, _ = str(owner.get("apiVersion", "")).rpartition("/")
    if kind not in _OWNERS.get(below, ()) or group != _GROUPS[kind].group:
        return None
    return Reference(kind, namespace, str(owner.get("name", "")), str(owner.get("uid", "")))


def is_named(found: Object | None, reference: Reference) -> bool:
    """Whether this is the object that the reference names: one of the same name with another uid is another."""
    return found is not None and bool(found["metadata"]["uid"] == reference.uid)


def build_workload(obj: Fields, kind: str, above: Workload | None) -> Workload:
    """`above`: whom its verified controller works for; None when there is none."""
    meta = obj["metadata"]
    is_gang = kind == JOB_SET
    if above is not None:
        return replace(above, gang=meta["uid"], gang_name=meta["name"]) if is_gang else above
    own = Workload(kind, str(meta.get("namespace", "")), meta["name"], meta["uid"])
    return replace(own, gang=own.uid, gang_name=own.name) if is_gang else own


def read_gang(pod: Mapping[str, Any]) -> str:
    """Which gang the Pod says it belongs to, as `NAMESPACE/UID of the JobSet`; "" when it says nothing. Not verified:
    whoever may make Pods in a namespace can join its gangs, and no others."""
    meta = pod["metadata"]
    uid = (meta.get("labels") or {}).get(JOBSET_UID)
    return build_gang(str(meta.get("namespace", "")), str(uid)) if uid else ""


def build_gang(namespace: str, jobset: str) -> str:
    return f"{namespace}/{jobset}"
