"""TrainJob and its runtimes."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

CLUSTER_TRAINING_RUNTIME = Kind(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="ClusterTrainingRuntime",
    plural="clustertrainingruntimes",
    singular="clustertrainingruntime",
    namespaced=False,
    definition="org.kubeflow.trainer.v1alpha1.ClusterTrainingRuntime",
    load=partial(load, "org.kubeflow.trainer.v1alpha1.ClusterTrainingRuntime"),
    custom=True,
)

TRAINING_RUNTIME = Kind(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="TrainingRuntime",
    plural="trainingruntimes",
    singular="trainingruntime",
    namespaced=True,
    definition="org.kubeflow.trainer.v1alpha1.TrainingRuntime",
    load=partial(load, "org.kubeflow.trainer.v1alpha1.TrainingRuntime"),
    custom=True,
)

TRAIN_JOB = Kind(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="TrainJob",
    plural="trainjobs",
    singular="trainjob",
    namespaced=True,
    definition="org.kubeflow.trainer.v1alpha1.TrainJob",
    load=partial(load, "org.kubeflow.trainer.v1alpha1.TrainJob"),
    custom=True,
    status=True,
)

KINDS = (
    CLUSTER_TRAINING_RUNTIME,
    TRAINING_RUNTIME,
    TRAIN_JOB,
)
