"""A ResourceQuota: what a namespace may use, and what it uses."""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import ObjectModel


class ResourceQuota(ObjectModel):
    __slots__ = ()

    @property
    def hard(self) -> Fields:
        """`spec.hard`: the limits."""
        hard: Fields = self.spec.get("hard") or NOTHING
        return hard

    @property
    def used(self) -> Fields:
        """`status.used`."""
        used: Fields = self.status.get("used") or NOTHING
        return used
