"""A controller: a reconcile function with its sources. Data that the manager runs and the property tests walk over."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.meta import GVR
from trainmaster.engine.plan import Reconcile
from trainmaster.engine.source import ChangeSource


@dataclass(frozen=True, slots=True)
class Controller:
    name: str
    """For metrics, logs, and as field manager of its writes."""
    kind: GVR
    """What its requests name."""
    reconcile: Reconcile
    sources: tuple[ChangeSource, ...]
    reporter: str
    """The component that its events name."""
    workers: int = 1
