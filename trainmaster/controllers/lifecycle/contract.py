"""What the lifecycle controllers are told by whoever puts an installation together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class HistoryLedger(Protocol):
    """What history knows, from memory: reconcilers ask it as they ask their view."""

    def is_archived(self, uid: str) -> bool:
        """Whether the record of that TrainJob is safe."""
        ...

    def find_trouble(self, uid: str) -> str | None:
        """Why it could not be written; None while nothing went wrong."""
        ...


@dataclass(frozen=True, slots=True)
class LifecycleContext:
    ledger: HistoryLedger | None = None
    """None: there is no history, and nothing waits for it."""
    publish: bool = True
    """Whether `status.retention` is written. A CRD that does not know the field would drop it, every time."""
