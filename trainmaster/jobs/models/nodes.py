"""A Node: its resources, and which Pods it repels."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import ObjectModel


class Node(ObjectModel):
    __slots__ = ()

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
