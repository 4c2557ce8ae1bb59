"""What a JobSet will need: its ReplicatedJobs as roles, and the most that they take at one time. Pure.

A ReplicatedJob that depends on the completion of another runs after it, so the two share what they need; everything
else may run side by side. The peak is taken over all sets of roles that can run at once, resource by resource. Read
by the ledger for each JobSet; Pods that exist already are counted as they are, not as their template says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.api.conditions import find_condition, is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.pods.requests import Amounts, add_into, count_requests, find_most
from trainmaster.controllers.ownership import is_terminating
from trainmaster.controllers.waiting import PASSING, find_annotated

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


def read_shape(jobset: Object, before: GangShape | None = None) -> GangShape:
    """`before`: what was read of the same JobSet earlier; its roles are kept while the spec is the same."""
    meta, spec = jobset["metadata"], jobset["spec"]
    generation = int(meta.get("generation", 0))
    is_same = before is not None and (before.uid, before.generation) == (meta["uid"], generation) and generation > 0
    roles = before.roles if is_same and before is not None else tuple(_read_roles(spec))
    conditions = list_conditions(jobset)
    is_over = is_true(conditions, "Completed") or is_true(conditions, "Failed")
    resumed = find_condition(conditions, "Suspended")
    since = str(meta.get("creationTimestamp", ""))
    if resumed is not None and resumed.get("status") == "False":
        since = max(since, str(resumed.get("lastTransitionTime", "")))
    counts = (jobset.get("status") or {}).get("replicatedJobsStatus") or ()
    succeeded = {entry["name"]: entry.get("succeeded", 0) for entry in counts}
    return GangShape(
        uid=meta["uid"],
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        generation=generation,
        attempt=int((jobset.get("status") or {}).get("restarts") or 0),
        is_open=not is_over and not spec.get("suspend") and not is_terminating(jobset),
        is_blocked=_is_blocked(jobset),
        since=since,
        priority=_read_priority(spec),
        roles=roles,
        complete=frozenset(role.name for role in roles if role.replicas and succeeded.get(role.name) == role.replicas),
    )


def _is_blocked(jobset: Object) -> bool:
    waiting = find_annotated(jobset)
    return waiting is not None and waiting.get("reason") not in PASSING


def _get_pod_spec(replicated: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (((replicated.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec")
    return found if isinstance(found, dict) else {}


def _read_priority(spec: Mapping[str, Any]) -> int:
    """A template rarely has the number; Pods, which do, decide once they are there."""
    return max(
        (int(_get_pod_spec(entry).get("priority") or 0) for entry in spec.get("replicatedJobs") or ()), default=0
    )


def _read_roles(spec: Mapping[str, Any]) -> Iterator[GangRole]:
    entries: Sequence[Mapping[str, Any]] = spec.get("replicatedJobs") or ()
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    after = _find_orders(entries)
    for number, entry in enumerate(entries):
        job = (entry.get("template") or {}).get("spec") or {}
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


def _find_orders(entries: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """For each role those that are complete before it begins. It begins after what it depends on has begun, so what
    was over by then is over for it too. A role may only depend on earlier ones."""
    after: dict[str, frozenset[str]] = {}
    for entry in entries:
        over: set[str] = set()
        for dependency in entry.get("dependsOn") or ():
            over |= after.get(dependency["name"], frozenset())
            if dependency.get("status") == "Complete":
                over.add(dependency["name"])
        after[entry["name"]] = frozenset(over)
    return after


def find_peak(needs: Sequence[tuple[GangRole, Amounts]]) -> Amounts:
    """The most that these roles, each taking so much while it runs, take together at any time."""
    if len(needs) == 1:
        return dict(needs[0][1])
    peak: Amounts = {}
    groups = [list(needs)] if len(needs) > _MANY else _list_groups(list(needs), [])
    for group in groups:
        total: Amounts = {}
        for _, amounts in group:
            add_into(total, amounts)
        peak = find_most(peak, total)
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
