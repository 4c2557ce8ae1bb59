"""A ResourceQuota: what a namespace may have, and what it has."""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import ObjectModel


class ResourceQuota(ObjectModel):
    __slots__ = ()

    @property
    def hard(self) -> Fields:
        """`spec.hard`: the quantities that it allows."""
        hard: Fields = self.spec.get("hard") or NOTHING
        return hard

    @property
    def used(self) -> Fields:
        """`status.used`."""
        used: Fields = self.status.get("used") or NOTHING
        return used
