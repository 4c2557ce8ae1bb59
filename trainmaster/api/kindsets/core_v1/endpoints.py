"""Endpoints: the addresses behind a Service."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.cells import NONE
from trainmaster.api.declaring.fidelity_tables import OBJECT, H
from trainmaster.api.declaring.kinds import READ, Column, Kind, UpdateRules
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.pods.validation import check_address
from trainmaster.api.schemas import load
from trainmaster.api.validation import names

_SHOWN = 3


def default(endpoints: Object) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"


def validate(new: Object, old: Object | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, subset in enumerate(new.get("subsets") or ()):
        path = f"subsets[{index}]"
        addresses, waiting = subset.get("addresses") or [], subset.get("notReadyAddresses") or []
        ports = subset.get("ports") or []
        if not addresses and not waiting:
            errors.append(fields.required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name, listed in (("addresses", addresses), ("notReadyAddresses", waiting)):
            for position, address in enumerate(listed):
                errors += check_address(address.get("ip", ""), f"{path}.{name}[{position}].ip")
        for position, port in enumerate(ports):
            where = f"{path}.ports[{position}]"
            if len(ports) > 1 and not port.get("name"):
                errors.append(fields.required(f"{where}.name"))
            number = port.get("port", 0)
            errors += [fields.invalid(f"{where}.port", number, text) for text in names.port_number(number)]
    return errors


def _get_endpoints(endpoints: Object, now: float) -> str:
    found: list[str] = []
    for subset in endpoints.get("subsets") or ():
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or []
        found += [f"{ip}:{port['port']}" for port in ports for ip in addresses] if ports else addresses
    if not found:
        return NONE
    more = f" + {len(found) - _SHOWN} more..." if len(found) > _SHOWN else ""
    return cells.join(found[:_SHOWN]) + more


ENDPOINTS = Kind(
    group="",
    version="v1",
    kind="Endpoints",
    plural="endpoints",
    singular="endpoints",
    namespaced=True,
    definition="io.k8s.api.core.v1.Endpoints",
    load=partial(load, "io.k8s.api.core.v1.Endpoints"),
    short_names=("ep",),
    columns=(cells.NAME, Column("Endpoints", _get_endpoints), cells.AGE),
    default=default,
    validate=validate,
    generation=False,
    updates=UpdateRules(creates=True),
    roles={"view": {"": READ}},
    fidelity={**OBJECT, "subsets": H},
)
