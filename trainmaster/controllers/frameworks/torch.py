"""Torch: the PET_* variables that torchrun reads, and the rendezvous port.

Values follow upstream's plugin: processes per node are the TrainJob's number, else `auto` when the node has GPUs, else
the number of CPUs (at least one). They are injected also when the TrainJob has no `spec.trainer` (a listed
difference: upstream then injects nothing, and a torchrun command cannot find its peers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from trainmaster.api.labels import COMPLETION_INDEX
from trainmaster.controllers.frameworks.contract import COORDINATOR_PORT, Framework, Injection, Training


def _inject(training: Training) -> Injection:
    rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
    env: list[Mapping[str, Any]] = [
        {"name": "PET_NNODES", "value": str(training.num_nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": decide_processes_per_node(training)},
        {"name": "PET_NODE_RANK", "valueFrom": rank},
        {"name": "PET_MASTER_ADDR", "value": f"{training.name}-node-0-0.{training.name}"},
        {"name": "PET_MASTER_PORT", "value": str(COORDINATOR_PORT)},
    ]
    return Injection(tuple(env), ({"containerPort": COORDINATOR_PORT},))


def decide_processes_per_node(training: Training) -> str:
    asked = training.num_proc_per_node
    if asked is None:
        asked = "auto"
    gpus = count_gpus(training.resources)
    if asked == "cpu" or (asked == "auto" and gpus == 0):
        return str(max(1, count_cpus(training.resources)))
    return str(asked)


def count_gpus(resources: Mapping[str, Any]) -> int:
    for side in ("requests", "limits"):
        for name, quantity in sorted((resources.get(side) or {}).items()):
            if "gpu" in name.lower() and (count := _ceiling(quantity)):
                return count
    return 0


def count_cpus(resources: Mapping[str, Any]) -> int:
    for side in ("requests", "limits"):
        count = _ceiling((resources.get(side) or {}).get("cpu", 0))
        if count:
            return count
    return 0


def _ceiling(quantity: Any) -> int:
    """A CPU or device count rounded up; what is no such count is zero (admission has refused it)."""
    text = str(quantity)
    try:
        value = Decimal(text[:-1]) / 1000 if text.endswith("m") else Decimal(text)
    except InvalidOperation:
        return 0
    return int(value.to_integral_value(ROUND_CEILING))


def _list_problems(policy: Mapping[str, Any], training: Training) -> Sequence[str]:
    known = ("numProcPerNode",)
    problems = [
        f"mlPolicy.torch.{name} of the runtime" for name, value in policy.items() if value and name not in known
    ]
    if list(training.command) == ["tune", "run"]:
        problems.append("spec.trainer.command ['tune', 'run'] (torchtune)")
    return problems


FRAMEWORK = Framework("torch", _inject, _list_problems)
