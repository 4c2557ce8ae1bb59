"""ResourceQuota: limits on the sum over a namespace."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H, R
from trainmaster.api.declaring.kinds import READ, Column, DeletionRules, Kind, QuotaRules
from trainmaster.api.fields import FieldError
from trainmaster.api.formats import quantity
from trainmaster.api.meta import Object
from trainmaster.api.pods.resources import is_standard
from trainmaster.api.schemas import load

_COUNTED = {
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
}
_SCOPES = {
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
}


def default(new: Object) -> None:
    """Adds an empty spec if it is missing, as upstream."""
    if not new.get("spec"):
        new["spec"] = {}


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = new.get("spec") or {}
    for name, value in (spec.get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        if not _is_known(name):
            errors.append(fields.invalid(path, name, "must be a standard resource type or fully qualified"))
            errors.append(fields.invalid(path, name, "must be a standard resource for quota"))
        amount = quantity.parse(value)
        if amount < 0:
            errors.append(fields.invalid(path, value, "must be greater than or equal to 0"))
        elif amount.denominator != 1 and name in _COUNTED:
            errors.append(fields.invalid(path, value, "must be an integer"))
    unknown = [scope for scope in spec.get("scopes") or () if scope not in _SCOPES]
    if unknown:
        errors.append(fields.invalid("spec.scopes", spec["scopes"], "unsupported scope"))
    return errors


def _is_known(name: str) -> bool:
    bare = name.removeprefix("requests.").removeprefix("limits.")
    return name in _COUNTED or is_standard(bare) or bare == "storage" or "/" in name


def _get_used(limits: bool, quota: Object, now: float) -> str:
    status = quota.get("status") or {}
    used = status.get("used") or {}
    hard = status.get("hard") or {}
    shown = [name for name in sorted(hard) if name.startswith("limits.") == limits]
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in shown)


RESOURCE_QUOTA = Kind(
    group="",
    version="v1",
    kind="ResourceQuota",
    plural="resourcequotas",
    singular="resourcequota",
    namespaced=True,
    definition="io.k8s.api.core.v1.ResourceQuota",
    load=partial(load, "io.k8s.api.core.v1.ResourceQuota"),
    short_names=("quota",),
    status=True,
    columns=(
        cells.NAME,
        Column("Request", partial(_get_used, False), description="Used and allowed, of requests and counts."),
        Column("Limit", partial(_get_used, True), description="Used and allowed, of limits."),
        cells.AGE,
    ),
    default=default,
    validate=validate,
    generation=False,
    deletions=DeletionRules(answers_with_object=True),
    quotas=QuotaRules(counts_plural=True),
    roles={"view": {"": READ, "status": READ}, "tenant": {"": READ}},
    fidelity={
        **OBJECT,
        "spec": {"hard": H, "scopeSelector": R, "scopes": R},
        "status": H,
    },
)
