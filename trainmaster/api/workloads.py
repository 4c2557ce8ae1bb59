"""The topmost job of a Pod, found through verified owner references.

Labels can be set by anyone. An owner reference can be verified: it counts if it names a controller, and an object of
that kind, name and uid exists in the Pod's namespace. `node.workloads` follows the references up from a Pod;
directories that outlive a Pod are assigned by the result.

Code that cannot wait for a look-up (addresses, the queue) uses `read_gang`, which is not verified and only valid within
the Pod's namespace. In tenants' namespaces only our controllers can create Pods with a gang
(`apiserver.admission.ownership`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.api.labels import JOBSET_UID, OWNER, RESUME_FROM, SUBMITTER
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_annotations
from trainmaster.api.resources import JOB_SETS, JOBS, TRAIN_JOBS
from trainmaster.api.v1jobs.frameworks import API_VERSION, FRAMEWORKS

TRAIN_JOB, JOB_SET, JOB, POD = "TrainJob", "JobSet", "Job", "Pod"

_V1 = {framework.kind: framework.gvr for framework in FRAMEWORKS}
_GROUPS = {TRAIN_JOB: TRAIN_JOBS, JOB_SET: JOB_SETS, JOB: JOBS, **_V1}
_OWNERS = {POD: (JOB, *_V1), JOB: (JOB_SET,), JOB_SET: (TRAIN_JOB,)}
"""The kinds of controllers that Pods, Jobs and JobSets may have."""
_TRAINING = frozenset((TRAIN_JOB, *_V1))
_GANGS = frozenset((JOB_SET, *_V1))


@dataclass(frozen=True, slots=True)
class Reference:
    """The controller in an owner reference."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def gvr(self) -> GVR:
        return _GROUPS[self.kind]


@dataclass(frozen=True, slots=True)
class Workload:
    """A Pod's topmost job; the Pod itself if it has no controller."""

    kind: str
    namespace: str
    name: str
    uid: str
    gang: str = ""
    """Uid of the object whose Pods start together and know each other; "" for a single Pod."""
    gang_name: str = ""
    is_owners: bool = False
    """Whether the owner of the installation submitted the job."""
    resume_from: str = ""
    """The checkpoint of another job that it begins with, as its author wrote it."""

    @property
    def trainjob(self) -> str:
        """The uid of the TrainJob or v1 job; "" if the Pod belongs to none."""
        return self.uid if self.kind in _TRAINING else ""


def find_controller(obj: Fields, kind: str) -> Reference | None:
    """The controller of the object according to its owner references, not verified; None if there is no valid one."""
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
    """Whether this is the referenced object, with the same uid."""
    return found is not None and bool(found["metadata"]["uid"] == reference.uid)


def build_workload(obj: Fields, kind: str, above: Workload | None) -> Workload:
    """`above`: the workload of its verified controller; None if it has no controller."""
    meta = obj["metadata"]
    is_gang = kind in _GANGS
    if above is not None:
        return replace(above, gang=meta["uid"], gang_name=meta["name"]) if is_gang else above
    notes = read_annotations(obj) if kind in _TRAINING else {}
    own = Workload(
        kind,
        str(meta.get("namespace", "")),
        meta["name"],
        meta["uid"],
        is_owners=notes.get(SUBMITTER) == OWNER,
        resume_from=notes.get(RESUME_FROM, ""),
    )
    return replace(own, gang=own.uid, gang_name=own.name) if is_gang else own


def read_gang(pod: Mapping[str, Any]) -> str:
    """The gang that the Pod claims to belong to, as `NAMESPACE/UID of the JobSet`; "" if none. Not verified: a user who
    may create Pods in a namespace can join its gangs, but no others."""
    meta = pod["metadata"]
    uid = (meta.get("labels") or {}).get(JOBSET_UID)
    return build_gang(str(meta.get("namespace", "")), str(uid)) if uid else ""


def read_v1_gang(pod: Mapping[str, Any]) -> str:
    """The same for a Pod that a v1 job controls, which is its own gang."""
    meta = pod["metadata"]
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("apiVersion") == API_VERSION:
            return build_gang(str(meta.get("namespace", "")), str(owner.get("uid", "")))
    return ""


def build_gang(namespace: str, uid: str) -> str:
    return f"{namespace}/{uid}"
