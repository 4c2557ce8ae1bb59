"""StorageClass: how volumes are provisioned for claims."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, A, H, N, R
from trainmaster.api.declaring.kinds import Column, Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load
from trainmaster.api.storage import DEFAULT_CLASS

_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_POLICIES = ("Delete", "Retain")


def default(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    if not new.get("provisioner"):
        errors.append(fields.required("provisioner"))
    if new.get("reclaimPolicy") not in _POLICIES:
        errors.append(fields.not_supported("reclaimPolicy", new.get("reclaimPolicy"), _POLICIES))
    if new.get("volumeBindingMode") not in _BINDING_MODES:
        errors.append(fields.not_supported("volumeBindingMode", new.get("volumeBindingMode"), _BINDING_MODES))
    if old is not None:
        for name in ("parameters", "provisioner", "reclaimPolicy"):
            if new.get(name) != old.get(name):
                errors.append(fields.forbidden(name, f"updates to {name} are forbidden."))
        if new.get("volumeBindingMode") != old.get("volumeBindingMode"):
            errors.append(fields.invalid("volumeBindingMode", new.get("volumeBindingMode"), "field is immutable"))
    return errors


def is_default(obj: Object) -> bool:
    return (obj["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"


def _get_name(obj: Object, now: float) -> str:
    return f"{obj['metadata']['name']} (default)" if is_default(obj) else str(obj["metadata"]["name"])


STORAGE_CLASS = Kind(
    group="storage.k8s.io",
    version="v1",
    kind="StorageClass",
    plural="storageclasses",
    singular="storageclass",
    namespaced=False,
    definition="io.k8s.api.storage.v1.StorageClass",
    load=partial(load, "io.k8s.api.storage.v1.StorageClass"),
    short_names=("sc",),
    columns=(
        Column("Name", _get_name, format="name"),
        Column("Provisioner", lambda obj, now: obj.get("provisioner", "")),
        Column("ReclaimPolicy", lambda obj, now: obj.get("reclaimPolicy", "")),
        Column("VolumeBindingMode", lambda obj, now: obj.get("volumeBindingMode", "")),
        Column("AllowVolumeExpansion", lambda obj, now: bool(obj.get("allowVolumeExpansion")), type="boolean"),
        cells.AGE,
    ),
    default=default,
    validate=validate,
    generation=False,
    fidelity={
        **OBJECT,
        "allowVolumeExpansion": (A, "always: sizes are not enforced"),
        "allowedTopologies": (N, "there is only one node"),
        "mountOptions": R,
        "parameters": R,
        "provisioner": (
            A,
            "volumes are created for our own provisioner; claims of others wait for a volume that you create",
        ),
        "reclaimPolicy": H,
        "volumeBindingMode": (A, "Immediate"),
    },
)

KINDS = (STORAGE_CLASS,)
