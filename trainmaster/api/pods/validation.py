"""Rules about a whole Pod spec, for Pods and for the templates in Jobs, and what a Pod update may change."""

from __future__ import annotations

import copy
import ipaddress
from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.pods import containers, scheduling, volumes
from trainmaster.api.validation import names
from trainmaster.api.validation.metadata import check_annotations, check_labels

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
NOT_AN_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"

IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


_faultless: Object = {}
"""The last valid Pod spec, without its host name."""


def check_pod(spec: Object) -> list[FieldError]:
    """`check_spec` for a Pod. Pods of a Job are created one after the other and differ only in their host names, and
    comparing two specs takes a tenth of the time of checking one."""
    global _faultless
    rest = {name: value for name, value in spec.items() if name != "hostname"}
    if rest == _faultless:
        return check_host_name(spec, "spec")
    errors = check_spec(spec, "spec")
    if not errors:
        # Shared with the stored Pod, which is never changed.
        _faultless = rest
    return errors


def check_spec(spec: Object, path: str) -> list[FieldError]:
    listed = spec.get("volumes") or []
    errors = volumes.check_all(listed, f"{path}.volumes") if listed else []
    errors += containers.check_all(spec, path, {volume.get("name", "") for volume in listed})
    if (policy := spec.get("restartPolicy")) not in _RESTART_POLICIES:
        errors.append(fields.not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    if (policy := spec.get("dnsPolicy")) not in _DNS_POLICIES:
        errors.append(fields.not_supported(f"{path}.dnsPolicy", policy, _DNS_POLICIES))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2147483647:
        text = "must be between 1 and 2147483647, inclusive"
        errors.append(fields.invalid(f"{path}.activeDeadlineSeconds", deadline, text))
    if context := spec.get("securityContext"):
        errors += containers.check_ids(context, f"{path}.securityContext", ("fsGroup", "runAsUser", "runAsGroup"))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(fields.invalid(f"{path}.securityContext.shareProcessNamespace", True, text))
    for name in ("serviceAccountName", "nodeName"):
        if value := spec.get(name):
            errors += [fields.invalid(f"{path}.{name}", value, text) for text in names.subdomain(value)]
    errors += check_host_name(spec, path)
    if value := spec.get("subdomain"):
        errors += [fields.invalid(f"{path}.subdomain", value, text) for text in names.label(value)]
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        errors += check_address(alias.get("ip", ""), f"{path}.hostAliases[{index}].ip")
        for number, name in enumerate(alias.get("hostnames") or ()):
            place = f"{path}.hostAliases[{index}].hostnames[{number}]"
            errors += [fields.invalid(place, name, text) for text in names.subdomain(name)]
    return errors + scheduling.check(spec, path)


def check_host_name(spec: Object, path: str) -> list[FieldError]:
    if not (value := spec.get("hostname")):
        return []
    return [fields.invalid(f"{path}.hostname", value, text) for text in names.label(value)]


def check_template(template: Object, path: str) -> list[FieldError]:
    metadata = template.get("metadata") or {}
    errors = check_labels(f"{path}.labels", metadata.get("labels") or {})
    errors += check_annotations(f"{path}.annotations", metadata.get("annotations") or {})
    spec = template.get("spec") or {}
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        errors.append(fields.forbidden(f"{path}.spec.ephemeralContainers", text))
    return errors + check_spec(spec, f"{path}.spec")


def check_address(value: str, path: str) -> list[FieldError]:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return [fields.invalid(path, value, NOT_AN_ADDRESS)]
    return []


def check_update(new: Object, old: Object) -> list[FieldError]:
    """Only images, the deadline and added tolerations may change in a Pod's spec; scheduling gates may be removed."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec.get("nodeName") and not before.get("nodeName"):
        # The embedded scheduler binds with a patch (upstream: the binding subresource); a bound Pod stays bound.
        before = {**before, "nodeName": spec["nodeName"]}
    if spec == before:
        return []
    errors = _check_same_containers(spec, before) + _check_gates(spec, before)
    if errors:
        return errors
    if _without_mutable(spec, before) != _without_mutable(before, before):
        return [fields.forbidden("spec", IMMUTABLE)]
    return _check_deadline(spec, before)


def _check_same_containers(spec: Object, before: Object) -> list[FieldError]:
    text = "pod updates may not add or remove containers"
    kinds = ("containers", "initContainers")
    return [fields.forbidden(f"spec.{k}", text) for k in kinds if len(spec.get(k) or ()) != len(before.get(k) or ())]


def _check_gates(spec: Object, before: Object) -> list[FieldError]:
    known = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    errors: list[FieldError] = []
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            errors.append(fields.forbidden(f"spec.schedulingGates[{index}].name", text))
    return errors


def _check_deadline(spec: Object, before: Object) -> list[FieldError]:
    new, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if old is None or new == old:
        return []
    if new is None:
        return [fields.invalid(path, None, "must not update from a positive integer to nil value")]
    return [] if new < old else [fields.invalid(path, new, "must be less than or equal to previous value")]


def _without_mutable(spec: Object, before: Object) -> dict[str, Any]:
    rest = {name: value for name, value in spec.items() if name not in ("activeDeadlineSeconds", "schedulingGates")}
    for kind in ("containers", "initContainers"):
        if kind in rest:
            rest[kind] = [{k: v for k, v in container.items() if k != "image"} for container in rest[kind]]
    kept = before.get("tolerations") or []
    if all(toleration in (spec.get("tolerations") or []) for toleration in kept):
        rest["tolerations"] = copy.copy(kept)
    if before.get("schedulingGates"):
        # The node selection can still be narrowed while the Pod has scheduling gates.
        rest.pop("nodeSelector", None)
        rest.pop("affinity", None)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        rest["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    return rest
