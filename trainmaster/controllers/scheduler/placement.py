"""Lists what keeps a Pod off the node: in the words of upstream's scheduler, and for users with what removes it.

The first of them is what upstream's scheduler reports: a drained or cordoned node, taints, node selector and required
node affinity, topology spread. Free resources are checked separately (`node_room`). Preferences have no effect with a
single node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from trainmaster.api.formats.selectors import ABSENT, EXISTS, GREATER, IN, LESS, NOT_IN, Requirement
from trainmaster.api.meta import Fields
from trainmaster.api.node_policy import NAME, NAMESPACE
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.api.validation import names
from trainmaster.jobs.draining import UNSCHEDULABLE_TAINT, build_uncordon, build_undrain
from trainmaster.jobs.models.nodes import Drain, Node
from trainmaster.jobs.models.pods import Pod

_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": ABSENT, "Gt": GREATER, "Lt": LESS}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
_SPREAD = "node(s) didn't match pod topology spread constraints (missing required label)"
_UNSCHEDULABLE = "0/1 nodes are available: 1 node(s) were unschedulable."
_MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
_KEEPS_OFF = ("NoSchedule", "NoExecute")
_DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
_PRESSURES = {
    _DISK_PRESSURE: ("the disk is nearly full", "free some space on that disk"),
    _MEMORY_PRESSURE: (
        "memory is nearly used up; only Pods with requests are taken until some is free",
        "end something that uses memory, or give the job requests",
    ),
    "node.kubernetes.io/pid-pressure": (
        "the machine has nearly as many processes as it can have",
        "end something that has many processes",
    ),
    "node.kubernetes.io/not-ready": ("the node agent is not ready", "`trainmaster status` shows the server"),
}
"""Taints that the node sets and removes itself: what is wrong, and what to do."""
_OWN_TAINTS = "node.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of the node, or of its policy, that removes an obstacle."""

    text: str
    """The second half of a sentence: "with the label disk=ssd on node local"."""
    how: str
    """The command to run or the field to edit."""
    patch: Fields = field(default_factory=dict)
    """What the command does: a merge patch of the Node. Empty if there is no command."""
    policy: Fields = field(default_factory=dict)
    """The data to set in the node policy."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that keeps a Pod off the node until somebody changes the Pod or the node."""

    text: str
    """What the Pod requires and what the node has."""
    message: str = ""
    """The message for the Pod's condition and event, in the words of upstream's scheduler."""
    advice: str = ""
    """What to do, if no change of the node removes it."""
    build_change: Callable[[], NodeChange] | None = field(default=None, compare=False)
    """Called only for messages; passes of the scheduler do not need the change."""
    discreet: str = ""
    """The text for tenants, if they must not see all of it."""
    is_jobs: bool = False
    """Whether the job has to be changed and submitted again."""

    @property
    def change(self) -> NodeChange | None:
        return self.build_change() if self.build_change is not None else None


