"""The position of each Job in a JobSet: its indexes, its name, and how often it was restarted individually."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items
from trainmaster.jobs.models.jobsets import JobSet


@dataclass(frozen=True, slots=True)
class JobIndexes:
    """The indexes of one Job: in its ReplicatedJob, in the JobSet, and in its group."""

    replicated: Fields
    """The entry of `spec.replicatedJobs`."""
    index: int
    global_index: int
    group_index: int


def count_replicas(replicated: Fields) -> int:
    return int(replicated.get("replicas", 1))


def get_group(replicated: Fields) -> str:
    return str(replicated.get("groupName", "default"))


def list_places(jobset: JobSet) -> Iterator[JobIndexes]:
    global_index = 0
    group_counts: dict[str, int] = {}
    for replicated in jobset.replicated_jobs:
        group = get_group(replicated)
        for index in range(count_replicas(replicated)):
            yield JobIndexes(replicated, index, global_index, group_counts.get(group, 0))
            group_counts[group] = group_counts.get(group, 0) + 1
            global_index += 1


def get_job_name(jobset: JobSet, place: JobIndexes) -> str:
    return f"{jobset.name}-{place.replicated['name']}-{place.index}"


def find_coordinator(jobset: JobSet) -> str | None:
    """The DNS name of the coordinator's Pod."""
    given = jobset.spec.get("coordinator")
    if not given:
        return None
    host = f"{jobset.name}-{given['replicatedJob']}-{given.get('jobIndex', 0)}-{given.get('podIndex', 0)}"
    return f"{host}.{jobset.subdomain}"


def restarts_single_jobs(jobset: JobSet) -> bool:
    """Whether a rule restarts Jobs individually. Upstream has a feature gate for these actions; here a rule that uses
    one enables them for its JobSet, and other JobSets behave as with the gate disabled."""
    actions = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")
    return any(rule.get("action") in actions for rule in jobset.failure_rules)


def list_job_restarts(jobset: JobSet, name: str, key: str = "jobRestarts") -> list[int]:
    """How often each Job of a ReplicatedJob was restarted individually, by index; initially zeros."""
    replicas = next((count_replicas(one) for one in jobset.replicated_jobs if one["name"] == name), 0)
    for entry in jobset.replicated_statuses:
        if entry["name"] == name and len(counts := list_items(entry, key)) == replicas:
            return list(counts)
    return [0] * replicas
