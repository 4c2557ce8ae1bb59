"""The CEL rules of custom kinds (x-kubernetes-validations), each written in Python.

There are few distinct rules in what we ship, so a function per rule text is smaller, faster and easier to read than a
CEL interpreter. A test fails when the schema data holds a rule that is not here. Rules that mention `oldSelf` are
transition rules: they run only where the field is in both the stored and the new object, and only where list elements
can be told apart by key, as upstream does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.api import fields
from trainmaster.api.declaring.schema import CelRule, SchemaNode
from trainmaster.api.fields import OMIT, ROOT, FieldError

Holds = Callable[[Any], bool]

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+", re.DOTALL)
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ML_POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")
_MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")


def _startup_and_dependencies(spec: Any) -> bool:
    in_order = spec.get("startupPolicy", {}).get("startupPolicyOrder") == "InOrder"
    return not (in_order and any("dependsOn" in job for job in spec.get("replicatedJobs", ())))


def _templates_without_namespace(policy: Any) -> bool:
    return all(not template.get("metadata", {}).get("namespace") for template in policy.get("templates", ()))


IMMUTABLE = "self == oldSelf"

RULES: Mapping[str, Holds] = {
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": lambda self: (
        _LABEL.fullmatch(self.get("metadata", {}).get("name", "")) is not None
    ),
    "size(self.metadata.name) <= 63": lambda self: len(self.get("metadata", {}).get("name", "")) <= 63,
    "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')": lambda self: (
        self == "" or _URI.fullmatch(self) is not None
    ),
    "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']": lambda self: self in _MANAGERS,
    "has(self.lastUpdatedTime)": lambda self: "lastUpdatedTime" in self,
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1": (
        lambda self: sum(name in self for name in _ML_POLICIES) <= 1
    ),
    "type(self) == int ? self > 0 : self in ['auto', 'cpu', 'gpu']": lambda self: (
        self > 0 if isinstance(self, int) else self in ("auto", "cpu", "gpu")
    ),
    "self >= 1": lambda self: self >= 1,
    "!self.exists(c, c == 'node')": lambda self: "node" not in self,
    "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' && "
    "self.replicatedJobs.exists(x, has(x.dependsOn)))": _startup_and_dependencies,
    "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)": (
        _templates_without_namespace
    ),
}
"""Rule text to what it says about `self`. `self == oldSelf` is handled apart."""

_MISSING: Any = object()


def check(node: SchemaNode, new: Any, old: Any = _MISSING, path: str = "") -> list[FieldError]:
    """Rules that do not hold for an object that is structurally right. Leave `old` out on create."""
    errors: list[FieldError] = []
    if has_rules(node):
        _visit(node, new, old, path, errors)
    return errors


_known: dict[int, bool] = {}
"""Whether a node or anything below it has rules, by identity; nodes live as long as the process."""


def has_rules(node: SchemaNode) -> bool:
    key = id(node)
    found = _known.get(key)
    if found is None:
        children = [*node.properties.values(), node.items, node.additional]
        found = bool(node.rules) or any(has_rules(child) for child in children if child is not None)
        _known[key] = found
    return found


def _visit(node: SchemaNode, new: Any, old: Any, path: str, errors: list[FieldError]) -> None:
    for rule in node.rules:
        if not _holds(rule, node, new, old):
            shown = OMIT if isinstance(new, dict | list) else new
            errors.append(fields.invalid(path or ROOT, shown, rule.message))
    if isinstance(new, dict):
        _visit_fields(node, new, old, path, errors)
    elif isinstance(new, list) and node.items is not None and has_rules(node.items):
        for index, item in enumerate(new):
            _visit(node.items, item, _counterpart(node, item, old), f"{path}[{index}]", errors)


def _visit_fields(node: SchemaNode, new: dict[str, Any], old: Any, path: str, errors: list[FieldError]) -> None:
    before = old if isinstance(old, dict) else {}
    for name, item in new.items():
        child = node.properties.get(name, node.additional)
        if child is not None and has_rules(child):
            _visit(child, item, before.get(name, _MISSING), f"{path}.{name}" if path else name, errors)


def _holds(rule: CelRule, node: SchemaNode, new: Any, old: Any) -> bool:
    if rule.rule != IMMUTABLE:
        return RULES[rule.rule](new)
    if old is _MISSING:
        return True
    if node.list_type in ("set", "map") and isinstance(new, list) and isinstance(old, list):
        # CEL compares sets and keyed lists without regard to order.
        return len(new) == len(old) and all(item in old for item in new)
    return bool(new == old)


def _counterpart(node: SchemaNode, item: Any, old: Any) -> Any:
    if node.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return _MISSING
    keys = [item.get(key) for key in node.list_map_keys]
    for candidate in old:
        if isinstance(candidate, dict) and [candidate.get(key) for key in node.list_map_keys] == keys:
            return candidate
    return _MISSING
