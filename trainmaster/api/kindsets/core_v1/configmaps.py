"""ConfigMap: plain data for Pods."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import ALL_VERBS, READ, WRITE, Column, Kind, QuotaRules
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

LARGEST = 1024 * 1024
IMMUTABLE = "field is immutable when `immutable` is set"


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    for key in data:
        for text in names.config_key(key):
            errors.append(fields.invalid(f"data[{key}]", key, text))
        if key in binary:
            errors.append(fields.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        errors += [fields.invalid(f"binaryData[{key}]", key, text) for text in names.config_key(key)]
    size = sum(map(len, map(str.encode, data.values())))
    if binary:
        # Base64 encodes three bytes in four characters; only the length matters here.
        size += sum(len(value) * 3 // 4 for value in binary.values())
    if size > LARGEST:
        errors.append(fields.too_long("[]", LARGEST))
    if old is not None and old.get("immutable"):
        errors += check_immutable(new, old, ("data", "binaryData"))
    return errors


def check_immutable(new: Object, old: Object, parts: tuple[str, ...]) -> list[FieldError]:
    """Refuses changes of an immutable object's data and of `immutable` itself."""
    errors = [] if new.get("immutable") else [fields.forbidden("immutable", IMMUTABLE)]
    return errors + [fields.forbidden(name, IMMUTABLE) for name in parts if new.get(name) != old.get(name)]


def _count(obj: Object, now: float) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


CONFIG_MAP = Kind(
    group="",
    version="v1",
    kind="ConfigMap",
    plural="configmaps",
    singular="configmap",
    namespaced=True,
    definition="io.k8s.api.core.v1.ConfigMap",
    load=partial(load, "io.k8s.api.core.v1.ConfigMap"),
    short_names=("cm",),
    columns=(cells.NAME, Column("Data", _count, description="Number of entries."), cells.AGE),
    validate=validate,
    generation=False,
    quotas=QuotaRules(counts_plural=True),
    roles={"view": {"": READ}, "edit": {"": WRITE}, "tenant": {"": ALL_VERBS}},
    fidelity={**OBJECT, "binaryData": H, "data": H, "immutable": H},
)
