"""An Event: what happened, to whom, when, and how often.

There are two ways to write times, and either may be missing: `firstTimestamp` and `lastTimestamp` of old, `eventTime`
with a `series` of now.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import ObjectModel


class ObjectEvent(ObjectModel):
    __slots__ = ()

    @property
    def involved(self) -> Fields:
        """`involvedObject`: whom it is about."""
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
        """The component that says so."""
        source: Fields = self.raw.get("source") or NOTHING
        return str(source.get("component") or self.raw.get("reportingComponent") or "")

    @property
    def series(self) -> Fields:
        series: Fields = self.raw.get("series") or NOTHING
        return series

    @property
    def count(self) -> int:
        """How often."""
        return int(self.raw.get("count") or self.series.get("count") or 1)

    @property
    def first_at(self) -> str:
        return str(self.raw.get("firstTimestamp") or self.raw.get("eventTime") or "")

    @property
    def last_at(self) -> str:
        """Empty where only the first time was written down."""
        raw = self.raw
        return str(raw.get("lastTimestamp") or self.series.get("lastObservedTime") or raw.get("eventTime") or "")

    @property
    def time(self) -> str:
        """When it was seen last, as well as it is known."""
        return self.last_at or self.first_at or str(self.meta.get("creationTimestamp") or "")

    def is_since(self, moment: str) -> bool:
        """Whether it was seen last at this moment or later, in whole seconds: objects are created in such."""
        return self.time[:19] >= moment[:19]
