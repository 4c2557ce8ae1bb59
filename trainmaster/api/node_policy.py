"""The administrator's configuration of the node: the ConfigMap `trainmaster-node` in `kubeflow-system`.

    selectors: approximated     nodeSelector and node affinity that the node does not meet are ignored, with an event
    gpus: "2"                   GPUs to declare on a machine on which none are found
    labels: |                   labels for the node, one key=value per line; the node agent puts them on
      topology.kubernetes.io/zone=eu-1a

Described in docs/scheduling.md; read by the scheduler through its View and by the node agent. Invalid values are
ignored and reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.api.meta import Object
from trainmaster.api.validation import names

NAMESPACE = "kubeflow-system"
NAME = "trainmaster-node"
_KEYS = ("labels", "selectors", "gpus")
_SELECTORS = ("honoured", "approximated")
_MOST_GPUS = 1024


@dataclass(frozen=True, slots=True)
class NodePolicy:
    labels: dict[str, str] = field(default_factory=dict)
    approximates_selectors: bool = False
    gpus: int | None = None
    """None: use the settings."""
    problems: tuple[str, ...] = ()
    """Invalid values, one sentence each."""


NO_POLICY = NodePolicy()


def read_node_policy(config_map: Object | None) -> NodePolicy:
    data = (config_map or {}).get("data") or {}
    if not data:
        return NO_POLICY
    known = ", ".join(_KEYS)
    problems = [f"there is no key {key}; known are {known}" for key in sorted(data) if key not in _KEYS]
    labels: dict[str, str] = {}
    for line in str(data.get("labels", "")).splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, sign, value = text.partition("=")
        key, value = key.strip(), value.strip()
        wrong = [] if sign else ["write key=value"]
        wrong += names.qualified(key) if sign else []
        wrong += names.label_value(value) if sign else []
        if wrong:
            problems.append(f"labels: {text!r}: {wrong[0]}")
        else:
            labels[key] = value
    selectors = str(data.get("selectors", "honoured")).strip()
    if selectors not in _SELECTORS:
        problems.append(f"selectors: {selectors!r} must be honoured or approximated")
    return NodePolicy(labels, selectors == "approximated", _read_count(data, problems), tuple(problems))


def _read_count(data: Object, problems: list[str]) -> int | None:
    if "gpus" not in data:
        return None
    text = str(data["gpus"]).strip()
    if text.isascii() and text.isdigit() and int(text) <= _MOST_GPUS:
        return int(text)
    problems.append(f"gpus: {text!r} must be a whole number from 0 to {_MOST_GPUS}")
    return None
