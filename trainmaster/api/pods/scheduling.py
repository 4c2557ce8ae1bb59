"""Rules about where a Pod may run: node selector, tolerations, affinity, spreading, gates."""

from __future__ import annotations

from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.validation import names
from trainmaster.api.validation.metadata import check_labels
from trainmaster.api.validation.selectors import check_operator

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def check(spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if selector := spec.get("nodeSelector"):
        errors += check_labels(f"{path}.nodeSelector", selector)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        errors += _check_toleration(toleration, f"{path}.tolerations[{index}]")
    if affinity := spec.get("affinity"):
        errors += _check_affinity(affinity, f"{path}.affinity")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        errors += _check_spread(constraint, f"{path}.topologySpreadConstraints[{index}]")
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        where = f"{path}.schedulingGates[{index}]"
        errors += [fields.invalid(where, gate.get("name", ""), t) for t in names.qualified(gate.get("name", ""))]
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        where, kind = f"{path}.readinessGates[{index}].conditionType", gate.get("conditionType", "")
        errors += [fields.invalid(where, kind, text) for text in names.qualified(kind)]
    return errors


def _check_toleration(toleration: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal") or "Equal"
    if key:
        errors += [fields.invalid(f"{path}.key", key, text) for text in names.qualified(key)]
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(fields.invalid(f"{path}.operator", operator, text))
    effect = toleration.get("effect", "")
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(fields.invalid(f"{path}.effect", effect, text))
    if operator == "Exists" and toleration.get("value"):
        text = "value must be empty when `operator` is 'Exists'"
        errors.append(fields.invalid(f"{path}.operator", toleration["value"], text))
    elif operator not in ("Equal", "Exists"):
        errors.append(fields.not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    if effect and effect not in _EFFECTS:
        errors.append(fields.not_supported(f"{path}.effect", effect, _EFFECTS))
    return errors


def _check_affinity(affinity: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    node = affinity.get("nodeAffinity") or {}
    if (required := node.get(_REQUIRED)) is not None:
        where = f"{path}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
        terms = required.get("nodeSelectorTerms") or []
        if not terms:
            errors.append(fields.required(where, "must have at least one node selector term"))
        for index, term in enumerate(terms):
            errors += _check_term(term, f"{where}[{index}]")
    for index, preferred in enumerate(node.get(_PREFERRED) or ()):
        where = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        errors += _check_weight(preferred, where)
        errors += _check_term(preferred.get("preference") or {}, f"{where}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        errors += _check_pod_affinity(affinity.get(kind) or {}, f"{path}.{kind}")
    return errors


def _check_term(term: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        key, operator = expression.get("key", ""), expression.get("operator", "")
        values = expression.get("values") or []
        errors += [fields.invalid(f"{where}.key", key, text) for text in names.qualified(key)]
        if operator not in ("Gt", "Lt"):
            errors += check_operator(operator, values, where)
        elif len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(fields.required(f"{where}.values", text))
    for index, entry in enumerate(term.get("matchFields") or ()):
        errors += _check_field(entry, f"{path}.matchFields[{index}]")
    return errors


def _check_field(entry: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    key, operator, values = entry.get("key", ""), entry.get("operator", ""), entry.get("values") or []
    if operator not in ("In", "NotIn"):
        errors.append(fields.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(fields.required(f"{path}.values", text))
    if key != "metadata.name":
        return [*errors, fields.invalid(f"{path}.key", key, "not a valid field selector key")]
    return errors + [
        fields.invalid(f"{path}.values[{index}]", value, text)
        for index, value in enumerate(values)
        for text in names.subdomain(value)
    ]


def _check_weight(term: Object, path: str) -> list[FieldError]:
    weight = term.get("weight", 0)
    return [] if 1 <= weight <= 100 else [fields.invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def _check_pod_affinity(affinity: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        errors += _check_topology(term, f"{path}.{_REQUIRED}[{index}]")
    for index, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{path}.{_PREFERRED}[{index}]"
        errors += _check_weight(preferred, where)
        errors += _check_topology(preferred.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")
    return errors


def _check_topology(term: Object, path: str) -> list[FieldError]:
    key = term.get("topologyKey", "")
    errors = [] if key else [fields.required(f"{path}.topologyKey", "can not be empty")]
    return errors + [fields.invalid(f"{path}.topologyKey", key, text) for text in names.qualified(key)]


def _check_spread(constraint: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if constraint.get("maxSkew", 0) <= 0:
        errors.append(fields.invalid(f"{path}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
    if not constraint.get("topologyKey"):
        errors.append(fields.required(f"{path}.topologyKey", "can not be empty"))
    allowed = ("DoNotSchedule", "ScheduleAnyway")
    if constraint.get("whenUnsatisfiable", "") not in allowed:
        errors.append(
            fields.not_supported(f"{path}.whenUnsatisfiable", constraint.get("whenUnsatisfiable", ""), allowed)
        )
    return errors
