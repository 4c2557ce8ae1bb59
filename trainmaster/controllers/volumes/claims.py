"""One pass over a PersistentVolumeClaim: it is bound to a volume that fits, or to one that is made for it.

A volume that names the claim, or that the claim names, goes first; then one that somebody made by hand and nobody has;
then, where the class is ours, a new one. Its name is derived from the claim's uid, so that it is never made twice. The
volume's own state is kept by `volumes`; directories are made and removed by the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trainmaster.api import quantity
from trainmaster.api.meta import Object
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from trainmaster.api.storage import DEFAULT_CLASS, DRIVER, FINALIZER, PROVISIONED_BY, PROVISIONER
from trainmaster.client.view import View
from trainmaster.client.writes import Create, Patch, Write, WriteRefusal
from trainmaster.controllers.ownership import is_terminating
from trainmaster.engine.controller import Controller
from trainmaster.engine.plan import NOTHING, Note, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.kit.timeline import Now

REPORTER = "persistentvolume-controller"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_NO_CLASS = "no persistent volumes available for this claim and no storage class is set"
_RETRY_SECONDS = 5.0


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    if refusals:
        return Plan(requeue_after=_RETRY_SECONDS)
    claim = view.find(PERSISTENT_VOLUME_CLAIMS, request.namespace, request.name)
    if claim is None or is_terminating(claim):
        return NOTHING
    if claim["spec"].get("volumeName") and _get_phase(claim) in ("Bound", "Lost"):
        return _follow(view, claim)
    volume = _find_volume(view, claim)
    if volume is not None:
        return _bind(claim, volume, _find_class_name(view, claim))
    return _provide(view, claim)


def _get_phase(obj: Object) -> str:
    return str((obj.get("status") or {}).get("phase", ""))


def _find_class_name(view: View, claim: Object) -> str | None:
    """None: the claim names no class, and there is no default one."""
    asked = claim["spec"].get("storageClassName")
    if asked is not None:
        return str(asked)
    found = [
        entry["metadata"]
        for entry in view.list(STORAGE_CLASSES)
        if (entry["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    ]
    # The newest of several, as upstream.
    newest = max(found, key=lambda meta: (meta.get("creationTimestamp", ""), meta["name"]), default=None)
    return newest["name"] if newest else None


def _find_volume(view: View, claim: Object) -> Object | None:
    meta, spec = claim["metadata"], claim["spec"]
    if name := spec.get("volumeName"):
        found = view.find(PERSISTENT_VOLUMES, "", name)
        return found if found is not None and _may_take(found, meta) else None
    volumes = [entry for entry in view.list(PERSISTENT_VOLUMES) if not is_terminating(entry) and _may_take(entry, meta)]
    for volume in volumes:
        if volume["spec"].get("claimRef"):
            return volume
    wanted = spec.get("storageClassName") or ""
    fitting = [entry for entry in volumes if _fits(entry, spec, wanted)]
    return min(
        fitting, key=lambda entry: (_get_size(entry["spec"]["capacity"]), entry["metadata"]["name"]), default=None
    )


def _may_take(volume: Object, claim: Object) -> bool:
    reference = volume["spec"].get("claimRef")
    if not reference:
        return True
    same = (reference.get("namespace"), reference.get("name")) == (claim["namespace"], claim["name"])
    return same and reference.get("uid", claim["uid"]) == claim["uid"]


def _fits(volume: Object, wanted: Object, storage_class: str) -> bool:
    spec = volume["spec"]
    return (
        (spec.get("storageClassName") or "") == storage_class
        and spec.get("volumeMode", "Filesystem") == wanted.get("volumeMode", "Filesystem")
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and _get_size(spec.get("capacity") or {}) >= _get_size((wanted.get("resources") or {}).get("requests") or {})
        and not wanted.get("selector")
    )


def _get_size(amounts: Any) -> Any:
    return quantity.parse(amounts.get("storage", 0))


def _provide(view: View, claim: Object) -> Plan:
    name = _find_class_name(view, claim)
    if not name or claim["spec"].get("volumeName"):
        return _wait(claim, "FailedBinding", _NO_CLASS if not name else "the volume that it names cannot be had")
    storage_class = view.find(STORAGE_CLASSES, "", name)
    if storage_class is None:
        return _wait(claim, "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found')
    if storage_class["provisioner"] != PROVISIONER:
        text = (
            "Waiting for a volume to be created either by the external provisioner "
            f"'{storage_class['provisioner']}' or manually by the system administrator."
        )
        return _wait(claim, "ExternalProvisioning", text)
    if claim["spec"].get("volumeMode") == "Block":
        return _wait(
            claim, "ProvisioningFailed", "volumes of this class are directories: volumeMode must be Filesystem"
        )
    volume = _build_volume(claim, storage_class)
    made = f"Successfully provisioned volume {volume['metadata']['name']}"
    plan = _bind(claim, volume, name)
    note = Note(claim, "ProvisioningSucceeded", made, action="Provisioning")
    return Plan((Create(PERSISTENT_VOLUMES, volume), *plan.writes), plan.status, (note,))


def _wait(claim: Object, reason: str, text: str) -> Plan:
    """Only an event: what would help wakes us (a class, a volume)."""
    return Plan(notes=(Note(claim, reason, text, warning=reason != "ExternalProvisioning", action="Binding"),))


def _build_volume(claim: Object, storage_class: Object) -> Object:
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": [FINALIZER]},
        "spec": {
            "accessModes": list(spec["accessModes"]),
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": build_reference(claim),
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": "Filesystem",
        },
    }


def build_reference(claim: Object) -> Object:
    meta = claim["metadata"]
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}


def _bind(claim: Object, volume: Object, storage_class: str | None) -> Plan:
    """First the volume says whose it is, then the claim says what it has: the next pass sees a crash in between."""
    meta, name = claim["metadata"], volume["metadata"]["name"]
    writes: list[Write] = []
    if (volume["spec"].get("claimRef") or {}).get("uid") != meta["uid"]:
        head = {"uid": volume["metadata"]["uid"], "resourceVersion": volume["metadata"]["resourceVersion"]}
        body = {"metadata": head, "spec": {"claimRef": build_reference(claim)}}
        writes.append(Patch(PERSISTENT_VOLUMES, "", name, body))
    if claim["spec"].get("volumeName") != name or BIND_COMPLETED not in (meta.get("annotations") or {}):
        spec: Object = {"volumeName": name}
        if "storageClassName" not in claim["spec"] and storage_class is not None:
            spec["storageClassName"] = storage_class
        marks = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        body = {"metadata": {"uid": meta["uid"], "annotations": marks}, "spec": spec}
        writes.append(Patch(PERSISTENT_VOLUME_CLAIMS, meta["namespace"], meta["name"], body))
    return Plan(tuple(writes), _build_status(claim, volume))


def _build_status(claim: Object, volume: Object) -> Patch | None:
    meta = claim["metadata"]
    wanted = {
        "phase": "Bound",
        "accessModes": list(volume["spec"].get("accessModes") or ()),
        "capacity": dict(volume["spec"].get("capacity") or {}),
    }
    have = claim.get("status") or {}
    if all(have.get(key) == value for key, value in wanted.items()):
        return None
    body = {"metadata": {"uid": meta["uid"]}, "status": wanted}
    return Patch(PERSISTENT_VOLUME_CLAIMS, meta["namespace"], meta["name"], body, "status")


def _follow(view: View, claim: Object) -> Plan:
    """A bound claim: it may ask for more room, which a directory has, and its volume may have been taken away."""
    meta = claim["metadata"]
    volume = view.find(PERSISTENT_VOLUMES, "", claim["spec"]["volumeName"])
    if volume is None:
        if _get_phase(claim) == "Lost":
            return NOTHING
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        body = {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Lost"}}
        status = Patch(PERSISTENT_VOLUME_CLAIMS, meta["namespace"], meta["name"], body, "status")
        return Plan((), status, (Note(claim, "ClaimLost", text, warning=True, action="Binding"),))
    asked = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    ours = (volume["spec"].get("csi") or {}).get("driver") == DRIVER
    if ours and asked is not None and quantity.parse(asked) > _get_size(volume["spec"].get("capacity") or {}):
        head = {"uid": volume["metadata"]["uid"]}
        grow = Patch(
            PERSISTENT_VOLUMES,
            "",
            volume["metadata"]["name"],
            {"metadata": head, "spec": {"capacity": {"storage": asked}}},
        )
        return Plan((grow,))
    return Plan((), _build_status(claim, volume))


def map_volume(view: View, volume: Object) -> Iterable[Request]:
    """The claim that it names; without one, all claims that wait."""
    reference = volume["spec"].get("claimRef")
    if reference:
        return (Request(reference.get("namespace", ""), reference.get("name", "")),)
    return list(_list_waiting(view))


def map_class(view: View, storage_class: Object) -> Iterable[Request]:
    return list(_list_waiting(view))


def _list_waiting(view: View) -> Iterable[Request]:
    for claim in view.list(PERSISTENT_VOLUME_CLAIMS):
        if _get_phase(claim) != "Bound":
            yield Request(claim["metadata"]["namespace"], claim["metadata"]["name"])


CONTROLLER = Controller(
    name="claims",
    kind=PERSISTENT_VOLUME_CLAIMS,
    reconcile=reconcile,
    reporter=REPORTER,
    sources=(
        ChangeSource(PERSISTENT_VOLUME_CLAIMS, map_to_self),
        ChangeSource(PERSISTENT_VOLUMES, map_volume),
        ChangeSource(STORAGE_CLASSES, map_class),
    ),
)
