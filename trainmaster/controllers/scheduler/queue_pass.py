"""One pass over the queue: which gangs start now, which wait, and for what. Pure; `reconciler` turns the result into
writes.

The queue is visited from its head. A gang that fits is admitted; for a gang that does not, its requests are set aside
(`free_amounts`). Gangs that cannot start without a change (too large for the machine, or a selector that does not
match) are skipped, so they do not block others. The pass stops early once nothing is left that any remaining gang could
use.

A v1 job that needs only some of its Pods (`minAvailable`) is admitted when those fit. Its other Pods start in later
passes, as room appears; nothing is set aside for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from trainmaster.api.devices import Device
from trainmaster.api.node_policy import NO_POLICY, NodePolicy
from trainmaster.api.pods.requests import GPU, Amounts, add, add_into
from trainmaster.api.resources import JOBS, PODS
from trainmaster.client.view import View
from trainmaster.controllers.scheduler.ledger import Gang, GangPart, LedgerEntry, SchedulingLedger
from trainmaster.controllers.scheduler.node_room import NodeRoom
from trainmaster.controllers.scheduler.placement import Obstacle, list_obstacles
from trainmaster.controllers.scheduler.shapes import GangRole
from trainmaster.jobs.models.batch import Job
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.pods import Pod

GATED = "Scheduling is blocked due to non-empty scheduling gates"
REFUSED = "binding was refused: "
SHOWN = 20
"""The number of gangs at the head of the queue whose position is kept up to date. Doing so for all gangs would cost a
write for each of them whenever one starts."""
_FEW_JOBS = 64
ENOUGH = 64
"""The maximum number of Pods of a gang that are bound in one pass; once that many are, no further gang is visited. The
next pass binds the others: a gang with one bound Pod holds the resources for all of them."""


class VerdictKind(Enum):
    FITS = "fits"
    WAITS = "waits"
    """Waits for resources. Only these gangs have a position."""
    STUCK = "stuck"
    """Cannot start until somebody changes the Pod or the node."""
    GATED = "gated"
    SILENT = "silent"
    """Its Pods are still being created; the controller that creates them reports any problem."""


@dataclass(frozen=True, slots=True)
class SchedulingVerdict:
    gang: Gang
    kind: VerdictKind
    message: str = ""
    """The message for the Pods' condition."""
    obstacles: tuple[Obstacle, ...] = ()
    """What keeps its Pods off the node, if the kind is STUCK; besides what it lacks."""
    need: Mapping[str, int] = field(default_factory=dict)
    growth: Mapping[str, int] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    position: int = 0
    """From 1, for gangs that wait for resources; 0 for one that has started and lacks only Pods that it does not
    need."""
    ahead: tuple[str, ...] = ()
    """The labels of the gangs directly ahead, nearest last; limited to `SHOWN`."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """What is set aside for the gangs ahead."""
    pods: Sequence[LedgerEntry] = ()
    """The Pods to bind in this pass, if the kind is FITS; at most `ENOUGH`."""
    waits: Mapping[str, int] = field(default_factory=dict)
    """The requests of all Pods that start."""


@dataclass(slots=True)
class PassResult:
    room: NodeRoom
    admitted: list[tuple[SchedulingVerdict, list[Device]]] = field(default_factory=list)
    waiting: list[SchedulingVerdict] = field(default_factory=list)
    """All other gangs that were visited."""
    is_complete: bool = True
    """False if another pass could admit more gangs at once."""


class SchedulingPass:
    def __init__(
        self,
        view: View,
        ledger: SchedulingLedger,
        node: Node,
        room: NodeRoom,
        policy: NodePolicy = NO_POLICY,
        *,
        to_the_end: bool = False,
    ) -> None:
        """`to_the_end`: do not stop early, to get a verdict on gangs far behind in the queue."""
        self._view = view
        self._ledger = ledger
        self._node = node
        self._room = room
        self._policy = policy
        self._look = PassResult(room)
        self._to_the_end = to_the_end
        self._free_devices = room.list_free_devices()
        self._position = 0
        self._ahead: list[str] = []
        self._bound = 0

    def run(self) -> PassResult:
        look = self._look
        postponed: list[Gang] = []
        for gang in self._ledger.list_queue():
            if look.admitted and self._bound >= ENOUGH:
                look.is_complete = False
                return look
            if self._is_over():
                break
            if _was_refused(gang):
                postponed.append(gang)
            else:
                self._visit(gang)
        # A binding that was refused may be refused again, which would make the whole plan fail, so visit these gangs
        # only if no other gang was admitted.
        for gang in postponed:
            if not look.admitted:
                self._visit(gang)
        self._visit_silent()
        return look

    def _is_over(self) -> bool:
        """Whether every waiting gang lacks some resource, and all positions to show are known."""
        if self._to_the_end or self._position < SHOWN:
            return False
        return all(any(self._room.get_rest(name) <= 0 for name in kind) for kind in self._ledger.kinds)

    def _visit_silent(self) -> None:
        """Visits gangs after the stopping point whose Pods do not say yet why they wait."""
        seen = {verdict.gang.id for verdict in self._look.waiting}
        seen.update(verdict.gang.id for verdict, _ in self._look.admitted)
        for number, name in enumerate(self._ledger.silent):
            if number >= ENOUGH:
                self._look.is_complete = False
                return
            if name not in seen:
                self._look.waiting.append(self._judge(self._ledger.gangs[name]))

    def _visit(self, gang: Gang) -> None:
        verdict = self._judge(gang)
        if verdict.kind is VerdictKind.FITS:
            devices = self._take_devices(verdict.waits)
            self._room.take(verdict.growth, verdict.waits, {} if gang.uses else verdict.need)
            self._bound += len(verdict.pods)
            self._look.admitted.append((verdict, devices))
            return
        # A restarting gang keeps its place while its Pods are being created, unless it is blocked.
        is_restarting = verdict.kind is VerdictKind.SILENT and gang.is_restarting and not gang.is_blocked
        if verdict.position or is_restarting:
            self._room.keep(verdict.growth)
            self._ahead.append(gang.label)
            self._position += 1
        self._look.waiting.append(verdict)

    def _judge(self, gang: Gang) -> SchedulingVerdict:
        unready = _find_unready(gang)
        if unready is not None:
            return unready
        # Pods of a role have the same template, so one of each is checked.
        pods = [self._find_pod(next(iter(part.waiting.values()))) for part in _list_waiting_parts(gang)]
        if None in pods:
            return SchedulingVerdict(gang, VerdictKind.SILENT)
        together, later = _split_waiting(gang)
        waits = _sum_requests(together) if later else gang.waits
        need = gang.get_need(waits)
        growth = _get_growth(gang, need)
        obstacles, impossible = self._list_obstacles(pods), self._room.list_impossible(need)
        if obstacles or impossible:
            message = obstacles[0].message if obstacles else _list_insufficient(impossible)
            return SchedulingVerdict(
                gang, VerdictKind.STUCK, message, tuple(obstacles), need=need, lacking=tuple(impossible)
            )
        if not gang.is_admitted and not self._is_whole(gang):
            return SchedulingVerdict(gang, VerdictKind.SILENT, need=need, growth=growth)
        if later and not together:
            return self._judge_later(gang, later)
        lacking = self._list_lacking(gang, need, growth, waits)
        if not lacking:
            starting = (together if later else gang.list_waiting())[:ENOUGH]
            return SchedulingVerdict(gang, VerdictKind.FITS, need=need, growth=growth, pods=starting, waits=waits)
        return SchedulingVerdict(
            gang,
            VerdictKind.WAITS,
            _list_insufficient(lacking),
            need=need,
            growth=growth,
            lacking=tuple(lacking),
            position=self._position + 1,
            ahead=tuple(self._ahead[-SHOWN:]),
            kept=dict(self._room.kept),
        )

    def _judge_later(self, gang: Gang, later: Sequence[LedgerEntry]) -> SchedulingVerdict:
        """On a gang that has all Pods that it needs: which of the others fit."""
        chosen: list[LedgerEntry] = []
        waits: Amounts = {}
        starting: Counter[str] = Counter()
        lacking: dict[str, list[str]] = {}
        need = gang.get_need(waits)
        for entry in later:
            if len(chosen) == ENOUGH:
                break
            role = entry.part[1]
            if role in lacking:
                continue
            more = add(waits, entry.amounts)
            starting[role] += 1
            asked = gang.get_need(more, starting)
            short = self._list_lacking(gang, asked, _get_growth(gang, asked), more)
            if short:
                starting[role] -= 1
                # What is said if none fits.
                need = need if chosen or lacking else asked
                lacking[role] = short
            else:
                chosen.append(entry)
                waits, need = more, asked
        growth = _get_growth(gang, need)
        if chosen:
            return SchedulingVerdict(gang, VerdictKind.FITS, need=need, growth=growth, pods=chosen, waits=waits)
        first = next(iter(lacking.values()))
        message = _list_insufficient(first)
        return SchedulingVerdict(gang, VerdictKind.WAITS, message, need=need, growth=growth, lacking=tuple(first))

    def _list_lacking(self, gang: Gang, need: Amounts, growth: Amounts, waits: Amounts) -> list[str]:
        lacking = self._room.list_lacking(growth, waits, {} if gang.uses else need)
        if waits.get(GPU, 0) > len(self._free_devices) and GPU not in lacking:
            lacking.append(GPU)
        return lacking

    def _list_obstacles(self, pods: Sequence[Pod | None]) -> list[Obstacle]:
        """Those that do not depend on free resources."""
        found: list[Obstacle] = []
        ignores = self._policy.approximates_selectors
        for pod in pods:
            if pod is not None and (more := list_obstacles(pod, self._node, approximates_selectors=ignores)):
                found += [obstacle for obstacle in more if obstacle not in found]
        return found

    def _is_whole(self, gang: Gang) -> bool:
        """Whether all Pods of the roles that start first exist. If not, the Jobs are checked too, because finished Pods
        that somebody deleted are not created again."""
        shape = gang.shape
        if shape is None or gang.is_whole():
            return True
        if sum(role.replicas for role in shape.roles) > _FEW_JOBS:
            return False
        jobs = [
            job for job in map(Job, self._view.owned(JOBS, shape.namespace, shape.uid)) if job.attempt == shape.attempt
        ]
        return all(_has_all(gang, role, jobs) for role in shape.roles if role.starts_first)

    def _find_pod(self, entry: LedgerEntry) -> Pod | None:
        pod = self._view.find(PODS, *entry.place)
        return Pod(pod) if pod is not None and pod["metadata"]["uid"] == entry.uid else None

    def _take_devices(self, waits: Mapping[str, int]) -> list[Device]:
        count = waits.get(GPU, 0)
        taken, self._free_devices = self._free_devices[:count], self._free_devices[count:]
        return taken


def _find_unready(gang: Gang) -> SchedulingVerdict | None:
    """The verdict on a gang that is not considered yet."""
    if gang.names_job and gang.shape is None:
        text = "the job that the Pod names as its own does not exist"
        obstacle = Obstacle(text, f"0/1 nodes are available: {text}.", is_jobs=True)
        return SchedulingVerdict(gang, VerdictKind.STUCK, obstacle.message, (obstacle,))
    shape = gang.shape
    if shape is not None and shape.least > shape.width and not gang.is_admitted:
        count = f"{shape.width} Pod{'s' if shape.width != 1 else ''}"
        text = f"the job starts with {shape.least} Pods (schedulingPolicy.minAvailable) and has only {count}"
        advice = f"set minAvailable to {shape.width} or less"
        obstacle = Obstacle(f"{text}: {advice}", f"0/1 nodes are available: {text}.", advice, is_jobs=True)
        return SchedulingVerdict(gang, VerdictKind.STUCK, obstacle.message, (obstacle,))
    if any(part.gated for part in _list_waiting_parts(gang)):
        return SchedulingVerdict(gang, VerdictKind.GATED, GATED)
    return None


def _list_waiting_parts(gang: Gang) -> Iterator[GangPart]:
    return (part for _, part in gang.list_parts() if part.waiting)


def _split_waiting(gang: Gang) -> tuple[list[LedgerEntry], list[LedgerEntry]]:
    """The waiting Pods that start together, and those that may start later; two empty lists if all start together."""
    together: list[LedgerEntry] = []
    later: list[LedgerEntry] = []
    shape = gang.shape
    if shape is None or not shape.least:
        return together, later
    for role in shape.roles:
        part = gang.parts.get((gang.attempt, role.name))
        if part is not None:
            entries, missing = list(part.waiting.values()), max(0, role.count_left(part.done) - part.bound)
            together += entries[:missing]
            later += entries[missing:]
    return together, later


def _get_growth(gang: Gang, need: Amounts) -> Amounts:
    return {name: amount - gang.holds.get(name, 0) for name, amount in need.items()}


def _sum_requests(entries: Sequence[LedgerEntry]) -> Amounts:
    total: Amounts = {}
    for entry in entries:
        add_into(total, entry.amounts)
    return total


def _list_insufficient(names: list[str]) -> str:
    texts = ", ".join("1 Too many pods" if name == "pods" else f"1 Insufficient {name}" for name in names)
    return f"0/1 nodes are available: {texts}."


def _was_refused(gang: Gang) -> bool:
    return any(text.startswith(REFUSED) for _, part in gang.list_parts() for text in part.said)


def _has_all(gang: Gang, role: GangRole, jobs: Sequence[Job]) -> bool:
    part = gang.parts.get((gang.attempt, role.name))
    own = [job for job in jobs if job.step == role.name]
    wanted = sum(_count_wanted(job) for job in own)
    return len(own) >= role.replicas and wanted <= (part.count - part.done if part is not None else 0)


def _count_wanted(job: Job) -> int:
    """The number of Pods that the Job should have now."""
    if job.is_finished:
        return 0
    wanted = job.parallelism if job.completions is None else job.completions
    return max(0, min(job.parallelism, wanted - job.succeeded))
