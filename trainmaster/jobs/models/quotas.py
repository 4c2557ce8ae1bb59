"""A ResourceQuota: what a namespace may have, and what it has."""

from __future__ import annotations

from trainmaster.api.meta import Fields, Object
from trainmaster.jobs.models.objects import ObjectModel

_NOTHING: Object = {}


class ResourceQuota(ObjectModel):
    __slots__ = ()

    @property
    def hard(self) -> Fields:
        """`spec.hard`: the quantities that it allows."""
        hard: Fields = self.spec.get("hard") or _NOTHING
        return hard

    @property
    def used(self) -> Fields:
        """`status.used`."""
        used: Fields = self.status.get("used") or _NOTHING
        return used
