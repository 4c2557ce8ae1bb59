"""A Job of a JobSet: its counts, its attempt, its place, and whether it has ended."""

from __future__ import annotations

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import JOBSET_NAME, REPLICATED_JOB_NAME, RESTART_ATTEMPT
from trainmaster.api.meta import Fields, Object
from trainmaster.jobs.models.objects import ObjectModel, count

ENDS = ("Complete", "Failed")
_NOTHING: Object = {}


class Job(ObjectModel):
    __slots__ = ()

    @property
    def jobset(self) -> str:
        return str(self.labels.get(JOBSET_NAME, ""))

    @property
    def step(self) -> str:
        """The ReplicatedJob that it belongs to."""
        return str(self.labels.get(REPLICATED_JOB_NAME, ""))

    @property
    def attempt(self) -> int:
        """Restarts of its JobSet when it was made."""
        return find_count(str(self.labels.get(RESTART_ATTEMPT, "0"))) or 0

    @property
    def template(self) -> Fields:
        """Of its Pods."""
        template: Fields = self.spec.get("template") or _NOTHING
        return template

    @property
    def is_indexed(self) -> bool:
        """Each of its Pods has a completion index."""
        return bool(self.spec.get("completionMode") == "Indexed")

    @property
    def parallelism(self) -> int:
        """Pods at one time."""
        return int(self.spec.get("parallelism", 1))

    @property
    def completions(self) -> int | None:
        """Pods that have to succeed; None where the first success is enough."""
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
        """The condition that says how it ended; None while it has not."""
        for condition in self.conditions:
            if condition.get("type") in ENDS and condition.get("status") == "True":
                return condition
        return None
