"""What a JobSet will need: its ReplicatedJobs as roles, and the maximum that they use at one time. Pure.

A ReplicatedJob that depends on the completion of another runs after it, so the two can use the same resources; all
others may run at the same time. The peak of each resource is the maximum over all sets of roles that can run at once.
The ledger reads it for each JobSet. Existing Pods are counted with their own requests, not those of the template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trainmaster.api.labels import KEEPS_PLACE
from trainmaster.api.meta import Fields
from trainmaster.api.pods.requests import Amounts, add_into, compute_maxima, count_requests
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.controllers.waiting import PASSING, find_annotated
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.v1jobs import V1Job

ModelT = TypeVar("ModelT", bound=ObjectModel)

_MANY = 10
"""With more roles than this, all of them are assumed to run at the same time, because there would be too many sets."""


@dataclass(frozen=True, slots=True)
class GangRole:
    """One ReplicatedJob."""

    name: str
    replicas: int
    width: int
    """The maximum number of Pods at one time."""
    total: int
    """The number of Pods until the role is complete."""
    amounts: Amounts
    """The requests of one Pod, according to the template."""
    starts_first: bool
    """It does not depend on another role."""
    after: frozenset[str]
    """Roles that are complete before it starts."""
    least: int
    """How many of its Pods have to start together with the others: usually all, that is, `width`."""

    @property
    def is_partial(self) -> bool:
        return self.least < self.width

    def count_left(self, succeeded: int) -> int:
        """How many Pods that have to run at the same time it may still have."""
        return max(0, min(self.least, self.total - succeeded))


@dataclass(frozen=True, slots=True)
class GangShape:
    """What the scheduler knows about one JobSet."""

    uid: str
    namespace: str
    name: str
    generation: int
    attempt: int
    is_open: bool
    """Whether it may have Pods: it is not finished, suspended or being deleted."""
    is_blocked: bool
    """Whether somebody has to change something before it can continue, according to its waiting annotation."""
    since: str
    """Since when it has wanted to run: when it was created or last resumed by a person."""
    priority: int
    roles: tuple[GangRole, ...]
    complete: frozenset[str]
    """Roles whose Jobs in this attempt have all succeeded, even if their Pods were deleted since."""
    least: int = 0
    """How many Pods have to start together according to the job; 0 for all."""
    keeps_place: bool = False
    """Whether it ran when the machine was drained, and has not been suspended by anybody else since."""
    is_returning: bool = False
    """Whether it keeps its place and is still suspended."""

    @property
    def width(self) -> int:
        return sum(role.width for role in self.roles)


def read_shape(jobset: JobSet, before: GangShape | None = None) -> GangShape:
    """`before`: the previous shape of the same JobSet."""
    generation, roles, priority = _read_spec(jobset, before, _read_roles, _read_priority)
    resumed = jobset.find_condition("Suspended")
    since = jobset.created_at
    if resumed is not None and resumed.get("status") == "False":
        since = max(since, str(resumed.get("lastTransitionTime", "")))
    place = jobset.annotations.get(KEEPS_PLACE, "")
    succeeded = {entry["name"]: entry.get("succeeded", 0) for entry in jobset.replicated_statuses}
    return GangShape(
        uid=jobset.uid,
        namespace=jobset.namespace,
        name=jobset.name,
        generation=generation,
        attempt=jobset.restarts,
        is_open=not jobset.is_finished and not jobset.is_suspended and not jobset.is_deleting,
        is_blocked=_is_blocked(jobset),
        since=place or since,
        priority=priority,
        roles=roles,
        complete=frozenset(role.name for role in roles if role.replicas and succeeded.get(role.name) == role.replicas),
        keeps_place=bool(place),
        is_returning=bool(place) and jobset.is_suspended and not jobset.is_finished and not jobset.is_deleting,
    )


def read_v1_shape(job: V1Job, before: GangShape | None = None) -> GangShape:
    """The same for a v1 job: its replica types are the roles. All of them start together, or as many Pods as the job
    needs, first those that decide about it."""
    generation, roles, priority = _read_spec(job, before, _read_v1_roles, _read_v1_priority)
    started = read_text(job.status, "startTime")
    place = job.annotations.get(KEEPS_PLACE, "")
    return GangShape(
        uid=job.uid,
        namespace=job.namespace,
        name=job.name,
        generation=generation,
        attempt=0,
        is_open=not job.is_finished and not job.is_suspended and not job.is_deleting,
        is_blocked=bool(job.waiting) and job.waiting_reason not in PASSING,
        since=place or max(job.created_at, started),
        priority=priority,
        roles=roles,
        complete=frozenset(),
        least=job.min_available,
        keeps_place=bool(place),
        is_returning=bool(place) and job.is_suspended and not job.is_finished and not job.is_deleting,
    )


def _read_spec(
    job: ModelT,
    before: GangShape | None,
    read_roles: Callable[[ModelT], Iterable[GangRole]],
    read_priority: Callable[[ModelT], int],
) -> tuple[int, tuple[GangRole, ...], int]:
    """(generation, roles, priority); those of `before` if the spec has not changed since."""
    generation = int(job.meta.get("generation", 0))
    if before is not None and (before.uid, before.generation) == (job.uid, generation) and generation > 0:
        return generation, before.roles, before.priority
    return generation, tuple(read_roles(job)), read_priority(job)


def _read_v1_priority(job: V1Job) -> int:
    return max((int(one.pod_spec.get("priority") or 0) for one in job.replicas.values()), default=0)


def _read_v1_roles(job: V1Job) -> Iterator[GangRole]:
    missing = job.min_available or sum(replica.count for replica in job.replicas.values())
    for replica in job.replicas.values():
        least = min(replica.count, missing)
        missing -= least
        yield GangRole(
            name=replica.word,
            replicas=1,
            width=replica.count,
            total=replica.count,
            amounts=count_requests(replica.pod_spec),
            starts_first=True,
            after=frozenset(),
            least=least,
        )


def _is_blocked(jobset: JobSet) -> bool:
    waiting = find_annotated(jobset.raw)
    return waiting is not None and waiting.get("reason") not in PASSING


def _get_pod_spec(replicated: Fields) -> Fields:
    return read_fields(replicated, "template", "spec", "template", "spec")


def _read_priority(jobset: JobSet) -> int:
    """Templates rarely contain the number. Pods do, and theirs is used once they exist."""
    return max((int(_get_pod_spec(entry).get("priority") or 0) for entry in jobset.replicated_jobs), default=0)


def _read_roles(jobset: JobSet) -> Iterator[GangRole]:
    in_order = read_text(jobset.spec, "startupPolicy", "startupPolicyOrder") == "InOrder"
    after = _list_orders(jobset.replicated_jobs)
    for number, entry in enumerate(jobset.replicated_jobs):
        job = read_fields(entry, "template", "spec")
        parallelism = int(job.get("parallelism", 1))
        completions = int(job.get("completions", parallelism))
        replicas = int(entry.get("replicas", 1))
        width = replicas * min(parallelism, completions)
        yield GangRole(
            name=entry["name"],
            replicas=replicas,
            width=width,
            total=replicas * completions,
            amounts=count_requests(_get_pod_spec(entry)),
            starts_first=not entry.get("dependsOn") and (number == 0 or not in_order),
            after=after[entry["name"]],
            least=width,
        )


def _list_orders(entries: Sequence[Fields]) -> dict[str, frozenset[str]]:
    """For each role, the roles that are complete before it starts. A role starts after its dependencies have started,
    so everything complete before them is complete before it too. A role can depend only on earlier ones."""
    after: dict[str, frozenset[str]] = {}
    for entry in entries:
        over: set[str] = set()
        for dependency in list_items(entry, "dependsOn"):
            over |= after.get(dependency["name"], frozenset())
            if dependency.get("status") == "Complete":
                over.add(dependency["name"])
        after[entry["name"]] = frozenset(over)
    return after


def get_peak(needs: Sequence[tuple[GangRole, Amounts]]) -> Amounts:
    """The maximum of what these roles use together at any time."""
    if len(needs) == 1:
        return dict(needs[0][1])
    peak: Amounts = {}
    groups = [list(needs)] if len(needs) > _MANY else _list_groups(list(needs), [])
    for group in groups:
        total: Amounts = {}
        for _, amounts in group:
            add_into(total, amounts)
        peak = compute_maxima(peak, total)
    return peak


def _list_groups(
    rest: list[tuple[GangRole, Amounts]], chosen: list[tuple[GangRole, Amounts]]
) -> Iterator[list[tuple[GangRole, Amounts]]]:
    """All sets of roles that can run at the same time."""
    if not rest:
        yield chosen
        return
    first, others = rest[0], rest[1:]
    beside = [item for item in others if _can_meet(first[0], item[0])]
    yield from _list_groups(beside, [*chosen, first])
    if len(beside) != len(others):
        yield from _list_groups(others, chosen)


def _can_meet(one: GangRole, other: GangRole) -> bool:
    return one.name not in other.after and other.name not in one.after
