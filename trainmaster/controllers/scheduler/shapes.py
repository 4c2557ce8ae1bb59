"""What a JobSet will need: its ReplicatedJobs as roles, and the most that they take at one time. Pure.

A ReplicatedJob that depends on the completion of another runs after it, so the two share what they need; everything
else may run side by side. The peak is taken over all sets of roles that can run at once, resource by resource. Read
by the ledger for each JobSet; Pods that exist already are counted as they are, not as their template says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainmaster.api.meta import Fields
from trainmaster.api.pods.requests import Amounts, add_into, compute_maxima, count_requests
from trainmaster.api.reading import list_items, read_fields, read_text
from trainmaster.controllers.waiting import PASSING, find_annotated
from trainmaster.jobs.models.jobsets import JobSet

_MANY = 10
"""With more roles than this every one is taken to run beside every other: sets of them would be too many."""


@dataclass(frozen=True, slots=True)
class GangRole:
    """One ReplicatedJob."""

    name: str
    replicas: int
    width: int
    """Pods at one time."""
    total: int
    """Pods until it is complete."""
    amounts: Amounts
    """What one Pod takes, by the template."""
    starts_first: bool
    """It waits for no other."""
    after: frozenset[str]
    """Roles that have ended for good before it begins."""

    def count_left(self, succeeded: int) -> int:
        """Pods that it may still have at one time."""
        return max(0, min(self.width, self.total - succeeded))


@dataclass(frozen=True, slots=True)
class GangShape:
    """What the scheduler knows of one JobSet."""

    uid: str
    namespace: str
    name: str
    generation: int
    attempt: int
    is_open: bool
    """It may have Pods: not ended, not suspended, not going."""
    is_blocked: bool
    """It says that somebody has to change something before it can go on."""
    since: str
    """Since when it wants to run: its creation, or when it was resumed."""
    priority: int
    roles: tuple[GangRole, ...]
    complete: frozenset[str]
    """Roles of which every Job of this attempt has ended well, also when somebody has removed their Pods since."""


def read_shape(jobset: JobSet, before: GangShape | None = None) -> GangShape:
    """`before`: what was read of the same JobSet earlier; its roles are kept while the spec is the same."""
    generation = int(jobset.meta.get("generation", 0))
    is_same = before is not None and (before.uid, before.generation) == (jobset.uid, generation) and generation > 0
    roles = before.roles if is_same and before is not None else tuple(_read_roles(jobset))
    resumed = jobset.find_condition("Suspended")
    since = jobset.created_at
    if resumed is not None and resumed.get("status") == "False":
        since = max(since, str(resumed.get("lastTransitionTime", "")))
    succeeded = {entry["name"]: entry.get("succeeded", 0) for entry in jobset.replicated_statuses}
    return GangShape(
        uid=jobset.uid,
        namespace=jobset.namespace,
        name=jobset.name,
        generation=generation,
        attempt=jobset.restarts,
        is_open=not jobset.is_finished and not jobset.is_suspended and not jobset.is_deleting,
        is_blocked=_is_blocked(jobset),
        since=since,
        priority=_read_priority(jobset),
        roles=roles,
        complete=frozenset(role.name for role in roles if role.replicas and succeeded.get(role.name) == role.replicas),
    )


def _is_blocked(jobset: JobSet) -> bool:
    waiting = find_annotated(jobset.raw)
    return waiting is not None and waiting.get("reason") not in PASSING


def _get_pod_spec(replicated: Fields) -> Fields:
    return read_fields(replicated, "template", "spec", "template", "spec")


def _read_priority(jobset: JobSet) -> int:
    """A template rarely has the number; Pods, which do, decide once they are there."""
    return max((int(_get_pod_spec(entry).get("priority") or 0) for entry in jobset.replicated_jobs), default=0)


def _read_roles(jobset: JobSet) -> Iterator[GangRole]:
    in_order = read_text(jobset.spec, "startupPolicy", "startupPolicyOrder") == "InOrder"
    after = _list_orders(jobset.replicated_jobs)
    for number, entry in enumerate(jobset.replicated_jobs):
        job = read_fields(entry, "template", "spec")
        parallelism = int(job.get("parallelism", 1))
        completions = int(job.get("completions", parallelism))
        replicas = int(entry.get("replicas", 1))
        yield GangRole(
            name=entry["name"],
            replicas=replicas,
            width=replicas * min(parallelism, completions),
            total=replicas * completions,
            amounts=count_requests(_get_pod_spec(entry)),
            starts_first=not entry.get("dependsOn") and (number == 0 or not in_order),
            after=after[entry["name"]],
        )


def _list_orders(entries: Sequence[Fields]) -> dict[str, frozenset[str]]:
    """For each role those that are complete before it begins. It begins after what it depends on has begun, so what
    was over by then is over for it too. A role may only depend on earlier ones."""
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
    """The most that these roles, each taking so much while it runs, take together at any time."""
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
    """All sets of roles that can run at once."""
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
