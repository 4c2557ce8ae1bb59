"""PriorityClass: a named priority of Pods."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import Column, Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load

_LARGEST = 1_000_000_000
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POLICIES = ("PreemptLowerPriority", "Never")


_DESCRIPTIONS = {
    "system-cluster-critical": "For Pods that the whole installation needs and that may run on any node.",
    "system-node-critical": "For Pods that a node needs and that cannot run elsewhere.",
}


def build_system_classes() -> list[Object]:
    """The two built-in classes of every cluster."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": _DESCRIPTIONS[name],
        }
        for name, value in _SYSTEM.items()
    ]


def default(priority: Object) -> None:
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")
    priority.setdefault("value", 0)


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    name, value = new["metadata"].get("name", ""), new.get("value", 0)
    if name.startswith("system-"):
        if _SYSTEM.get(name) != value:
            text = "priority class names with 'system-' prefix are reserved for system use only."
            text = f"{text} error: {name} is not a known system priority class"
            errors.append(fields.forbidden("metadata.name", text))
    elif value > _LARGEST:
        errors.append(fields.forbidden("value", f"maximum allowed value of a user defined priority is {_LARGEST}"))
    if new.get("preemptionPolicy") not in _POLICIES:
        errors.append(fields.not_supported("preemptionPolicy", new.get("preemptionPolicy"), _POLICIES))
    if old is not None:
        if value != old.get("value", 0):
            errors.append(fields.forbidden("value", "may not be changed in an update."))
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            errors.append(fields.invalid("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable"))
    return errors


PRIORITY_CLASS = Kind(
    group="scheduling.k8s.io",
    version="v1",
    kind="PriorityClass",
    plural="priorityclasses",
    singular="priorityclass",
    namespaced=False,
    definition="io.k8s.api.scheduling.v1.PriorityClass",
    load=partial(load, "io.k8s.api.scheduling.v1.PriorityClass"),
    short_names=("pc",),
    columns=(
        cells.NAME,
        Column("Value", lambda priority, now: priority.get("value", 0), type="integer"),
        Column("Global-Default", lambda priority, now: bool(priority.get("globalDefault")), type="boolean"),
        cells.AGE,
        Column("PreemptionPolicy", lambda priority, now: priority.get("preemptionPolicy", "")),
    ),
    default=default,
    validate=validate,
    fidelity={
        **OBJECT,
        "description": H,
        "globalDefault": H,
        "preemptionPolicy": H,
        "value": H,
    },
)

KINDS = (PRIORITY_CLASS,)
