"""The runtime that a TrainJob refers to. Separate from `snapshots`, which imports more."""

from __future__ import annotations

from trainmaster.api.meta import GVR, Fields
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES

TRAINJOB_CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
"""`spec.managedBy` of TrainJobs that run here; the default."""


def find_runtime_gvr(reference: Fields) -> GVR | None:
    """The collection of a `runtimeRef`; None if it is not one of runtimes."""
    if reference.get("apiGroup", TRAINING_RUNTIMES.group) != TRAINING_RUNTIMES.group:
        return None
    kinds = {"ClusterTrainingRuntime": CLUSTER_TRAINING_RUNTIMES, "TrainingRuntime": TRAINING_RUNTIMES}
    return kinds.get(reference.get("kind", "ClusterTrainingRuntime"))
