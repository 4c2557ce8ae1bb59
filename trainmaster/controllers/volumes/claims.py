"""One pass over a PersistentVolumeClaim: binds it to an existing volume, or to one created for it.

A volume that refers to the claim, or that the claim refers to, comes first; then a matching unbound volume; then, if
the class is ours, a new volume. Its name is derived from the claim's uid, so it is never created twice. `volumes` keeps
the volume's own state; the node creates and removes directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from trainmaster.api.formats import quantity
from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from trainmaster.api.storage import DEFAULT_CLASS, DRIVER, FINALIZER, PROVISIONED_BY, PROVISIONER
from trainmaster.client.view import View
from trainmaster.client.writes import Create, WriteRefusal
from trainmaster.engine.controller import Controller
from trainmaster.engine.draft import ObjectDraft, build_patch
from trainmaster.engine.plan import NOTHING, Plan
from trainmaster.engine.request import Request
from trainmaster.engine.source import ChangeSource, map_to_self
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.volumes import PersistentVolume, PersistentVolumeClaim
from trainmaster.kit.timeline import Now

REPORTER = "persistentvolume-controller"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_NO_CLASS = "no persistent volumes available for this claim and no storage class is set"


def reconcile(view: View, request: Request, now: Now, refusals: Sequence[WriteRefusal] = ()) -> Plan:
    raw = view.find(PERSISTENT_VOLUME_CLAIMS, request.namespace, request.name)
    if raw is None:
        return NOTHING
    claim = PersistentVolumeClaim(raw)
    if claim.is_deleting or refusals:
        return NOTHING
    draft = ObjectDraft(PERSISTENT_VOLUME_CLAIMS, claim, versioned=False)
    if claim.volume and claim.phase in ("Bound", "Lost"):
        _follow(view, claim, draft)
    elif (volume := _find_volume(view, claim)) is not None:
        _bind(claim, volume, _find_class_name(view, claim), draft)
    else:
        _provide(view, claim, draft)
    return draft.build_plan()


def _find_class_name(view: View, claim: PersistentVolumeClaim) -> str | None:
    """None if the claim names no class and there is no default class."""
    asked = claim.spec.get("storageClassName")
    if asked is not None:
        return str(asked)
    classes = (ObjectModel(entry) for entry in view.list(STORAGE_CLASSES))
    found = [entry for entry in classes if entry.annotations.get(DEFAULT_CLASS) == "true"]
    # The newest default class, as upstream.
    newest = max(found, key=lambda entry: (entry.created_at, entry.name), default=None)
    return newest.name if newest else None


def _find_volume(view: View, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    if claim.volume:
        found = view.find(PERSISTENT_VOLUMES, "", claim.volume)
        named = PersistentVolume(found) if found is not None else None
        return named if named is not None and _may_take(named, claim) else None
    every = (PersistentVolume(entry) for entry in view.list(PERSISTENT_VOLUMES))
    volumes = [volume for volume in every if not volume.is_deleting and _may_take(volume, claim)]
    for volume in volumes:
        if volume.claim:
            return volume
    fitting = [volume for volume in volumes if _fits(volume, claim)]
    return min(fitting, key=lambda volume: (_get_size(volume.capacity), volume.name), default=None)


def _may_take(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.claim
    if not reference:
        return True
    same = (reference.get("namespace"), reference.get("name")) == (claim.namespace, claim.name)
    return same and reference.get("uid", claim.uid) == claim.uid


def _fits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.storage_class == claim.storage_class
        and volume.volume_mode == claim.volume_mode
        and set(claim.access_modes) <= set(volume.access_modes)
        and _get_size(volume.capacity) >= _get_size(claim.requests)
        and not claim.spec.get("selector")
    )


def _get_size(amounts: Fields) -> Fraction:
    return quantity.parse(amounts.get("storage", 0))


def _provide(view: View, claim: PersistentVolumeClaim, draft: ObjectDraft) -> None:
    """Creates a volume, or emits an event if that is not possible. A new class or volume triggers another pass."""
    name = _find_class_name(view, claim)
    storage_class = view.find(STORAGE_CLASSES, "", name) if name else None
    problem = _find_problem(claim, name, storage_class)
    if problem is not None:
        reason, text = problem
        draft.note(claim, reason, text, warning=reason != "ExternalProvisioning", action="Binding")
        return
    assert storage_class is not None, "without one there is a problem"
    volume = _build_volume(claim, storage_class)
    draft.write(Create(PERSISTENT_VOLUMES, volume))
    made = f"Successfully provisioned volume {volume['metadata']['name']}"
    draft.note(claim, "ProvisioningSucceeded", made, action="Provisioning")
    _bind(claim, PersistentVolume(volume), name, draft)


def _find_problem(
    claim: PersistentVolumeClaim, name: str | None, storage_class: Fields | None
) -> tuple[str, str] | None:
    """Why no volume can be created: the reason and message of an event."""
    if not name or claim.volume:
        return "FailedBinding", _NO_CLASS if not name else "the volume that it names cannot be had"
    if storage_class is None:
        return "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found'
    if storage_class["provisioner"] != PROVISIONER:
        text = (
            "Waiting for a volume to be created either by the external provisioner "
            f"'{storage_class['provisioner']}' or manually by the system administrator."
        )
        return "ExternalProvisioning", text
    if claim.volume_mode == "Block":
        return "ProvisioningFailed", "volumes of this class are directories: volumeMode must be Filesystem"
    return None


def _build_volume(claim: PersistentVolumeClaim, storage_class: Object) -> Object:
    name = f"pvc-{claim.uid}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": [FINALIZER]},
        "spec": {
            "accessModes": list(claim.spec["accessModes"]),
            "capacity": {"storage": claim.requests["storage"]},
            "claimRef": build_reference(claim),
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": "Filesystem",
        },
    }


def build_reference(claim: PersistentVolumeClaim) -> Object:
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "namespace": claim.namespace, "name": claim.name, "uid": claim.uid}


def _bind(
    claim: PersistentVolumeClaim, volume: PersistentVolume, storage_class: str | None, draft: ObjectDraft
) -> None:
    """Updates the volume first, then the claim, so that the next pass can finish the binding after a crash."""
    if volume.claim.get("uid") != claim.uid:
        body = {"spec": {"claimRef": build_reference(claim)}}
        draft.write(build_patch(PERSISTENT_VOLUMES, volume, body, versioned=True))
    if claim.volume != volume.name or BIND_COMPLETED not in claim.annotations:
        spec: Object = {"volumeName": volume.name}
        if "storageClassName" not in claim.spec and storage_class is not None:
            spec["storageClassName"] = storage_class
        marks = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        body = {"metadata": {"annotations": marks}, "spec": spec}
        draft.write(build_patch(PERSISTENT_VOLUME_CLAIMS, claim, body))
    _set_bound(volume, draft)


def _set_bound(volume: PersistentVolume, draft: ObjectDraft) -> None:
    draft.status |= {"phase": "Bound", "accessModes": list(volume.access_modes), "capacity": dict(volume.capacity)}


def _follow(view: View, claim: PersistentVolumeClaim, draft: ObjectDraft) -> None:
    """Handles a bound claim: it may have requested more storage, which a directory always has, and its volume may have
    been deleted."""
    found = view.find(PERSISTENT_VOLUMES, "", claim.volume)
    if found is None:
        draft.status["phase"] = "Lost"
        if claim.phase != "Lost":
            text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            draft.note(claim, "ClaimLost", text, warning=True, action="Binding")
        return
    volume, asked = PersistentVolume(found), claim.requests.get("storage")
    if volume.is_ours and asked is not None and quantity.parse(asked) > _get_size(volume.capacity):
        grow = {"spec": {"capacity": {"storage": asked}}}
        draft.write(build_patch(PERSISTENT_VOLUMES, volume, grow))
    else:
        _set_bound(volume, draft)


def map_volume(view: View, volume: Object) -> Iterable[Request]:
    """The claim that the volume refers to; otherwise all waiting claims."""
    reference = PersistentVolume(volume).claim
    if reference:
        return (Request(reference.get("namespace", ""), reference.get("name", "")),)
    return list(_list_waiting(view))


def map_class(view: View, storage_class: Object) -> Iterable[Request]:
    return list(_list_waiting(view))


def _list_waiting(view: View) -> Iterable[Request]:
    for claim in map(PersistentVolumeClaim, view.list(PERSISTENT_VOLUME_CLAIMS)):
        if claim.phase != "Bound":
            yield Request(claim.namespace, claim.name)


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
