"""A Node: what it offers, and whom it keeps off."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import ObjectModel


class Node(ObjectModel):
    __slots__ = ()

    @property
    def is_cordoned(self) -> bool:
        """It takes no new Pods."""
        return bool(self.spec.get("unschedulable"))

    @property
    def taints(self) -> Sequence[Fields]:
        return self.spec.get("taints") or ()

    @property
    def capacity(self) -> Fields:
        """Quantities by the name of the resource."""
        capacity: Fields = self.status.get("capacity") or NOTHING
        return capacity

    @property
    def allocatable(self) -> Fields:
        """What Pods may have of its capacity."""
        allocatable: Fields = self.status.get("allocatable") or NOTHING
        return allocatable
