"""What a JobSet's spec says, as small questions: its ReplicatedJobs, the place of each Job, names, the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trainmaster.api.meta import Object

Replicated: TypeAlias = Mapping[str, Any]
"""An entry of `spec.replicatedJobs`."""


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where one Job stands: index within its ReplicatedJob, over all, and within its group."""

    replicated: Replicated
    index: int
    global_index: int
    group_index: int


def list_replicated(jobset: Object) -> Sequence[Replicated]:
    return jobset["spec"].get("replicatedJobs") or ()


def count_replicas(replicated: Replicated) -> int:
    return int(replicated.get("replicas", 1))


def get_group(replicated: Replicated) -> str:
    return str(replicated.get("groupName", "default"))


def list_places(jobset: Object) -> Iterator[JobPlace]:
    global_index = 0
    group_counts: dict[str, int] = {}
    for replicated in list_replicated(jobset):
        group = get_group(replicated)
        for index in range(count_replicas(replicated)):
            yield JobPlace(replicated, index, global_index, group_counts.get(group, 0))
            group_counts[group] = group_counts.get(group, 0) + 1
            global_index += 1


def get_job_name(jobset: Object, place: JobPlace) -> str:
    return f"{jobset['metadata']['name']}-{place.replicated['name']}-{place.index}"


def get_subdomain(jobset: Object) -> str:
    """Decided here and not when the JobSet is created, because of generated names."""
    return str((jobset["spec"].get("network") or {}).get("subdomain") or jobset["metadata"]["name"])


def has_dns(jobset: Object) -> bool:
    return (jobset["spec"].get("network") or {}).get("enableDNSHostnames") is not False


def is_suspended(jobset: Object) -> bool:
    return bool(jobset["spec"].get("suspend"))


def find_coordinator(jobset: Object) -> str | None:
    """The name under which the coordinator's Pod is reached."""
    given = jobset["spec"].get("coordinator")
    if not given:
        return None
    host = (
        f"{jobset['metadata']['name']}-{given['replicatedJob']}-{given.get('jobIndex', 0)}-{given.get('podIndex', 0)}"
    )
    return f"{host}.{get_subdomain(jobset)}"


def restarts_single_jobs(jobset: Object) -> bool:
    """Whether a rule restarts a Job alone. Upstream hides those actions behind a gate; here a rule that names one
    opens it for its JobSet, and all others are exactly as with the gate closed."""
    rules = (jobset["spec"].get("failurePolicy") or {}).get("rules") or ()
    return any(rule.get("action") in ("RestartJob", "RestartJobAndIgnoreMaxRestarts") for rule in rules)


def list_job_restarts(jobset: Object, name: str, key: str = "jobRestarts") -> list[int]:
    """How often each Job of a ReplicatedJob was restarted alone, by index; zeros until the first time."""
    replicas = next((count_replicas(one) for one in list_replicated(jobset) if one["name"] == name), 0)
    for entry in (jobset.get("status") or {}).get("replicatedJobsStatus") or ():
        if entry["name"] == name and len(entry.get(key) or ()) == replicas:
            return list(entry[key])
    return [0] * replicas
