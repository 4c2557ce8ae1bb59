"""The interface between the lifecycle controllers and the code that sets up an installation."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.api.meta import GVR
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.models.training import TrainingJob


class HistoryLedger(Protocol):
    """What history knows, from memory, so that reconcilers can call it like their view."""

    def is_archived(self, uid: str) -> bool:
        """Whether the record of the TrainJob has been stored."""
        ...

    def find_trouble(self, uid: str) -> str | None:
        """Why the record could not be written; None if there was no error."""
        ...


@dataclass(frozen=True, slots=True)
class LifecycleContext:
    ledger: HistoryLedger | None = None
    """None: there is no history, so nothing waits for it."""
    unpublished: Container[GVR] = ()
    """Kinds whose `status.retention` is not written, because their CRD does not have the field and would drop it."""
    models: Sequence[type[TrainingJob]] = field(default_factory=lambda: tuple(TRAINING_KINDS.values()))
    """The kinds of jobs. A cluster may not serve all of them."""