def list_obstacles(pod: Pod, node: Node, *, approximates_selectors: bool = False) -> list[Obstacle]:
    """In the order in which to remove them: first what requires another job, then upstream's order."""
    found = []
    refused = list(_list_refused(pod))
    if refused:
        text = f"this version does not carry out {', '.join(refused)}"
        advice = "remove it from the job and submit it again"
        found.append(Obstacle(text, f"0/1 nodes are available: {text}.", advice, is_jobs=True))
    tolerations = list_items(pod.spec, "tolerations")
    cordon = {"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
    drain = node.drain
    if drain is not None:
        found.append(_describe_drain(node, drain))
    elif node.is_cordoned and not _tolerates(tolerations, cordon):
        found.append(_describe_cordon(node))
    if node.taints:
        found += _list_taints([taint for taint in node.taints if _keeps_off(taint, pod, tolerations)], node)
    unmet = () if approximates_selectors else list_unmet(pod, node)
    if unmet:
        text, message = f"no node has {'; '.join(unmet)}", f"0/1 nodes are available: 1 {_MISMATCH}."
        found.append(Obstacle(text, message, build_change=partial(_build_matching, pod, node)))
    keys = [key for key in _list_spread_keys(pod) if key not in node.labels]
    if keys:
        text = f"no node has the label {', '.join(keys)} to spread over"
        message, advice = f"0/1 nodes are available: 1 {_SPREAD}.", "correct the topology key"
        labels = dict.fromkeys(keys, node.name)
        build = partial(_build_labelling, node, labels) if _are_valid(labels) else None
        found.append(Obstacle(text, message, advice, build_change=build))
    return found


def _describe_drain(node: Node, drain: Drain) -> Obstacle:
    """Tolerations do not help: nothing starts on a drained machine."""
    change = NodeChange("once the machine is not drained any more", "trainmaster undrain", build_undrain(node))
    text, discreet = (f"the machine is {drain.describe(discreet=value)}" for value in (False, True))
    return Obstacle(text, _UNSCHEDULABLE, build_change=lambda: change, discreet=discreet)


def _describe_cordon(node: Node) -> Obstacle:
    text = f"node {node.name} takes no new Pods"
    return Obstacle(text, _UNSCHEDULABLE, build_change=partial(_build_uncordoning, node))


def _build_uncordoning(node: Node) -> NodeChange:
    return NodeChange(f"once node {node.name} takes Pods again", f"kubectl uncordon {node.name}", build_uncordon(node))


def _list_taints(taints: Sequence[Fields], node: Node) -> Iterator[Obstacle]:
    message = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    for taint in taints:
        if taint.get("key") in _PRESSURES:
            yield _describe_pressure(taint, node, message)
    foreign = [
        taint
        for taint in taints
        if taint.get("key") not in _PRESSURES and not (taint.get("key") == UNSCHEDULABLE_TAINT and node.is_cordoned)
    ]
    if not foreign:
        return
    listed = ", ".join(map(_name_taint, foreign))
    text = f"node {node.name} has the taint{'s' if len(foreign) > 1 else ''} {listed}, which the Pod does not tolerate"
    if any(taint.get("key", "").startswith(_OWN_TAINTS) for taint in foreign):
        yield Obstacle(text, message, "the node removes it when its reason is gone, or tolerate it")
    else:
        yield Obstacle(text, message, build_change=partial(_build_untainting, node, foreign))


def _build_untainting(node: Node, taints: Sequence[Fields]) -> NodeChange:
    text = f"without the taint{'s' if len(taints) > 1 else ''} of node {node.name}"
    keys = " ".join(f"{taint['key']}:{taint['effect']}-" for taint in taints)
    rest = [taint for taint in node.taints if taint not in taints]
    return NodeChange(text, f"kubectl taint nodes {node.name} {keys}", {"spec": {"taints": rest or None}})


def _describe_pressure(taint: Fields, node: Node, message: str) -> Obstacle:
    text, advice = _PRESSURES[taint["key"]]
    # The condition of the node has path, free space and threshold, which tenants are not told.
    condition = node.find_condition("DiskPressure") if taint["key"] == _DISK_PRESSURE else None
    details = read_text(condition, "message") if read_text(condition, "status") == "True" else ""
    plain = f"node {node.name}: {text}"
    return Obstacle(f"node {node.name}: {details}" if details else plain, message, advice, discreet=plain)


def _name_taint(taint: Fields) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect')}"


def _build_matching(pod: Pod, node: Node) -> NodeChange:
    """The labels that the Pod selects by; if labels are not enough, a policy that ignores its selectors."""
    missing = _find_missing_labels(pod, node)
    if missing is not None:
        return _build_labelling(node, missing)
    how = f"set selectors: approximated in the ConfigMap {NAMESPACE}/{NAME} (docs/scheduling.md)"
    return NodeChange("if selectors that no node meets were ignored", how, policy={"selectors": "approximated"})


def _are_valid(labels: Mapping[str, str]) -> bool:
    """Labels come from the job, and somebody else may run the command that contains them."""
    return not any(names.qualified(key) or names.label_value(value) for key, value in labels.items())


def _build_labelling(node: Node, labels: Mapping[str, str]) -> NodeChange:
    pairs = [f"{key}={value}" for key, value in sorted(labels.items())]
    command = f"kubectl label node {node.name} --overwrite {' '.join(pairs)}"
    text = f"with the label{'s' if len(pairs) > 1 else ''} {' '.join(pairs)} on node {node.name}"
    return NodeChange(text, command, {"metadata": {"labels": dict(labels)}})


def _find_missing_labels(pod: Pod, node: Node) -> dict[str, str] | None:
    """Labels with which the node meets the Pod's selectors; None if labels are not enough."""
    wanted = read_fields(pod.spec, "nodeSelector")
    required = read_fields(pod.spec, "affinity", "nodeAffinity").get(_REQUIRED)
    for term in list_items(required, "nodeSelectorTerms") if required is not None else ({},):
        labels = dict(wanted)
        for entry in list_items(term, "matchExpressions"):
            if entry.get("operator") in ("In", "Exists") and not _matches(entry, {**node.labels, **labels}):
                labels[read_text(entry, "key")] = (list_items(entry, "values") or ("true",))[0]
        labelled = Node({**node.raw, "metadata": {**node.meta, "labels": {**node.labels, **labels}}})
        if not list_unmet(pod, labelled) and _are_valid(labels):
            return {key: value for key, value in labels.items() if node.labels.get(key) != value}
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
    asked = [(entry, node.labels) for entry in expressions]
    asked += [(entry, {"metadata.name": node.name}) for entry in fields]
    return all(_matches(entry, values) for entry, values in asked)


def _matches(entry: Fields, values: Mapping[str, str]) -> bool:
    """Whether the labels or fields of the node meet one requirement. An invalid one, which an earlier version may have
    stored, is met by no node: an exception would stop the scheduler for everybody."""
    operator = _OPERATORS.get(read_text(entry, "operator"))
    if operator is None:
        return False
    return Requirement(read_text(entry, "key"), operator, frozenset(list_items(entry, "values"))).matches(values)


def _describe_terms(required: Fields, node: Node) -> Iterable[str]:
    for term in list_items(required, "nodeSelectorTerms"):
        for entry in list_items(term, "matchExpressions"):
            if not _matches(entry, node.labels):
                key = read_text(entry, "key")
                yield f"a label that meets {key} {_describe_values(entry)} ({_describe(node, key)})"
        for entry in list_items(term, "matchFields"):
            if not _matches(entry, {"metadata.name": node.name}):
                yield f"a name that meets {_describe_values(entry)}"


def _describe_values(entry: Fields) -> str:
    return f"{read_text(entry, 'operator')} [{', '.join(list_items(entry, 'values'))}]"


def _describe(node: Node, key: str) -> str:
    value = node.labels.get(key)
    return f"node {node.name} has no label {key}" if value is None else f"node {node.name} has {key}={value}"
