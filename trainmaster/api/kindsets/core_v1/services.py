"""Service: a stable name for a set of Pods. Addresses are assigned elsewhere."""

from __future__ import annotations

from functools import partial

from trainmaster.api import fields
from trainmaster.api.declaring import cells
from trainmaster.api.declaring.cells import NONE
from trainmaster.api.declaring.fidelity_tables import OBJECT, A, H, N, R
from trainmaster.api.declaring.kinds import (
    READ,
    WRITE,
    Column,
    DeletionRules,
    FidelityTable,
    Kind,
    QuotaRules,
    UpdateRules,
)
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.pods.validation import check_address
from trainmaster.api.schemas import load
from trainmaster.api.validation import names
from trainmaster.api.validation.metadata import check_labels

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_HOLD = 10800


def default(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec["type"] = spec.get("type") or "ClusterIP"
    spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if spec["sessionAffinity"] == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        config.setdefault("timeoutSeconds", _HOLD)
    for port in spec.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
        if port.get("targetPort") in (None, "", 0):
            port["targetPort"] = port.get("port", 0)
    if "clusterIP" in spec and "clusterIPs" not in spec:
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec["type"] == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec["externalTrafficPolicy"] = spec.get("externalTrafficPolicy") or "Cluster"
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def prepare(service: Object) -> None:
    service["status"] = {"loadBalancer": {}}


def validate(new: Object, old: Object | None) -> list[FieldError]:
    spec = new.get("spec") or {}
    kind, ports = spec.get("type"), spec.get("ports") or []
    errors: list[FieldError] = []
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        errors.append(fields.required("spec.ports"))
    errors += _check_kind(spec, str(kind))
    for index, port in enumerate(ports):
        errors += _check_port(port, f"spec.ports[{index}]", named=len(ports) > 1, kind=str(kind))
    errors += _check_unique(ports)
    if spec.get("selector"):
        errors += check_labels("spec.selector", spec["selector"])
    if spec.get("sessionAffinity") not in _AFFINITIES:
        errors.append(fields.not_supported("spec.sessionAffinity", spec.get("sessionAffinity"), _AFFINITIES))
    for index, address in enumerate(spec.get("externalIPs") or ()):
        errors += check_address(address, f"spec.externalIPs[{index}]")
    return errors + (_check_update(spec, old["spec"]) if old is not None else [])


def _check_kind(spec: Object, kind: str) -> list[FieldError]:
    addresses = spec.get("clusterIPs") or []
    if kind not in _TYPES:
        return [fields.not_supported("spec.type", kind, _TYPES)]
    if kind == "ExternalName":
        errors = [fields.forbidden("spec.clusterIPs", "may not be set for ExternalName services")] if addresses else []
        name = spec.get("externalName")
        if not name:
            return [*errors, fields.required("spec.externalName")]
        return errors + [fields.invalid("spec.externalName", name, text) for text in names.subdomain(name)]
    if addresses and addresses[0] == "None":
        if kind == "ClusterIP":
            return []
        return [fields.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")]
    return [error for i, address in enumerate(addresses) for error in check_address(address, f"spec.clusterIPs[{i}]")]


def _check_port(port: Object, path: str, *, named: bool, kind: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name = port.get("name")
    if name:
        errors += [fields.invalid(f"{path}.name", name, text) for text in names.label(name)]
    elif named:
        errors.append(fields.required(f"{path}.name"))
    number, target = port.get("port", 0), port.get("targetPort", 0)
    errors += [fields.invalid(f"{path}.port", number, text) for text in names.port_number(number)]
    complaints = names.port_number(target) if isinstance(target, int) else names.port_name(target)
    errors += [fields.invalid(f"{path}.targetPort", target, text) for text in complaints]
    if port.get("protocol") not in _PROTOCOLS:
        errors.append(fields.not_supported(f"{path}.protocol", port.get("protocol"), _PROTOCOLS))
    if port.get("nodePort") and kind in ("ClusterIP", "ExternalName"):
        errors.append(fields.forbidden(f"{path}.nodePort", f"may not be used when `type` is '{kind}'"))
    return errors


def _check_unique(ports: list[Object]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    pairs: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        name, pair = port.get("name"), (port.get("protocol", ""), port.get("port", 0))
        if name and name in seen:
            errors.append(fields.duplicate(f"spec.ports[{index}].name", name))
        seen.add(name or "")
        if pair in pairs:
            shown = {"protocol": pair[0], "port": pair[1]}
            errors.append(fields.duplicate(f"spec.ports[{index}]", shown))
        pairs.add(pair)
    return errors


def _check_update(spec: Object, before: Object) -> list[FieldError]:
    had, has = before.get("clusterIPs") or [], spec.get("clusterIPs") or []
    if had and has and had[0] != has[0] and "ExternalName" not in (spec.get("type"), before.get("type")):
        return [fields.invalid("spec.clusterIPs[0]", has, "may not change once set")]
    return []


def _get_external(service: Object, now: float) -> str:
    spec = service.get("spec") or {}
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            given = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
            return cells.join(point.get("ip") or point.get("hostname") or "" for point in given) or "<pending>"
    return cells.join(spec.get("externalIPs") or ()) or NONE


def _get_ports(service: Object, now: float) -> str:
    shown = []
    for port in service.get("spec", {}).get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return cells.join(shown) or NONE


_FIDELITY: FidelityTable = {
    "allocateLoadBalancerNodePorts": R,
    "clusterIP": (A, "the name of a Service resolves to the addresses of its Pods; there is no virtual address"),
    "clusterIPs": (A, "as clusterIP"),
    "externalIPs": R,
    "externalName": R,
    "externalTrafficPolicy": (N, "there is only one node"),
    "healthCheckNodePort": R,
    "internalTrafficPolicy": (N, "there is only one node"),
    "ipFamilies": (A, "IPv4"),
    "ipFamilyPolicy": (A, "single stack"),
    "loadBalancerClass": R,
    "loadBalancerIP": R,
    "loadBalancerSourceRanges": R,
    "ports": {"appProtocol": N, "name": H, "nodePort": R, "port": H, "protocol": H, "targetPort": H},
    "publishNotReadyAddresses": H,
    "selector": H,
    "sessionAffinity": R,
    "sessionAffinityConfig": R,
    "trafficDistribution": (N, "there is only one node"),
    "type": (A, "ClusterIP; others are refused"),
}

SERVICE = Kind(
    group="",
    version="v1",
    kind="Service",
    plural="services",
    singular="service",
    namespaced=True,
    definition="io.k8s.api.core.v1.Service",
    load=partial(load, "io.k8s.api.core.v1.Service"),
    name_form="label",
    short_names=("svc",),
    categories=("all",),
    status=True,
    columns=(
        cells.NAME,
        Column("Type", lambda service, now: (service.get("spec") or {}).get("type", "")),
        Column("Cluster-IP", lambda service, now: (service.get("spec") or {}).get("clusterIP") or NONE),
        Column("External-IP", _get_external),
        Column("Port(s)", _get_ports),
        cells.AGE,
        Column(
            "Selector",
            lambda service, now: cells.format_labels((service.get("spec") or {}).get("selector")),
            priority=1,
        ),
    ),
    default=default,
    validate=validate,
    prepare=prepare,
    selectable={
        "spec.clusterIP": lambda service: str((service.get("spec") or {}).get("clusterIP", "")),
        "spec.type": lambda service: str((service.get("spec") or {}).get("type", "")),
    },
    generation=False,
    updates=UpdateRules(creates=True),
    deletions=DeletionRules(answers_with_object=True),
    quotas=QuotaRules(counts_plural=True),
    roles={"view": {"": READ, "status": READ}, "edit": {"": WRITE, "proxy": READ}, "tenant": {"": READ}},
    fidelity={**OBJECT, "spec": _FIDELITY, "status": H},
)
