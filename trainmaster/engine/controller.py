"""A controller: a reconcile function with its sources, as data for the manager and the property tests."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.meta import GVR
from trainmaster.engine.plan import Reconcile, ReconcileInSteps
from trainmaster.engine.source import ChangeSource


@dataclass(frozen=True, slots=True)
class Controller:
    name: str
    """For metrics, logs, and as field manager of its writes."""
    kind: GVR
    """The kind that its requests name."""
    reconcile: Reconcile
    sources: tuple[ChangeSource, ...]
    reporter: str
    """The reporting component of its events."""
    workers: int = 1
    reconcile_in_steps: ReconcileInSteps | None = None
    """If given, it is used instead of `reconcile` and returns the same plan."""
