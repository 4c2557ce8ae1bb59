"""Node: the machine, as clients see it."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.cells import NONE, UNKNOWN
from trainmaster.api.declaring.fidelity_tables import OBJECT, H, N
from trainmaster.api.declaring.kinds import Column, Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ROLE = "node-role.kubernetes.io/"


def default(node: Object) -> None:
    node.setdefault("spec", {})


def prepare(node: Object) -> None:
    # As upstream, a new Node may contain its status, unlike other kinds.
    node.setdefault("status", {})


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, taint in enumerate((new.get("spec") or {}).get("taints") or ()):
        path = f"metadata.taints[{index}]"
        errors += [
            fields.invalid(f"{path}.key", taint.get("key", ""), t) for t in names.qualified(taint.get("key", ""))
        ]
        if taint.get("effect") not in _EFFECTS:
            errors.append(fields.not_supported(f"{path}.effect", taint.get("effect", ""), _EFFECTS))
    return errors


def _get_status(node: Object, now: float) -> str:
    ready = cells.find_condition(node, "Ready")
    word = "Unknown" if ready is None else ("Ready" if ready.get("status") == "True" else "NotReady")
    return word + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def _get_roles(node: Object, now: float) -> str:
    labels = node["metadata"].get("labels") or {}
    return cells.join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))) or NONE


def _get_address(kind: str, node: Object, now: float) -> str:
    for address in (node.get("status") or {}).get("addresses") or ():
        if address.get("type") == kind:
            return str(address.get("address", ""))
    return NONE


def _get_info(name: str, missing: str, node: Object, now: float) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get(name) or missing)


NODE = Kind(
    group="",
    version="v1",
    kind="Node",
    plural="nodes",
    singular="node",
    namespaced=False,
    definition="io.k8s.api.core.v1.Node",
    load=partial(load, "io.k8s.api.core.v1.Node"),
    short_names=("no",),
    status=True,
    columns=(
        cells.NAME,
        Column("Status", _get_status, description="Ready, NotReady or Unknown; and whether new Pods may come."),
        Column("Roles", _get_roles),
        cells.AGE,
        Column("Version", partial(_get_info, "kubeletVersion", "")),
        Column("Internal-IP", partial(_get_address, "InternalIP"), priority=1),
        Column("External-IP", partial(_get_address, "ExternalIP"), priority=1),
        Column("OS-Image", partial(_get_info, "osImage", UNKNOWN), priority=1),
        Column("Kernel-Version", partial(_get_info, "kernelVersion", UNKNOWN), priority=1),
        Column("Container-Runtime", partial(_get_info, "containerRuntimeVersion", UNKNOWN), priority=1),
    ),
    default=default,
    validate=validate,
    prepare=prepare,
    selectable={
        "spec.unschedulable": lambda node: "true" if (node.get("spec") or {}).get("unschedulable") else "false"
    },
    generation=False,
    fidelity={
        **OBJECT,
        "spec": {
            "configSource": N,
            "externalID": N,
            "podCIDR": N,
            "podCIDRs": N,
            "providerID": N,
            "taints": H,
            "unschedulable": H,
        },
        "status": H,
    },
)
