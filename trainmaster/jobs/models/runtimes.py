"""A runtime of a namespace or of the cluster: the JobSet that it describes, and how a framework is started."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.labels import DERIVED, FRAMEWORK
from trainmaster.api.meta import Fields
from trainmaster.api.reading import NOTHING, read_spec
from trainmaster.api.training.steps import decide_num_nodes, find_trainer, get_ml_policy, get_template_spec
from trainmaster.jobs.models.objects import ObjectModel


class TrainingRuntime(ObjectModel):
    __slots__ = ()

    @property
    def framework(self) -> str:
        return str(self.labels.get(FRAMEWORK, ""))

    @property
    def is_derived(self) -> bool:
        """Created for single jobs, and deleted with them."""
        return self.labels.get(DERIVED) == "true"

    @property
    def jobset_spec(self) -> Fields:
        """The spec of a TrainJob's JobSet."""
        return get_template_spec(self.raw)

    @property
    def replicated_jobs(self) -> Sequence[Fields]:
        return self.jobset_spec.get("replicatedJobs") or ()

    @property
    def ml_policy(self) -> Fields:
        return get_ml_policy(self.raw)

    @property
    def nodes(self) -> int | None:
        """The number of nodes of a job that does not specify it; None for the default, which is one."""
        nodes = self.ml_policy.get("numNodes")
        return nodes if isinstance(nodes, int) else None

    @property
    def default_nodes(self) -> int:
        """The number of nodes of a job that does not specify it."""
        trainer = find_trainer(self.jobset_spec)
        parallelism = read_spec(trainer["template"]).get("parallelism") if trainer else None
        return decide_num_nodes(NOTHING, self.raw, parallelism or 1)

    @property
    def max_restarts(self) -> int:
        policy: Fields = self.jobset_spec.get("failurePolicy") or NOTHING
        return int(policy.get("maxRestarts") or 0)
