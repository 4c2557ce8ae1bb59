"""A JobSet: its ReplicatedJobs, its network, its policies, its attempts, and whether it has ended."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING
from trainmaster.api.training.restarts import read_first
from trainmaster.jobs.models.objects import ObjectModel, count

ENDS = ("Completed", "Failed")


class JobSet(ObjectModel):
    __slots__ = ()

    @property
    def replicated_jobs(self) -> Sequence[Fields]:
        return self.spec.get("replicatedJobs") or ()

    @property
    def replicated_statuses(self) -> Sequence[Fields]:
        """`status.replicatedJobsStatus`."""
        return self.status.get("replicatedJobsStatus") or ()

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    # Its network

    @property
    def network(self) -> Fields:
        network: Fields = self.spec.get("network") or NOTHING
        return network

    @property
    def subdomain(self) -> str:
        """Computed here and not when the JobSet is created, because of generated names."""
        return str(self.network.get("subdomain") or self.name)

    @property
    def has_dns(self) -> bool:
        return self.network.get("enableDNSHostnames") is not False

    # Failures and attempts

    @property
    def has_failure_policy(self) -> bool:
        """An empty policy counts, because it permits restarts; without one the first failure is final."""
        return self.spec.get("failurePolicy") is not None

    @property
    def failure_policy(self) -> Fields:
        policy: Fields = self.spec.get("failurePolicy") or NOTHING
        return policy

    @property
    def failure_rules(self) -> Sequence[Fields]:
        return self.failure_policy.get("rules") or ()

    @property
    def max_restarts(self) -> int:
        return count(self.failure_policy.get("maxRestarts"))

    @property
    def restart_strategy(self) -> str:
        return str(self.failure_policy.get("restartStrategy", "Recreate"))

    @property
    def restarts(self) -> int:
        """Restarts of this JobSet. If a user restarted the TrainJob, there were other JobSets before."""
        return count(self.status.get("restarts"))

    @property
    def spent_restarts(self) -> int:
        """Restarts that count against the limit. Progress may have given earlier ones back."""
        return count(self.status.get("restartsCountTowardsMax", self.restarts))

    @property
    def first_attempt(self) -> int:
        """The number of its first attempt among all attempts of its TrainJob."""
        return read_first(self.raw)

    @property
    def attempt(self) -> int:
        """The current attempt among all attempts of its TrainJob, from 0."""
        return self.first_attempt + self.restarts

    # Its end

    @property
    def is_finished(self) -> bool:
        return self.end is not None

    @property
    def end(self) -> Fields | None:
        """The condition with its outcome; None while it has not ended."""
        return self.find_end(ENDS)
