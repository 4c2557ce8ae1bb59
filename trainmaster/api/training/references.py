"""Which runtime a TrainJob refers to. Apart from `snapshots`, which loads what reads YAML and quantities."""

from __future__ import annotations

from trainmaster.api.meta import GVR, Fields
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES


def find_runtime_gvr(reference: Fields) -> GVR | None:
    """The collection that a `runtimeRef` names; None when that holds no runtimes."""
    if reference.get("apiGroup", TRAINING_RUNTIMES.group) != TRAINING_RUNTIMES.group:
        return None
    kinds = {"ClusterTrainingRuntime": CLUSTER_TRAINING_RUNTIMES, "TrainingRuntime": TRAINING_RUNTIMES}
    return kinds.get(reference.get("kind", "ClusterTrainingRuntime"))
