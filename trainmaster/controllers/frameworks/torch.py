"""Torch: the PET_* variables that torchrun reads, the rendezvous port, and the command of torchtune.

Values follow upstream's plugin: the number of processes per node is the TrainJob's, otherwise `auto` if the node has
GPUs, otherwise the number of CPUs (at least one). The variables are also injected if the TrainJob has no
`spec.trainer`. This is a documented difference: upstream then injects nothing, and torchrun cannot find its peers.

The elastic policy of Trainer 2.1, which upstream never implemented, is mapped to torchrun's own: a range of nodes,
restarts of the workers, and a rendezvous that members can leave and join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.training import torchtune
from trainmaster.api.training.devices import count_cpus, count_gpus
from trainmaster.api.training.steps import list_container_names
from trainmaster.controllers.frameworks.contract import (
    COORDINATOR_PORT,
    RANK,
    ContainerPart,
    Framework,
    FrameworkContext,
    Injection,
    Training,
)


def _inject(training: Training, context: FrameworkContext) -> Injection:
    counts = decide_counts(training)
    training = replace(training, counts={**training.counts, **counts})
    parts: list[ContainerPart] = []
    tune = torchtune.is_torchtune(training.trainer)
    if training.trainer_job:
        env = build_env(training, with_coordinator=not tune)
        parts.append(
            ContainerPart(
                training.trainer_job,
                env=(*training.env, *env),
                ports=({"containerPort": COORDINATOR_PORT},),
                command=build_tune_command(training) if tune else None,
            )
        )
    for job, container in list_targets(training.policy):
        parts.append(ContainerPart(job, container, env=build_env(training, with_coordinator=True)))
    return Injection(counts, tuple(parts))


def decide_counts(training: Training) -> Mapping[str, int]:
    """An elastic job starts with its maximum number of nodes unless the TrainJob sets another."""
    elastic = read_fields(training.policy, "elasticPolicy")
    if not elastic or not training.trainer_job or training.trainer.get("numNodes") is not None:
        return {}
    return {training.trainer_job: elastic.get("maxNodes") or elastic.get("minNodes") or 1}


def build_env(training: Training, *, with_coordinator: bool) -> tuple[Fields, ...]:
    elastic = read_fields(training.policy, "elasticPolicy")
    nodes = f"{elastic.get('minNodes', 1)}:{elastic.get('maxNodes', training.num_nodes)}" if elastic else None
    env: list[Fields] = [
        {"name": "PET_NNODES", "value": nodes or str(training.num_nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": decide_processes_per_node(training)},
        {"name": "PET_NODE_RANK", "valueFrom": RANK},
    ]
    if with_coordinator:
        env.append({"name": "PET_MASTER_ADDR", "value": training.coordinator})
        env.append({"name": "PET_MASTER_PORT", "value": str(COORDINATOR_PORT)})
    if elastic:
        if elastic.get("maxRestarts") is not None:
            env.append({"name": "PET_MAX_RESTARTS", "value": str(elastic["maxRestarts"])})
        env.append({"name": "PET_RDZV_BACKEND", "value": "c10d"})
        env.append({"name": "PET_RDZV_ENDPOINT", "value": f"{training.coordinator}:{COORDINATOR_PORT}"})
    return tuple(env)


def decide_processes_per_node(training: Training) -> str:
    asked = training.num_proc_per_node
    if asked is None:
        asked = "auto"
    gpus = count_gpus(training.resources)
    if asked == "cpu" or (asked == "auto" and gpus == 0):
        return str(max(1, count_cpus(training.resources)))
    return str(asked)


def build_tune_command(training: Training) -> tuple[str, ...]:
    """`tune run` with the matching recipe and the paths of the runtime's volumes."""
    processes = decide_processes_per_node(training)
    shape = torchtune.RecipeShape(
        training.num_nodes, int(processes) if processes.isdigit() else processes, count_gpus(training.resources)
    )
    args = [str(arg) for arg in list_items(training.trainer, "args")]
    recipe, suffix = torchtune.choose_recipe(shape, args)
    command = list(torchtune.ENTRYPOINT)
    if shape.needs_rendezvous:
        command.append(f"--rdzv_endpoint={training.coordinator}:{COORDINATOR_PORT}")
    command += [recipe, "--config", torchtune.find_model(training.runtime_name) + suffix]
    return (*command, *torchtune.list_managed_configs(training.runtime_command))


def list_targets(policy: Fields) -> list[tuple[str, str]]:
    """(job, container) pairs that get the variables in addition to the trainer's own."""
    targets = list_items(policy, "envInjection", "targets")
    return [(target["jobName"], name) for target in targets for name in list_items(target, "containerNames")]


def _list_problems(training: Training, context: FrameworkContext) -> Sequence[str]:
    problems = []
    names = {
        job["name"]: {*list_container_names(job), *list_container_names(job, "initContainers")} for job in training.jobs
    }
    for job, container in list_targets(training.policy):
        if container not in names.get(job, ()):
            text = f'envInjection target podSet "{job}" container "{container}" not found in runtime template'
            problems.append(text)
    if read_fields(training.policy, "elasticPolicy").get("metrics"):
        problems.append("mlPolicy.torch.elasticPolicy.metrics of the runtime (nobody scales the job)")
    return problems


FRAMEWORK = Framework("torch", _inject, _list_problems)
