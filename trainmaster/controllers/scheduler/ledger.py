"""Tracks which gangs hold the node's resources and which are waiting: a summary of all Pods and their jobs in the view.

Built only from objects, so it is the same after a crash. The cost of a change of a Pod does not depend on the number of
Pods. The Pods of a JobSet or of a v1 job form a gang; any other Pod is a gang of its own.

A gang is admitted once a Pod of its current attempt is bound. From then on it holds the peak of what it may still need,
not only what its Pods use now, so that resources are available for a later stage and for Pods that a crash left
unbound. It releases what it will not need again, and everything when the JobSet finishes, is suspended or is deleted,
or when none of its Pods is running and it is blocked until somebody changes something. Such a gang may need its
resources again when others have them, so the total that is held can exceed what the node has. The total of gangs with
running Pods (`firm`) never does.

A gang that a drain has suspended keeps its place in the queue, so that nothing starts before it when the drain ends.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, TypeVar

from trainmaster.api import labels
from trainmaster.api.devices import list_leased
from trainmaster.api.meta import GVR, Object
from trainmaster.api.pods.phases import OVER
from trainmaster.api.pods.requests import Amounts, add, add_into, compute_maxima, count_requests
from trainmaster.api.reading import NOTHING, read_status
from trainmaster.api.resources import JOB_SETS, PODS
from trainmaster.api.v1jobs.frameworks import REPLICA_TYPE
from trainmaster.api.workloads import build_gang, read_gang, read_v1_gang
from trainmaster.controllers.scheduler.shapes import GangShape, get_peak, read_shape, read_v1_shape
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.v1jobs import MODELS

K = TypeVar("K")
V1_MODELS = {model.gvr: model for model in MODELS}
SCHEDULER = "default-scheduler"
SCHEDULERS = frozenset({SCHEDULER, "volcano", "scheduler-plugins-scheduler"})
"""Whose Pods are placed here. The others are gang schedulers that v1 jobs name, and so is this one."""
ALONE = (0, "")
"""The part of a Pod that is a gang of its own."""
Place = tuple[str, str]
"""(namespace, name) of a Pod."""
Order = tuple[int, int, str, int]
"""(negated priority, 0 if admitted, restarting or back from a drain, waiting since, creation order)"""


class PodStage(Enum):
    WAITING = "waiting"
    BOUND = "bound"
    DONE = "done"
    """The Pod was bound and succeeded: its resources are not needed again."""
    FAILED = "failed"
    """The Pod was bound and failed: another Pod may replace it."""


@dataclass(slots=True)
class LedgerEntry:
    """A Pod that is waiting or running on this node, or a finished Pod of a JobSet."""

    place: Place
    uid: str
    gang: str
    part: tuple[int, str]
    """(attempt, role); (0, "") for a Pod that is a gang of its own."""
    amounts: Amounts
    stage: PodStage
    devices: tuple[str, ...]
    priority: int
    created: str
    said: str
    """The message of the PodScheduled condition if that is False."""
    is_marked: bool
    """Whether it has the waiting annotation for the TrainJob."""
    is_gated: bool
    labels: Mapping[str, str] | None = field(compare=False)
    annotations: Mapping[str, str] | None = field(compare=False)


@dataclass(slots=True)
class GangPart:
    """The Pods of one role and attempt of a gang."""

    waiting: dict[Place, LedgerEntry] = field(default_factory=dict)
    bound: int = 0
    done: int = 0
    failed: int = 0
    gated: int = 0
    said: Counter[str] = field(default_factory=Counter)
    """The messages of its waiting Pods; "" for Pods without one."""

    @property
    def count(self) -> int:
        return len(self.waiting) + self.bound + self.done

    @property
    def is_admitted(self) -> bool:
        return bool(self.bound or self.done or self.failed)


@dataclass(slots=True)
class Gang:
    id: str
    label: str
    """namespace/name of the job, or of the Pod."""
    number: int
    shape: GangShape | None = None
    names_job: bool = False
    parts: dict[tuple[int, str], GangPart] = field(default_factory=dict)
    waits: Amounts = field(default_factory=dict)
    """The sum of its waiting Pods in the current attempt."""
    uses: Amounts = field(default_factory=dict)
    """The sum of its bound Pods, of any attempt."""
    holds: Amounts = field(default_factory=dict)
    firm: Amounts = field(default_factory=dict)
    """What it holds, if any of its Pods is running; otherwise empty."""
    order: Order | None = None
    """Its place in the queue; None if it is not waiting."""
    priority: int = 0
    created: str = ""
    marked: set[Place] = field(default_factory=set)

    @property
    def attempt(self) -> int:
        return 0 if self.shape is None else self.shape.attempt

    @property
    def is_alone(self) -> bool:
        return not self.names_job

    def list_parts(self) -> Iterator[tuple[str, GangPart]]:
        """The parts of the current attempt, by role."""
        attempt = self.attempt
        return ((role, part) for (number, role), part in self.parts.items() if number == attempt)

    def list_waiting(self) -> list[LedgerEntry]:
        return [entry for _, part in self.list_parts() for entry in part.waiting.values()]

    def find_leader(self) -> Place | None:
        """The waiting Pod that has the annotation for the whole gang. It stays the same as long as it is waiting,
        because the Job copies the first annotation that it finds."""
        own = [place for place in self.marked if any(place in part.waiting for _, part in self.list_parts())]
        if own:
            return min(own)
        return next((next(iter(part.waiting)) for _, part in self.list_parts() if part.waiting), None)

    @property
    def is_admitted(self) -> bool:
        if self.shape is not None and self.shape.complete:
            return True
        return any(part.is_admitted for _, part in self.list_parts())

    @property
    def is_restarting(self) -> bool:
        """Whether it has run before, and gets its place before its Pods exist."""
        return self.shape is not None and (self.shape.attempt > 0 or self.shape.keeps_place)

    @property
    def is_blocked(self) -> bool:
        return self.shape is not None and self.shape.is_blocked

    def is_whole(self) -> bool:
        """Whether all Pods of the roles that start first exist."""
        if self.shape is None:
            return True
        return all(
            (part := self.parts.get((self.attempt, role.name))) is not None and part.count >= role.width
            for role in self.shape.roles
            if role.starts_first and role.width and role.name not in self.shape.complete
        )

    def get_need(self, waits: Amounts, starting: Mapping[str, int] = NOTHING) -> Amounts:
        """What it will hold once Pods with these requests are bound: all requests, or the peak of what it may still
        need. `starting`: how many of them are not among those that start together, by role."""
        return compute_maxima(add(self.uses, waits), self._get_peak(starting))

    def _get_peak(self, starting: Mapping[str, int] = NOTHING) -> Amounts:
        if self.shape is None or not (self.shape.is_open or self.shape.is_returning):
            return {}
        needs = []
        for role in self.shape.roles:
            part = self.parts.get((self.attempt, role.name))
            done = part.done if part is not None else 0
            left = 0 if role.name in self.shape.complete else role.count_left(done)
            if role.is_partial:
                left = max(left, (part.bound if part is not None else 0) + starting.get(role.name, 0))
            needs.append((role, {name: amount * left for name, amount in role.amounts.items()}))
        return get_peak(needs) if needs else {}

    def get_hold(self) -> Amounts:
        if self.shape is None or not (self.shape.is_open or self.shape.is_returning) or not self.is_admitted:
            return dict(self.uses)
        if self.is_blocked and not self.uses:
            return {}
        return compute_maxima(self.uses, self._get_peak())


class SchedulingLedger:
    gvrs: ClassVar[tuple[GVR, ...]] = (JOB_SETS, *V1_MODELS, PODS)
    counts_at_rest: ClassVar[bool] = False

    def __init__(self) -> None:
        self._entries: dict[Place, LedgerEntry] = {}
        self._uids: dict[tuple[GVR, Place], str] = {}
        """Uids of JobSets and v1 jobs."""
        self._numbers = 0
        self._unsettled: dict[str, Gang] = {}
        self.gangs: dict[str, Gang] = {}
        self.held: Amounts = {}
        """The total held by all gangs."""
        self.firm: Amounts = {}
        """The total held by gangs with running Pods."""
        self.used: Amounts = {}
        """The total used by bound Pods."""
        self.leases: dict[str, str] = {}
        """Device id to the label of the gang that has leased it."""
        self._queue: list[tuple[Order, str]] = []
        self.kinds: Counter[frozenset[str]] = Counter()
        """How many queued gangs wait for each combination of resources."""
        self._kind_of: dict[str, frozenset[str]] = {}
        self.silent: dict[str, None] = {}
        """Queued gangs with Pods that have no message yet."""

    # Reading

    @property
    def is_anybody_waiting(self) -> bool:
        return bool(self._queue)

    def list_queue(self) -> Iterator[Gang]:
        return (self.gangs[gang] for _, gang in self._queue)

    def list_holders(self) -> Iterator[Gang]:
        return (gang for gang in self.gangs.values() if gang.uses)

    def find_entry(self, place: Place) -> LedgerEntry | None:
        return self._entries.get(place)

    # Updating

    def put(self, gvr: GVR, obj: Object) -> None:
        if gvr == PODS:
            self._put_pod(obj)
        else:
            self._put_job(gvr, obj)

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        if gvr == PODS:
            entry = self._entries.pop((namespace, name), None)
            if entry is not None:
                gang = self._take_out(entry)
                self._touch(gang)
            return
        uid = self._uids.pop((gvr, (namespace, name)), None)
        found = self.gangs.get(build_gang(namespace, uid or ""))
        if found is not None:
            found.shape = None
            self._recount(found)
            self._touch(found)

    def _put_job(self, gvr: GVR, obj: Object) -> None:
        meta = obj["metadata"]
        place = (meta.get("namespace", ""), meta["name"])
        known = self._uids.get((gvr, place))
        if known is not None and known != meta["uid"]:
            self.drop(gvr, *place)
        self._uids[gvr, place] = meta["uid"]
        gang = self._get_gang(build_gang(place[0], meta["uid"]), f"{place[0]}/{place[1]}")
        gang.names_job = True
        attempt = gang.attempt
        model = V1_MODELS.get(gvr)
        before = gang.shape
        gang.shape = read_shape(JobSet(obj), before) if model is None else read_v1_shape(model(obj), before)
        if gang.shape == before:
            return
        if gang.attempt != attempt:
            self._recount(gang)
        self._touch(gang)

    def _put_pod(self, pod: Object) -> None:
        place = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        known = self._entries.get(place)
        if known is not None and _runs_on(pod, known):
            return
        entry = _read_entry(pod, known)
        if entry == known:
            return
        self._entries.pop(place, None)
        gang = self._take_out(known) if known is not None else None
        if gang is not None and (entry is None or entry.gang != gang.id):
            self._touch(gang)
        if entry is None:
            return
        self._entries[place] = entry
        self._touch(self._take_in(entry))

    def _get_gang(self, id: str, label: str) -> Gang:
        gang = self.gangs.get(id)
        if gang is None:
            self._numbers += 1
            gang = self.gangs[id] = Gang(id, label, self._numbers)
        return gang

    def _take_in(self, entry: LedgerEntry) -> Gang:
        gang = self._get_gang(entry.gang, f"{entry.place[0]}/{entry.place[1]}")
        if entry.gang != entry.uid:
            gang.names_job = True
        part = gang.parts.setdefault(entry.part, GangPart())
        if entry.stage is PodStage.DONE:
            part.done += 1
        elif entry.stage is PodStage.FAILED:
            part.failed += 1
        elif entry.stage is PodStage.BOUND:
            part.bound += 1
            add_into(gang.uses, entry.amounts)
            add_into(self.used, entry.amounts)
            for device in entry.devices:
                self.leases[device] = gang.label
        else:
            part.waiting[entry.place] = entry
            part.gated += entry.is_gated
            part.said[entry.said] += 1
            if entry.part[0] == gang.attempt or gang.is_alone:
                add_into(gang.waits, entry.amounts)
            gang.priority = max(gang.priority, entry.priority)
            gang.created = entry.created
        if entry.is_marked:
            gang.marked.add(entry.place)
        return gang

    def _take_out(self, entry: LedgerEntry) -> Gang:
        gang = self.gangs[entry.gang]
        part = gang.parts[entry.part]
        if entry.stage is PodStage.DONE:
            part.done -= 1
        elif entry.stage is PodStage.FAILED:
            part.failed -= 1
        elif entry.stage is PodStage.BOUND:
            part.bound -= 1
            _subtract(gang.uses, entry.amounts)
            _subtract(self.used, entry.amounts)
            for device in entry.devices:
                self.leases.pop(device, None)
        else:
            del part.waiting[entry.place]
            part.gated -= entry.is_gated
            _count_down(part.said, entry.said)
            if entry.part[0] == gang.attempt or gang.is_alone:
                _subtract(gang.waits, entry.amounts)
        gang.marked.discard(entry.place)
        if not part.count and not part.failed:
            del gang.parts[entry.part]
        return gang

    def _recount(self, gang: Gang) -> None:
        """Recomputes the requests of waiting Pods after the attempt has changed."""
        gang.waits = {}
        for entry in gang.list_waiting():
            add_into(gang.waits, entry.amounts)

    def _touch(self, gang: Gang) -> None:
        """Marks the gang as changed. Derived values are computed later, in `settle`, because changes come in bursts."""
        self._unsettled[gang.id] = gang

    def settle(self) -> None:
        """Updates derived values after changes. Call it before reading."""
        while self._unsettled:
            self._settle(self._unsettled.popitem()[1])

    def _settle(self, gang: Gang) -> None:
        """Updates what the gang holds and its place in the queue."""
        holds = gang.get_hold()
        if holds != gang.holds:
            _subtract(self.held, gang.holds)
            add_into(self.held, holds)
            gang.holds = holds
        firm = holds if gang.uses else {}
        if firm != gang.firm:
            _subtract(self.firm, gang.firm)
            add_into(self.firm, firm)
            gang.firm = firm
        order = self._decide_order(gang)
        if order != gang.order:
            if gang.order is not None:
                del self._queue[bisect_left(self._queue, (gang.order, gang.id))]
            if order is not None:
                insort(self._queue, (order, gang.id))
            gang.order = order
        self._sort_by_kind(gang)
        if not gang.parts and gang.shape is None:
            del self.gangs[gang.id]

    def _decide_order(self, gang: Gang) -> Order | None:
        is_waiting = any(part.waiting for _, part in gang.list_parts())
        shape = gang.shape
        if shape is None:
            return (-gang.priority, 1, gang.created, gang.number) if is_waiting else None
        # A restarting gang gets its place before its Pods exist; a new gang gets it with its Pods.
        is_restarting = gang.is_restarting and not gang.is_admitted and not shape.is_blocked
        is_open = shape.is_open or shape.is_returning
        if not is_open or not (is_waiting or is_restarting):
            return None
        is_first = gang.is_admitted or gang.is_restarting
        return (-max(gang.priority, shape.priority), 0 if is_first else 1, shape.since, gang.number)

    def _sort_by_kind(self, gang: Gang) -> None:
        self.silent.pop(gang.id, None)
        old = self._kind_of.pop(gang.id, None)
        if old is not None:
            _count_down(self.kinds, old)
        if gang.order is None:
            return
        kind = frozenset(gang.waits)
        self._kind_of[gang.id] = kind
        self.kinds[kind] += 1
        if any(part.said.get("") for _, part in gang.list_parts()):
            self.silent[gang.id] = None


def _count_down(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _subtract(target: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        left = target.get(name, 0) - amount
        if left:
            target[name] = left
        else:
            target.pop(name, None)


def _runs_on(pod: Object, known: LedgerEntry) -> bool:
    """Fast path for most changes: a bound Pod updates its status and has not finished."""
    meta = pod["metadata"]
    return (
        known.stage is PodStage.BOUND
        and known.uid == meta["uid"]
        # A status update keeps the same objects in memory.
        and known.labels is meta.get("labels")
        and known.annotations is meta.get("annotations")
        and read_status(pod).get("phase") not in OVER
    )


def _read_entry(raw: Object, known: LedgerEntry | None) -> LedgerEntry | None:
    """None if the Pod uses nothing and is not waiting here. `known`: the previous entry of the Pod."""
    pod = Pod(raw)
    meta, spec = pod.meta, pod.spec
    gang, part = _read_membership(pod)
    stage = _find_stage(pod, is_ganged=bool(gang))
    if stage is None:
        return None
    is_same = known is not None and known.uid == meta["uid"]
    is_waiting = stage is PodStage.WAITING
    condition = pod.find_condition("PodScheduled") if is_waiting else None
    return LedgerEntry(
        place=(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        gang=gang or meta["uid"],
        part=part,
        amounts=known.amounts if is_same and known is not None else count_requests(spec),
        stage=stage,
        devices=tuple(list_leased(raw)) if stage is PodStage.BOUND else (),
        priority=int(spec.get("priority") or 0),
        created=pod.created_at,
        said=str(condition.get("message") or "-") if condition is not None else "",
        is_marked=is_waiting and labels.WAITING in pod.annotations,
        is_gated=is_waiting and bool(spec.get("schedulingGates")),
        labels=meta.get("labels"),
        annotations=meta.get("annotations"),
    )


def _read_membership(pod: Pod) -> tuple[str, tuple[int, str]]:
    """The gang of a Pod and its part in it; ("", ALONE) for a Pod that is a gang of its own."""
    gang = read_gang(pod.raw)
    if gang:
        return gang, (pod.attempt, pod.step)
    gang = read_v1_gang(pod.raw)
    # A v1 job replaces single Pods and is never restarted as a whole.
    return (gang, (0, pod.labels.get(REPLICA_TYPE, ""))) if gang else ("", ALONE)


def _find_stage(pod: Pod, *, is_ganged: bool) -> PodStage | None:
    """Pods that mirror the control plane have no processes, so they do not count towards the number of Pods."""
    if pod.is_mirror:
        return None
    phase = pod.status.get("phase")
    if pod.node:
        if phase == "Succeeded":
            return PodStage.DONE if is_ganged else None
        if phase == "Failed":
            return PodStage.FAILED if is_ganged else None
        return PodStage.BOUND
    if phase in OVER or pod.is_deleting:
        return None
    return PodStage.WAITING if pod.spec.get("schedulerName", SCHEDULER) in SCHEDULERS else None
