"""Who has what of the node, and who waits: a summary of all Pods and JobSets that the view keeps current.

Built from objects alone, so that after a crash it is the same again. A change of a Pod costs the same
however many there are. Pods of one JobSet are one gang; any other Pod is a gang of its own.

A gang is admitted once a Pod of its attempt has a node. From then on it holds the peak of what it may still need, not
only what its Pods take now: a later stage, or the rest of a plan that a crash has cut, finds its place kept. It gives
back what it will not need again, and everything when the JobSet ends, is suspended or goes, or when nothing of it runs
and it cannot go on until somebody helps. What such a gang gave back it may want again when others have it: so what is
held can be more than there is, but what gangs hold of which something runs (`firm`) never is.
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
from trainmaster.api.reading import read_status
from trainmaster.api.resources import JOB_SETS, PODS
from trainmaster.api.workloads import build_gang, read_gang
from trainmaster.controllers.scheduler.shapes import GangShape, get_peak, read_shape
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod

K = TypeVar("K")
SCHEDULER = "default-scheduler"
ALONE = (0, "")
"""The part of a Pod that is a gang of its own."""
Place = tuple[str, str]
"""(namespace, name) of a Pod."""
Order = tuple[int, int, str, int]
"""(priority, higher first; restarts first; since when; who came first)"""


class PodStage(Enum):
    WAITING = "waiting"
    BOUND = "bound"
    DONE = "done"
    """It had a node and ended well: its share is not needed again."""
    FAILED = "failed"
    """It had a node and failed: another Pod may take its place."""


@dataclass(slots=True)
class LedgerEntry:
    """One Pod that counts: it waits or runs here, or has done so for a JobSet."""

    place: Place
    uid: str
    gang: str
    part: tuple[int, str]
    """(attempt, role); of a single Pod (0, "")."""
    amounts: Amounts
    stage: PodStage
    devices: tuple[str, ...]
    priority: int
    created: str
    said: str
    """The message of its PodScheduled condition while that is False."""
    is_marked: bool
    """It carries the sentence for the TrainJob."""
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
    """What its waiting Pods say; "" of those that say nothing yet."""

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
    """namespace/name of the JobSet, or of the Pod."""
    number: int
    shape: GangShape | None = None
    names_jobset: bool = False
    parts: dict[tuple[int, str], GangPart] = field(default_factory=dict)
    waits: Amounts = field(default_factory=dict)
    """What its waiting Pods of the current attempt take together."""
    uses: Amounts = field(default_factory=dict)
    """What its bound Pods take, of whichever attempt."""
    holds: Amounts = field(default_factory=dict)
    firm: Amounts = field(default_factory=dict)
    """What it holds while something of it runs."""
    order: Order | None = None
    """Its place in the queue; None: it does not wait."""
    priority: int = 0
    created: str = ""
    marked: set[Place] = field(default_factory=set)

    @property
    def attempt(self) -> int:
        return 0 if self.shape is None else self.shape.attempt

    @property
    def is_alone(self) -> bool:
        return not self.names_jobset

    def list_parts(self) -> Iterator[tuple[str, GangPart]]:
        """Those of the current attempt, by role."""
        attempt = self.attempt
        return ((role, part) for (number, role), part in self.parts.items() if number == attempt)

    def list_waiting(self) -> list[LedgerEntry]:
        return [entry for _, part in self.list_parts() for entry in part.waiting.values()]

    def find_leader(self) -> Place | None:
        """The waiting Pod that speaks for all; the same one as long as it waits, because the Job above shows the first
        that it finds."""
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
        return self.shape is not None and self.shape.attempt > 0

    @property
    def is_blocked(self) -> bool:
        return self.shape is not None and self.shape.is_blocked

    def is_whole(self) -> bool:
        """All Pods with which it begins are there."""
        if self.shape is None:
            return True
        return all(
            (part := self.parts.get((self.attempt, role.name))) is not None and part.count >= role.width
            for role in self.shape.roles
            if role.starts_first and role.width and role.name not in self.shape.complete
        )

    def get_need(self) -> Amounts:
        """What it holds once the Pods that wait are bound: they, and the peak of what may still come."""
        return compute_maxima(add(self.uses, self.waits), self._get_peak())

    def _get_peak(self) -> Amounts:
        if self.shape is None or not self.shape.is_open:
            return {}
        needs = []
        for role in self.shape.roles:
            part = self.parts.get((self.attempt, role.name))
            done = part.done if part is not None else 0
            left = 0 if role.name in self.shape.complete else role.count_left(done)
            needs.append((role, {name: amount * left for name, amount in role.amounts.items()}))
        return get_peak(needs) if needs else {}

    def get_hold(self) -> Amounts:
        if self.shape is None or not self.shape.is_open or not self.is_admitted:
            return dict(self.uses)
        if self.is_blocked and not self.uses:
            return {}
        return compute_maxima(self.uses, self._get_peak())


class SchedulingLedger:
    gvrs: ClassVar[tuple[GVR, ...]] = (JOB_SETS, PODS)

    def __init__(self) -> None:
        self._entries: dict[Place, LedgerEntry] = {}
        self._uids: dict[Place, str] = {}
        """Of JobSets."""
        self._numbers = 0
        self._unsettled: dict[str, Gang] = {}
        self.gangs: dict[str, Gang] = {}
        self.held: Amounts = {}
        """By all gangs together."""
        self.firm: Amounts = {}
        """By gangs of which something runs."""
        self.used: Amounts = {}
        """By their Pods that have a node."""
        self.leases: dict[str, str] = {}
        """Device id to the label of the gang that has it."""
        self._queue: list[tuple[Order, str]] = []
        self.kinds: Counter[frozenset[str]] = Counter()
        """Which resources gangs in the queue wait for, and how many of each sort there are."""
        self._kind_of: dict[str, frozenset[str]] = {}
        self.silent: dict[str, None] = {}
        """Gangs in the queue with Pods that say nothing about why."""

    # What is asked

    @property
    def is_anybody_waiting(self) -> bool:
        return bool(self._queue)

    def list_queue(self) -> Iterator[Gang]:
        return (self.gangs[gang] for _, gang in self._queue)

    def list_holders(self) -> Iterator[Gang]:
        return (gang for gang in self.gangs.values() if gang.uses)

    def find_entry(self, place: Place) -> LedgerEntry | None:
        return self._entries.get(place)

    # What changes

    def put(self, gvr: GVR, obj: Object) -> None:
        if gvr == PODS:
            self._put_pod(obj)
        else:
            self._put_jobset(obj)

    def drop(self, gvr: GVR, namespace: str, name: str) -> None:
        if gvr == PODS:
            entry = self._entries.pop((namespace, name), None)
            if entry is not None:
                gang = self._take_out(entry)
                self._touch(gang)
            return
        uid = self._uids.pop((namespace, name), None)
        found = self.gangs.get(build_gang(namespace, uid or ""))
        if found is not None:
            found.shape = None
            self._recount(found)
            self._touch(found)

    def _put_jobset(self, obj: Object) -> None:
        meta = obj["metadata"]
        place = (meta.get("namespace", ""), meta["name"])
        known = self._uids.get(place)
        if known is not None and known != meta["uid"]:
            self.drop(JOB_SETS, *place)
        self._uids[place] = meta["uid"]
        gang = self._get_gang(build_gang(place[0], meta["uid"]), f"{place[0]}/{place[1]}")
        gang.names_jobset = True
        attempt = gang.attempt
        gang.shape = read_shape(JobSet(obj), gang.shape)
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
            gang.names_jobset = True
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
        """The attempt has changed: other Pods are the current ones."""
        gang.waits = {}
        for entry in gang.list_waiting():
            add_into(gang.waits, entry.amounts)

    def _touch(self, gang: Gang) -> None:
        """What follows from its Pods and its JobSet is worked out when it is asked for: changes come in crowds."""
        self._unsettled[gang.id] = gang

    def settle(self) -> None:
        """Brings everything up to date with what was put and dropped. To be called before anything is asked."""
        while self._unsettled:
            self._settle(self._unsettled.popitem()[1])

    def _settle(self, gang: Gang) -> None:
        """After changes of a gang: what it holds, and whether and where it stands in the queue."""
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
        # One that restarts has its place before its Pods are there again; one that begins gets it with them.
        is_restarting = shape.attempt > 0 and not gang.is_admitted and not shape.is_blocked
        if not shape.is_open or not (is_waiting or is_restarting):
            return None
        is_first = gang.is_admitted or shape.attempt > 0
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
    """Most changes: a Pod that had its node before reports something, and has not ended."""
    meta = pod["metadata"]
    return (
        known.stage is PodStage.BOUND
        and known.uid == meta["uid"]
        # A write of the status leaves both as they are in memory.
        and known.labels is meta.get("labels")
        and known.annotations is meta.get("annotations")
        and read_status(pod).get("phase") not in OVER
    )


def _read_entry(raw: Object, known: LedgerEntry | None) -> LedgerEntry | None:
    """None: it takes nothing and waits for nothing here. `known`: what was read of it before."""
    pod = Pod(raw)
    meta, spec = pod.meta, pod.spec
    jobset = read_gang(raw)
    stage = _find_stage(pod, is_ganged=bool(jobset))
    if stage is None:
        return None
    is_same = known is not None and known.uid == meta["uid"]
    is_waiting = stage is PodStage.WAITING
    condition = pod.find_condition("PodScheduled") if is_waiting else None
    return LedgerEntry(
        place=(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        gang=jobset or meta["uid"],
        part=(pod.attempt, pod.step) if jobset else ALONE,
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


def _find_stage(pod: Pod, *, is_ganged: bool) -> PodStage | None:
    phase = pod.status.get("phase")
    if pod.node:
        if phase == "Succeeded":
            return PodStage.DONE if is_ganged else None
        if phase == "Failed":
            return PodStage.FAILED if is_ganged else None
        return PodStage.BOUND
    if phase in OVER or pod.is_deleting:
        return None
    return PodStage.WAITING if pod.spec.get("schedulerName", SCHEDULER) == SCHEDULER else None
