"""PersistentVolumeClaim: storage that outlives Pods."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, A, H, R
from trainmaster.api.declaring.kinds import ALL_VERBS, READ, WRITE, Column, DeletionRules, Kind, QuotaRules
from trainmaster.api.fields import FieldError
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

MODES = {"ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOnce": "RWO", "ReadWriteOncePod": "RWOP"}
_IMMUTABLE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def default(claim: Object) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim["spec"].setdefault("resources", {})


def prepare(claim: Object) -> None:
    claim["status"] = {"phase": "Pending"}


def validate(new: Object, old: Object | None) -> list[FieldError]:
    spec = new.get("spec") or {}
    errors = check_spec(spec, "spec")
    if old is not None and _fixed(new, old) != _fixed(old, old):
        errors.append(fields.forbidden("spec", _IMMUTABLE))
    return errors


def measure(claim: Object) -> dict[str, Fraction]:
    requests = read_fields(claim, "spec", "resources", "requests")
    return {"requests.storage": quantity.parse(requests.get("storage", "0"))}


def check_spec(spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    modes = spec.get("accessModes") or []
    if not modes:
        errors.append(fields.required(f"{path}.accessModes", "at least 1 access mode is required"))
    for mode in modes:
        if mode not in MODES:
            errors.append(fields.not_supported(f"{path}.accessModes", mode, sorted(MODES)))
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        errors.append(fields.forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes"))
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        errors.append(fields.required(f"{path}.resources[storage]"))
    elif quantity.parse(size) <= 0:
        errors.append(fields.invalid(f"{path}.resources[storage]", size, "must be greater than zero"))
    if name := spec.get("storageClassName"):
        errors += [fields.invalid(f"{path}.storageClassName", name, text) for text in names.subdomain(name)]
    if spec.get("volumeMode", "Filesystem") not in ("Block", "Filesystem"):
        errors.append(fields.not_supported(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem")))
    return errors


def _fixed(claim: Object, stored: Object) -> Object:
    """The immutable part of the spec. A bound claim may grow; volumeName is set when it is bound."""
    spec = dict(claim.get("spec") or {})
    if not (stored.get("spec") or {}).get("volumeName"):
        spec.pop("volumeName", None)
        if "storageClassName" not in (stored.get("spec") or {}):
            # The default class may be set on a claim without a class until it is bound.
            spec.pop("storageClassName", None)
    if (stored.get("status") or {}).get("phase") == "Bound":
        spec.pop("resources", None)
        spec.pop("volumeAttributesClassName", None)
    return spec


def _get_phase(claim: Object, now: float) -> str:
    if "deletionTimestamp" in claim["metadata"]:
        return "Terminating"
    return str((claim.get("status") or {}).get("phase", ""))


def _get_capacity(claim: Object, now: float) -> str:
    bound = (claim.get("spec") or {}).get("volumeName")
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", "")) if bound else ""


def _get_modes(claim: Object, now: float) -> str:
    if not (claim.get("spec") or {}).get("volumeName"):
        return ""
    return cells.join(MODES.get(mode, mode) for mode in (claim.get("status") or {}).get("accessModes") or ())


PERSISTENT_VOLUME_CLAIM = Kind(
    group="",
    version="v1",
    kind="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    singular="persistentvolumeclaim",
    namespaced=True,
    definition="io.k8s.api.core.v1.PersistentVolumeClaim",
    load=partial(load, "io.k8s.api.core.v1.PersistentVolumeClaim"),
    short_names=("pvc",),
    status=True,
    columns=(
        cells.NAME,
        Column("Status", _get_phase),
        Column("Volume", lambda claim, now: (claim.get("spec") or {}).get("volumeName", "")),
        Column("Capacity", _get_capacity),
        Column("Access Modes", _get_modes),
        Column("StorageClass", lambda claim, now: (claim.get("spec") or {}).get("storageClassName", "")),
        Column(
            "VolumeAttributesClass",
            lambda claim, now: (claim.get("spec") or {}).get("volumeAttributesClassName", "<unset>"),
        ),
        cells.AGE,
        Column("VolumeMode", lambda claim, now: (claim.get("spec") or {}).get("volumeMode", ""), priority=1),
    ),
    default=default,
    validate=validate,
    prepare=prepare,
    generation=False,
    deletions=DeletionRules(answers_with_object=True),
    quotas=QuotaRules(counts_plural=True, measure=measure, writes_data=True),
    roles={"view": {"": READ, "status": READ}, "edit": {"": WRITE}, "tenant": {"": ALL_VERBS}},
    fidelity={
        **OBJECT,
        "spec": {
            "accessModes": (A, "all modes are allowed, because there is only one machine"),
            "dataSource": R,
            "dataSourceRef": R,
            "resources": (A, "the size is recorded, not enforced"),
            "selector": R,
            "storageClassName": (A, "`local-directory`, or volumes that you create yourself"),
            "volumeAttributesClassName": R,
            "volumeMode": (A, "Filesystem"),
            "volumeName": H,
        },
        "status": H,
    },
)
