"""An Event: what happened, to which object, when, and how often.

There are two formats for times, and either may be missing: the older `firstTimestamp` and `lastTimestamp`, and the
newer `eventTime` with a `series`.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import ObjectModel


class ObjectEvent(ObjectModel):
    __slots__ = ()

    @property
    def involved(self) -> Fields:
        """`involvedObject`: the object that it is about."""
        involved: Fields = self.raw.get("involvedObject") or NOTHING
        return involved

    @property
    def about(self) -> str:
        """`Pod/one-node-0`."""
        involved = self.involved
        return f"{involved.get('kind', '')}/{involved.get('name', '')}"

    @property
    def type(self) -> str:
        return str(self.raw.get("type") or "Normal")

    @property
    def is_warning(self) -> bool:
        return self.type == "Warning"

    @property
    def reason(self) -> str:
        """CamelCase, for programs."""
        return str(self.raw.get("reason") or "")

    @property
    def message(self) -> str:
        return str(self.raw.get("message") or "")

    @property
    def reporter(self) -> str:
        """The component that reported it."""
        source: Fields = self.raw.get("source") or NOTHING
        return str(source.get("component") or self.raw.get("reportingComponent") or "")

    @property
    def series(self) -> Fields:
        series: Fields = self.raw.get("series") or NOTHING
        return series

    @property
    def count(self) -> int:
        """How often it happened."""
        return int(self.raw.get("count") or self.series.get("count") or 1)

    @property
    def first_at(self) -> str:
        return str(self.raw.get("firstTimestamp") or self.raw.get("eventTime") or "")

    @property
    def last_at(self) -> str:
        """Empty if only the first time is recorded."""
        raw = self.raw
        return str(raw.get("lastTimestamp") or self.series.get("lastObservedTime") or raw.get("eventTime") or "")

    @property
    def time(self) -> str:
        """The last time it happened, as far as known."""
        return self.last_at or self.first_at or str(self.meta.get("creationTimestamp") or "")

    def is_since(self, moment: str) -> bool:
        """Whether it last happened at this time or later. Compares whole seconds, the resolution of creation times."""
        return self.time[:19] >= moment[:19]
