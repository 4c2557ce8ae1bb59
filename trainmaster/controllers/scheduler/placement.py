"""Whether the node suits a Pod, and if not, why: in the words of upstream's scheduler, and in words that help.

Looked at: node selector, required node affinity, and devices. What a Pod prefers makes no difference with one node.
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


@dataclass(frozen=True, slots=True)
class Misfit:
    message: str
    """For the Pod's condition and event."""
    hint: str
    """What the Pod asks for and what the node has."""


def find_misfit(pod: Object, node: Object) -> Misfit | None:
    refused = list(_list_refused(pod["spec"]))
    if refused:
        text = f"this version does not carry out {', '.join(refused)}"
        return Misfit(f"0/1 nodes are available: {text}.", text)
    labels = node["metadata"].get("labels") or {}
    name = node["metadata"]["name"]
    wrong = _list_unmet(pod["spec"], labels, name)
    if wrong:
        return Misfit(f"0/1 nodes are available: 1 {_MISMATCH}.", f"no node has {'; '.join(wrong)}")
    offered = (node.get("status") or {}).get("allocatable") or {}
    missing = sorted({device for device in _list_devices(pod) if device not in offered})
    if not missing:
        return None
    text = ", ".join(f"1 Insufficient {device}" for device in missing)
    return Misfit(f"0/1 nodes are available: {text}.", f"node {name} has no {', no '.join(missing)}")


def _list_refused(spec: Mapping[str, Any]) -> Iterable[str]:
    if spec.get("topologySpreadConstraints"):
        yield "spec.topologySpreadConstraints"
    for name in ("podAffinity", "podAntiAffinity"):
        if ((spec.get("affinity") or {}).get(name) or {}).get(_REQUIRED):
            yield f"spec.affinity.{name}.{_REQUIRED}"


def _list_unmet(spec: Mapping[str, Any], labels: Mapping[str, str], node: str) -> list[str]:
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


def _list_devices(pod: Object) -> Iterable[str]:
    """Extended resources, which are never shared: their names have a domain."""
    for container in pod["spec"].get("containers") or ():
        for side in ("requests", "limits"):
            for name, quantity in ((container.get("resources") or {}).get(side) or {}).items():
                if "/" in name and str(quantity) != "0":
                    yield name
