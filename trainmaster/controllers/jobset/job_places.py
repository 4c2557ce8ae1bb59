"""The place of each Job in a JobSet: its indexes, its name, how often it was restarted alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items
from trainmaster.jobs.models.jobsets import JobSet


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where one Job stands: index within its ReplicatedJob, over all, and within its group."""

    replicated: Fields
    """The entry of `spec.replicatedJobs`."""
    index: int
    global_index: int
    group_index: int


def count_replicas(replicated: Fields) -> int:
    return int(replicated.get("replicas", 1))


def get_group(replicated: Fields) -> str:
    return str(replicated.get("groupName", "default"))


def list_places(jobset: JobSet) -> Iterator[JobPlace]:
    global_index = 0
    group_counts: dict[str, int] = {}
    for replicated in jobset.replicated_jobs:
        group = get_group(replicated)
        for index in range(count_replicas(replicated)):
            yield JobPlace(replicated, index, global_index, group_counts.get(group, 0))
            group_counts[group] = group_counts.get(group, 0) + 1
            global_index += 1


def get_job_name(jobset: JobSet, place: JobPlace) -> str:
    return f"{jobset.name}-{place.replicated['name']}-{place.index}"


def find_coordinator(jobset: JobSet) -> str | None:
    """The name under which the coordinator's Pod is reached."""
    given = jobset.spec.get("coordinator")
    if not given:
        return None
    host = f"{jobset.name}-{given['replicatedJob']}-{given.get('jobIndex', 0)}-{given.get('podIndex', 0)}"
    return f"{host}.{jobset.subdomain}"


def restarts_single_jobs(jobset: JobSet) -> bool:
    """Whether a rule restarts a Job alone. Upstream hides those actions behind a gate; here a rule that names one
    opens it for its JobSet, and all others are exactly as with the gate closed."""
    actions = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")
    return any(rule.get("action") in actions for rule in jobset.failure_rules)


def list_job_restarts(jobset: JobSet, name: str, key: str = "jobRestarts") -> list[int]:
    """How often each Job of a ReplicatedJob was restarted alone, by index; zeros until the first time."""
    replicas = next((count_replicas(one) for one in jobset.replicated_jobs if one["name"] == name), 0)
    for entry in jobset.replicated_statuses:
        if entry["name"] == name and len(counts := list_items(entry, key)) == replicas:
            return list(counts)
    return [0] * replicas
