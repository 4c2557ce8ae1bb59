"""Checks whether the node accepts a Pod; if not, gives the reason in the words of upstream's scheduler, and a hint.

Checks are in upstream's order: cordoned node, taints, node selector and required node affinity, topology spread. Free
resources are checked separately (`free_amounts`). Preferences have no effect with a single node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainmaster.api.formats.selectors import ABSENT, EXISTS, GREATER, IN, LESS, NOT_IN, Requirement
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.pods import Pod

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
    """The message for the Pod's condition and event."""
    hint: str
    """What the Pod requires and what the node has."""


def find_misfit(pod: Pod, node: Node, *, approximates_selectors: bool = False) -> Misfit | None:
    refused = list(_list_refused(pod))
    if refused:
        text = f"this version does not carry out {', '.join(refused)}"
        return Misfit(f"0/1 nodes are available: {text}.", text)
    tolerations = list_items(pod.spec, "tolerations")
    cordon = {"key": _UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
    if node.is_cordoned and not _tolerates(tolerations, cordon):
        hint = f"node {node.name} takes no new Pods; `kubectl uncordon {node.name}` changes that"
        return Misfit("0/1 nodes are available: 1 node(s) were unschedulable.", hint)
    taints = [taint for taint in node.taints if _keeps_off(taint, pod, tolerations)]
    if taints:
        hint = "; ".join(_describe_taint(taint, node.name) for taint in taints)
        return Misfit("0/1 nodes are available: 1 node(s) had untolerated taint(s).", hint)
    wrong = () if approximates_selectors else list_unmet(pod, node)
    if wrong:
        return Misfit(f"0/1 nodes are available: 1 {_MISMATCH}.", f"no node has {'; '.join(wrong)}")
    keys = [key for key in _list_spread_keys(pod) if key not in node.labels]
    if keys:
        return Misfit(
            f"0/1 nodes are available: 1 {_SPREAD}.", f"no node has the label {', '.join(keys)} to spread over"
        )
    return None


def _list_spread_keys(pod: Pod) -> Iterable[str]:
    """Pods are always evenly spread over a single node, so it only needs to have the topology key."""
    for constraint in list_items(pod.spec, "topologySpreadConstraints"):
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            yield constraint["topologyKey"]


def _keeps_off(taint: Fields, pod: Pod, tolerations: Sequence[Fields]) -> bool:
    if taint.get("effect") not in _KEEPS_OFF or _tolerates(tolerations, taint):
        return False
    # As in upstream's admission, memory pressure keeps away only Pods without any requests.
    is_light = pod.status.get("qosClass", "BestEffort") == "BestEffort"
    return taint.get("key") != _MEMORY_PRESSURE or is_light


def _tolerates(tolerations: Sequence[Fields], taint: Fields) -> bool:
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


def _describe_taint(taint: Fields, node: str) -> str:
    key = taint.get("key", "")
    if key in _ADVICE:
        return f"node {node}: {_ADVICE[key]}"
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"node {node} has the taint {key}{value}:{taint.get('effect')}, which the Pod does not tolerate"


def _list_refused(pod: Pod) -> Iterable[str]:
    for name in ("podAffinity", "podAntiAffinity"):
        if read_fields(pod.spec, "affinity", name).get(_REQUIRED):
            yield f"spec.affinity.{name}.{_REQUIRED}"


def list_unmet(pod: Pod, node: Node) -> list[str]:
    """Unmet requirements of the Pod, each with what the node has instead."""
    wrong = []
    for key, value in read_fields(pod.spec, "nodeSelector").items():
        if node.labels.get(key) != value:
            wrong.append(f"the label {key}={value} ({_describe(node, key)})")
    required = read_fields(pod.spec, "affinity", "nodeAffinity").get(_REQUIRED)
    if required is not None and not any(_meets(term, node) for term in list_items(required, "nodeSelectorTerms")):
        wrong.extend(_describe_terms(required, node))
    return wrong


def _meets(term: Fields, node: Node) -> bool:
    """A term without expressions matches no node."""
    expressions, fields = list_items(term, "matchExpressions"), list_items(term, "matchFields")
    if not expressions and not fields:
        return False
    asked = [(_read(entry), node.labels) for entry in expressions]
    asked += [(_read(entry), {"metadata.name": node.name}) for entry in fields]
    return all(requirement.matches(values) for requirement, values in asked)


def _read(entry: Fields) -> Requirement:
    return Requirement(entry["key"], _OPERATORS[entry["operator"]], frozenset(list_items(entry, "values")))


def _describe_terms(required: Fields, node: Node) -> Iterable[str]:
    for term in list_items(required, "nodeSelectorTerms"):
        for entry in list_items(term, "matchExpressions"):
            if not _read(entry).matches(node.labels):
                asked = f"{entry['key']} {entry['operator']} [{', '.join(list_items(entry, 'values'))}]"
                yield f"a label that meets {asked} ({_describe(node, entry['key'])})"
        for entry in list_items(term, "matchFields"):
            if not _read(entry).matches({"metadata.name": node.name}):
                yield f"a name that meets {entry['operator']} [{', '.join(list_items(entry, 'values'))}]"


def _describe(node: Node, key: str) -> str:
    value = node.labels.get(key)
    return f"node {node.name} has no label {key}" if value is None else f"node {node.name} has {key}={value}"
