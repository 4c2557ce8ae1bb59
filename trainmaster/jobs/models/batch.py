"""A Job of a JobSet: its counts, its attempt, its place, and whether it has ended."""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.jobs.models.objects import JobSetMember, count

ENDS = ("Complete", "Failed")


class Job(JobSetMember):
    __slots__ = ()

    @property
    def template(self) -> Fields:
        """The template of its Pods."""
        template: Fields = self.spec.get("template") or NOTHING
        return template

    @property
    def is_indexed(self) -> bool:
        """Whether each of its Pods has a completion index."""
        return bool(self.spec.get("completionMode") == "Indexed")

    @property
    def parallelism(self) -> int:
        """Maximum number of Pods at a time."""
        return int(self.spec.get("parallelism", 1))

    @property
    def completions(self) -> int | None:
        """How many Pods must succeed; None if one success is enough."""
        completions: int | None = self.spec.get("completions")
        return completions

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    # Its counts

    @property
    def active(self) -> int:
        return count(self.status.get("active"))

    @property
    def ready(self) -> int:
        return count(self.status.get("ready"))

    @property
    def succeeded(self) -> int:
        return count(self.status.get("succeeded"))

    @property
    def failed(self) -> int:
        return count(self.status.get("failed"))

    @property
    def started_at(self) -> str:
        return str(self.status.get("startTime") or "")

    # Its end

    @property
    def is_finished(self) -> bool:
        return self.end is not None

    @property
    def end(self) -> Fields | None:
        """The condition with its outcome; None while it has not ended."""
        return self.find_end(ENDS)
