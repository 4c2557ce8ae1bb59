"""A Node: its resources, and which Pods it repels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.labels import DRAIN_REASON, DRAINED_BY, DRAINED_SINCE, DRAINED_UNTIL, NEXT_START
from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import ObjectModel


@dataclass(frozen=True, slots=True)
class Drain:
    """Why a Node runs nothing: somebody maintains the machine, or it shuts down."""

    since: str
    by: str = ""
    reason: str = ""
    ends_with_start: bool = False
    """Whether the next start of the server ends it."""

    def describe(self, *, discreet: bool = False) -> str:
        """The second half of a sentence. `discreet`: does not say by whom."""
        by = f" by {self.by}" if self.by and not discreet else ""
        return f"drained since {self.since}{by}" + (f" ({self.reason})" if self.reason else "")


class Node(ObjectModel):
    __slots__ = ()

    @property
    def drain(self) -> Drain | None:
        """None if it is not drained. Somebody who only uncordons it has ended the drain too."""
        annotations = self.annotations
        since = annotations.get(DRAINED_SINCE)
        if not since or not self.is_cordoned:
            return None
        by, reason = (_make_line(annotations.get(key, "")) for key in (DRAINED_BY, DRAIN_REASON))
        return Drain(_make_line(since), by, reason, annotations.get(DRAINED_UNTIL) == NEXT_START)

    @property
    def is_cordoned(self) -> bool:
        """Whether it accepts no new Pods."""
        return bool(self.spec.get("unschedulable"))

    @property
    def taints(self) -> Sequence[Fields]:
        return self.spec.get("taints") or ()

    @property
    def capacity(self) -> Fields:
        """Quantities by resource name."""
        capacity: Fields = self.status.get("capacity") or NOTHING
        return capacity

    @property
    def allocatable(self) -> Fields:
        """The part of its capacity that is available for Pods."""
        allocatable: Fields = self.status.get("allocatable") or NOTHING
        return allocatable


def _make_line(text: str) -> str:
    """One line without control characters, which `kubectl annotate` accepts."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
