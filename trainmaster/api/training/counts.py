"""How many Pods the jobs of a TrainJob have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.api.meta import Fields, Object
from trainmaster.api.training.steps import (
    LAUNCHER,
    NODE,
    TRAINER,
    decide_num_nodes,
    find_ancestor,
    find_trainer,
    list_jobs,
    read_framework,
)

MOST_PODS = 10_000
"""Of one job. Its controller plans all of them at once, so a mistyped number would take all memory."""


def find_excess(pods: int, most: int = MOST_PODS) -> str:
    """Why a job has too many Pods; "" if it has not."""
    return "" if pods <= most else f"it has {pods} Pods, and a job of this kind may have at most {most}"


def count_pods(trainjob: Fields, runtime: Fields, filled: Fields) -> dict[str, int]:
    """The number of Pods that each job has at the same time, at least. `filled` is the template with the TrainJob's
    values; of an elastic job without `numNodes` the smallest size counts."""
    trainer = find_trainer(filled)
    counts = {}
    for job in list_jobs(filled):
        parallelism = int(((job.get("template") or {}).get("spec") or {}).get("parallelism") or 1)
        counts[job["name"]] = decide_num_nodes(trainjob, runtime, parallelism) if job is trainer else parallelism
    name, policy = read_framework(runtime)
    if name == "mpi":
        asked = (trainjob["spec"].get("trainer") or {}).get("numNodes")
        nodes = counts[trainer["name"]] if trainer is not None else 1
        counts = count_mpi_pods(list_jobs(filled), policy, counts, asked, nodes)
    return {job["name"]: int(job.get("replicas") or 1) * counts[job["name"]] for job in list_jobs(filled)}


def count_mpi_pods(
    jobs: Sequence[Object], policy: Mapping[str, Any], counts: Mapping[str, int], asked: int | None, num_nodes: int
) -> dict[str, int]:
    """The requested number of nodes is the number of workers and, with `runLauncherAsNode`, the launcher.

    `counts` are the Pods of each job by the template and the policy, `num_nodes` those of the trainer.
    """
    result = dict(counts)
    names = {job["name"]: find_ancestor(job) for job in jobs}
    if names.get(LAUNCHER) == TRAINER:
        # The policy's number was applied to the job with the label; there is always exactly one launcher.
        result[LAUNCHER] = 1
        if asked is None and num_nodes > 1:
            asked = num_nodes
    if asked is not None and NODE in names:
        result[NODE] = max(asked - 1, 1) if policy.get("runLauncherAsNode") else asked
    return result
