"""A request: the name of an object to reconcile. It has no reason and no data (level-triggered)."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """A tuple, because queues look it up several times per change."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
