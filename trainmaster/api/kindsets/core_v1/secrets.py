"""Secret: confidential data. `stringData` is write-only and is converted to `data`."""

from __future__ import annotations

import base64
from functools import partial

import orjson

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import ALL_VERBS, Column, Kind, QuotaRules
from trainmaster.api.fields import FieldError
from trainmaster.api.kindsets.core_v1.configmaps import LARGEST, check_immutable
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

_NEEDED = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_ACCOUNT = "kubernetes.io/service-account.name"


def default(secret: Object) -> None:
    if not secret.get("type"):
        secret["type"] = "Opaque"
    texts = secret.pop("stringData", None)
    if texts:
        data = secret["data"] = dict(secret.get("data") or {})
        for key, text in texts.items():
            data[key] = base64.b64encode(text.encode()).decode()


def validate(new: Object, old: Object | None) -> list[FieldError]:
    data = new.get("data") or {}
    errors: list[FieldError] = []
    for key in data:
        errors += [fields.invalid(f"data[{key}]", key, text) for text in names.config_key(key)]
    if sum(len(value) * 3 // 4 for value in data.values()) > LARGEST:
        errors.append(fields.too_long("data", LARGEST))
    errors += _check_type(new, data)
    if old is not None:
        if new.get("type") != old.get("type"):
            errors.append(fields.invalid("type", new.get("type"), "field is immutable"))
        if old.get("immutable"):
            errors += check_immutable(new, old, ("data",))
    return errors


def _check_type(secret: Object, data: Object) -> list[FieldError]:
    kind = secret.get("type", "")
    if kind == "kubernetes.io/basic-auth" and "username" not in data and "password" not in data:
        return [fields.required("data[username]"), fields.required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        named = (secret["metadata"].get("annotations") or {}).get(_ACCOUNT)
        return [] if named else [fields.required(f"metadata.annotations[{_ACCOUNT}]")]
    errors = [fields.required(f"data[{key}]") for key in _NEEDED.get(kind, ()) if key not in data]
    if kind in ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg") and not errors:
        key = _NEEDED[kind][0]
        try:
            orjson.loads(base64.b64decode(data[key]))
        except ValueError as error:
            # The error's message may contain the data; its class does not.
            errors.append(fields.invalid(f"data[{key}]", "<secret contents redacted>", type(error).__name__))
    return errors


SECRET = Kind(
    group="",
    version="v1",
    kind="Secret",
    plural="secrets",
    singular="secret",
    namespaced=True,
    definition="io.k8s.api.core.v1.Secret",
    load=partial(load, "io.k8s.api.core.v1.Secret"),
    columns=(
        cells.NAME,
        Column("Type", lambda secret, now: secret.get("type", ""), description="What the data is for."),
        Column("Data", lambda secret, now: len(secret.get("data") or ()), description="Number of entries."),
        cells.AGE,
    ),
    default=default,
    validate=validate,
    selectable={"type": lambda secret: str(secret.get("type", ""))},
    generation=False,
    quotas=QuotaRules(counts_plural=True),
    roles={"edit": {"": ALL_VERBS}, "tenant": {"": ALL_VERBS}},
    fidelity={**OBJECT, "data": H, "immutable": H, "stringData": H, "type": H},
)
