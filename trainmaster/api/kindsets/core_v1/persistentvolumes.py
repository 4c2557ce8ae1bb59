"""PersistentVolume: a piece of storage in the cluster."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import NO_CLOUD, OBJECT, A, H, N, R
from trainmaster.api.declaring.kinds import Column, Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.formats import quantity
from trainmaster.api.kindsets.core_v1.persistentvolumeclaims import MODES
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load

_SOURCES = frozenset(
    (
        "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker",
        "gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local", "nfs", "photonPersistentDisk",
        "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
    )
)  # fmt: skip
_POLICIES = ("Delete", "Recycle", "Retain")
_IMMUTABLE = "spec.persistentvolumesource is immutable after creation"


def default(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    spec["persistentVolumeReclaimPolicy"] = spec.get("persistentVolumeReclaimPolicy") or "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    if spec.get("hostPath") is not None:
        spec["hostPath"].setdefault("type", "")


def prepare(volume: Object) -> None:
    volume["status"] = {"phase": "Pending"}


def validate(new: Object, old: Object | None) -> list[FieldError]:
    spec = new.get("spec") or {}
    errors = _check_modes(spec)
    capacity = spec.get("capacity") or {}
    if not capacity:
        errors.append(fields.required("spec.capacity"))
    elif set(capacity) != {"storage"}:
        errors.append(fields.not_supported("spec.capacity", sorted(capacity)[0], ("storage",)))
    for name, amount in capacity.items():
        if quantity.parse(amount) <= 0:
            errors.append(fields.invalid(f"spec.capacity[{name}]", amount, "must be greater than zero"))
    if spec.get("persistentVolumeReclaimPolicy") not in _POLICIES:
        path = "spec.persistentVolumeReclaimPolicy"
        errors.append(fields.not_supported(path, spec.get("persistentVolumeReclaimPolicy"), _POLICIES))
    given = [name for name in spec if name in _SOURCES]
    if not given:
        errors.append(fields.required("spec", "must specify a volume type"))
    errors += [fields.forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in given[1:]]
    where = (spec.get("hostPath") or {}).get("path")
    if "hostPath" in given and not where:
        errors.append(fields.required("spec.hostPath.path"))
    elif where and ".." in where.split("/"):
        errors.append(fields.invalid("spec.hostPath.path", where, "must not contain '..'"))
    if old is not None and _get_source(new) != _get_source(old):
        errors.append(fields.forbidden("spec.persistentvolumesource", _IMMUTABLE))
    if old is not None and spec.get("volumeMode") != old["spec"].get("volumeMode"):
        errors.append(fields.invalid("spec.volumeMode", spec.get("volumeMode"), "field is immutable"))
    return errors


def _check_modes(spec: Object) -> list[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        return [fields.required("spec.accessModes")]
    return [fields.not_supported("spec.accessModes", mode, sorted(MODES)) for mode in modes if mode not in MODES]


def _get_source(volume: Object) -> Object:
    return {name: source for name, source in _spec(volume).items() if name in _SOURCES}


def _spec(volume: Object) -> Object:
    spec: Object = volume.get("spec") or {}
    return spec


def _get_phase(volume: Object, now: float) -> str:
    if "deletionTimestamp" in volume["metadata"]:
        return "Terminating"
    return str((volume.get("status") or {}).get("phase", ""))


def _get_claim(volume: Object, now: float) -> str:
    reference = _spec(volume).get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


_CLOUD_SOURCES = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "glusterfs", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd",
    "scaleIO", "storageos", "vsphereVolume",
)  # fmt: skip

PERSISTENT_VOLUME = Kind(
    group="",
    version="v1",
    kind="PersistentVolume",
    plural="persistentvolumes",
    singular="persistentvolume",
    namespaced=False,
    definition="io.k8s.api.core.v1.PersistentVolume",
    load=partial(load, "io.k8s.api.core.v1.PersistentVolume"),
    short_names=("pv",),
    status=True,
    columns=(
        cells.NAME,
        Column("Capacity", lambda volume, now: (_spec(volume).get("capacity") or {}).get("storage", "")),
        Column(
            "Access Modes",
            lambda volume, now: cells.join(MODES.get(mode, mode) for mode in _spec(volume).get("accessModes") or ()),
        ),
        Column("Reclaim Policy", lambda volume, now: _spec(volume).get("persistentVolumeReclaimPolicy", "")),
        Column("Status", _get_phase),
        Column("Claim", _get_claim),
        Column("StorageClass", lambda volume, now: _spec(volume).get("storageClassName", "")),
        Column("VolumeAttributesClass", lambda volume, now: _spec(volume).get("volumeAttributesClassName", "<unset>")),
        Column("Reason", lambda volume, now: (volume.get("status") or {}).get("reason", "")),
        cells.AGE,
        Column("VolumeMode", lambda volume, now: _spec(volume).get("volumeMode", ""), priority=1),
    ),
    default=default,
    validate=validate,
    prepare=prepare,
    generation=False,
    fidelity={
        **OBJECT,
        "spec": {
            **dict.fromkeys(_CLOUD_SOURCES, NO_CLOUD),
            "accessModes": (A, "all modes are allowed, because there is only one machine"),
            "capacity": (A, "recorded, not enforced"),
            "claimRef": H,
            "csi": (A, "only our own driver, whose handle is a directory in the home"),
            "hostPath": H,
            "local": (A, "as hostPath"),
            "mountOptions": R,
            "nodeAffinity": (N, "there is only one node"),
            "persistentVolumeReclaimPolicy": (A, "Delete removes directories in the home; others are kept"),
            "storageClassName": H,
            "volumeAttributesClassName": R,
            "volumeMode": (A, "Filesystem"),
        },
        "status": H,
    },
)
