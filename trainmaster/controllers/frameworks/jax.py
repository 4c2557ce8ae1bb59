"""JAX: the coordinator's address, the number of processes and the index of each, for `jax.distributed.initialize`.

Also injected without `spec.trainer`, as for torch. `numProcPerNode` has no effect: one process drives all devices of
its node.
"""

from __future__ import annotations

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
    env = (
        *training.env,
        {"name": "JAX_NUM_PROCESSES", "value": str(training.num_nodes)},
        {"name": "JAX_PROCESS_ID", "valueFrom": RANK},
        {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{training.coordinator}:{COORDINATOR_PORT}"},
    )
    return Injection(
        parts=(ContainerPart(training.trainer_job, env=env, ports=({"containerPort": COORDINATOR_PORT},)),)
    )


FRAMEWORK = Framework("jax", _inject, list_no_problems)
