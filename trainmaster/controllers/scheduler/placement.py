"""Whether the node would take a Pod at all; if not, why, in the words of upstream's scheduler and in words that help.

Looked at, in upstream's order: whether the node is cordoned, its taints, node selector and required node affinity,
spreading. Whether there is room is another question (`room`). What a Pod prefers makes no difference with one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.api.selectors import ABSENT, EXISTS, GREATER, IN, LESS, NOT_IN, Requirement

_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": ABSENT, "Gt": GREATER, "Lt": LESS}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
_SPREAD = "node(s) didn't match pod topology spread constraints (missing required label)"
_UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
_MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
_KEEPS_OFF = ("NoSchedule", "NoExecute")
_ADVICE = {
    "node.kubernetes.io/disk-pressure": "the disk is nearly full; free some space",
    _MEMORY_PRESSURE: "memory is nearly used up; only Pods with requests are taken until some is free",
    "node.kubernetes.io/pid-pressure": "the machine has nearly as many processes as it can have",
    "node.kubernetes.io/not-ready": "the node agent is not ready",
}


@dataclass(frozen=True, slots=True)
class Misfit:
    message: str
    """For the Pod's condition and event."""
    hint: str
    """What the Pod asks for and what the node has."""


def find_misfit(pod: Object, node: Object, *, approximates_selectors: bool = False) -> Misfit | None:
    spec = pod["spec"]
    refused = list(_list_refused(spec))
    if refused:
        text = f"this version does not carry out {', '.join(refused)}"
        return Misfit(f"0/1 nodes are available: {text}.", text)
    name = node["metadata"]["name"]
    tolerations = spec.get("tolerations") or ()
    node_spec = node.get("spec") or {}
    cordon = {"key": _UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
    if node_spec.get("unschedulable") and not _tolerates(tolerations, cordon):
        hint = f"node {name} takes no new Pods; `kubectl uncordon {name}` changes that"
        return Misfit("0/1 nodes are available: 1 node(s) were unschedulable.", hint)
    taints = [taint for taint in node_spec.get("taints") or () if _keeps_off(taint, pod, tolerations)]
    if taints:
        hint = "; ".join(_describe_taint(taint, name) for taint in taints)
        return Misfit("0/1 nodes are available: 1 node(s) had untolerated taint(s).", hint)
    labels = node["metadata"].get("labels") or {}
    wrong = () if approximates_selectors else list_unmet(spec, labels, name)
    if wrong:
        return Misfit(f"0/1 nodes are available: 1 {_MISMATCH}.", f"no node has {'; '.join(wrong)}")
    keys = [key for key in _list_spread_keys(spec) if key not in labels]
    if keys:
        return Misfit(
            f"0/1 nodes are available: 1 {_SPREAD}.", f"no node has the label {', '.join(keys)} to spread over"
        )
    return None


def _list_spread_keys(spec: Mapping[str, Any]) -> Iterable[str]:
    """One node is one domain, over which Pods are always evenly spread; it only has to be a domain."""
    for constraint in spec.get("topologySpreadConstraints") or ():
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            yield constraint["topologyKey"]


def _keeps_off(taint: Mapping[str, Any], pod: Object, tolerations: Sequence[Mapping[str, Any]]) -> bool:
    if taint.get("effect") not in _KEEPS_OFF or _tolerates(tolerations, taint):
        return False
    # As upstream's admission: only Pods without any request are kept off when memory runs short.
    is_light = (pod.get("status") or {}).get("qosClass", "BestEffort") == "BestEffort"
    return taint.get("key") != _MEMORY_PRESSURE or is_light


def _tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
            continue
        key = toleration.get("key")
        if key and key != taint.get("key"):
            continue
        if toleration.get("operator") == "Exists":
            return True
        if key and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def _describe_taint(taint: Mapping[str, Any], node: str) -> str:
    key = taint.get("key", "")
    if key in _ADVICE:
        return f"node {node}: {_ADVICE[key]}"
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"node {node} has the taint {key}{value}:{taint.get('effect')}, which the Pod does not tolerate"


def _list_refused(spec: Mapping[str, Any]) -> Iterable[str]:
    for name in ("podAffinity", "podAntiAffinity"):
        if ((spec.get("affinity") or {}).get(name) or {}).get(_REQUIRED):
            yield f"spec.affinity.{name}.{_REQUIRED}"


def list_unmet(spec: Mapping[str, Any], labels: Mapping[str, str], node: str) -> list[str]:
    """What keeps the Pod off the node, each with what the node has instead."""
    wrong = []
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            wrong.append(f"the label {key}={value} ({_describe(labels, key, node)})")
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is not None and not any(_meets(term, labels, node) for term in required.get("nodeSelectorTerms") or ()):
        wrong.extend(_describe_terms(required, labels, node))
    return wrong


def _meets(term: Mapping[str, Any], labels: Mapping[str, str], node: str) -> bool:
    """A term without any expression is met by no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    asked = [(_read(entry), labels) for entry in expressions]
    asked += [(_read(entry), {"metadata.name": node}) for entry in fields]
    return all(requirement.matches(values) for requirement, values in asked)


def _read(entry: Mapping[str, Any]) -> Requirement:
    return Requirement(entry["key"], _OPERATORS[entry["operator"]], frozenset(entry.get("values") or ()))


def _describe_terms(required: Mapping[str, Any], labels: Mapping[str, str], node: str) -> Iterable[str]:
    for term in required.get("nodeSelectorTerms") or ():
        for entry in term.get("matchExpressions") or ():
            if not _read(entry).matches(labels):
                values: Sequence[str] = entry.get("values") or ()
                asked = f"{entry['key']} {entry['operator']} [{', '.join(values)}]"
                yield f"a label that meets {asked} ({_describe(labels, entry['key'], node)})"
        for entry in term.get("matchFields") or ():
            if not _read(entry).matches({"metadata.name": node}):
                yield f"a name that meets {entry['operator']} [{', '.join(entry.get('values') or ())}]"


def _describe(labels: Mapping[str, str], key: str, node: str) -> str:
    return f"node {node} has {key}={labels[key]}" if key in labels else f"node {node} has no label {key}"
