"""XGBoost: the DMLC_* variables of the rabit tracker, which runs beside the first worker.

As upstream, there is one worker per GPU, or one per node without GPUs.
"""

from __future__ import annotations

from trainmaster.api.training.devices import count_gpus
from trainmaster.controllers.frameworks.contract import (
    COORDINATOR_PORT,
    RANK,
    ContainerPart,
    Framework,
    FrameworkContext,
    Injection,
    Training,
    list_no_problems,
)


def _inject(training: Training, context: FrameworkContext) -> Injection:
    if not training.trainer_job:
        return Injection()
    workers = training.num_nodes * max(1, count_gpus(training.resources))
    env = (
        *training.env,
        {"name": "DMLC_TRACKER_URI", "value": training.coordinator},
        {"name": "DMLC_TRACKER_PORT", "value": str(COORDINATOR_PORT)},
        {"name": "DMLC_TASK_ID", "valueFrom": RANK},
        {"name": "DMLC_NUM_WORKER", "value": str(workers)},
    )
    return Injection(
        parts=(ContainerPart(training.trainer_job, env=env, ports=({"containerPort": COORDINATOR_PORT},)),)
    )


FRAMEWORK = Framework("xgboost", _inject, list_no_problems)
