"""What a framework is told about a job, and what it answers. Frameworks import `api` only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COORDINATOR_PORT = 29500
"""Torch, JAX and XGBoost rendezvous on this port in every Pod."""


@dataclass(frozen=True, slots=True)
class Training:
    """One TrainJob as its framework sees it."""

    name: str
    num_nodes: int
    num_proc_per_node: Any
    """int, `auto`, `cpu`, `gpu`: the TrainJob's, else the runtime's (older shape), else None."""
    resources: Mapping[str, Any]
    """Requests and limits of one node's trainer container: those of the TrainJob if it has any, else the runtime's."""
    command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Injection:
    """What goes into the container `node` of the trainer job, after the TrainJob's own environment."""

    env: tuple[Mapping[str, Any], ...] = ()
    ports: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Framework:
    name: str
    inject: Callable[[Training], Injection]
    list_problems: Callable[[Mapping[str, Any], Training], Sequence[str]]
    """Sentences that say what of the policy, or of the job under it, cannot be carried out."""
