"""Collects and keeps the evidence of jobs.

`collect` looks at all running ranks of a job at the same time, for at most two seconds, and keeps what it finds.
Whoever stops a job may call it before; for deletions, the agent does so itself (`hold`): a Pod of a job that is stopped
because of its deadline, or because it stands still, is examined before it is asked to end. Whether that works or not,
the Pod is stopped then. Only a decision is held back that follows from the Pod object, so after a crash it is made
again, at most two seconds later.

Of a rank that fails by itself, only what is there anyway is kept (`note_end`), without any delay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from trainmaster.api.devices import list_shares
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.history import evidence
from trainmaster.history.evidence import Document
from trainmaster.jobs.kinds import TRAINING_KINDS, find_place
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import DEADLINE_EXCEEDED, FAILED, TrainingJob
from trainmaster.jobs.usage import GpuUsage, PodMeasurement
from trainmaster.kit import failpoints
from trainmaster.kit.clock import Clock, format_time, parse_time
from trainmaster.kit.scopes import Scope
from trainmaster.node.evidence.examination import ExaminationError, RankPlace
from trainmaster.node.machine.state import ContainerStage
from trainmaster.node.tracked import TrackedPod
from trainmaster.node.workloads import Workloads
from trainmaster.shim.protocol import Exited, Paths
from trainmaster.shim.sandbox.cgroups import MemoryRecord, read_memory

log = logging.getLogger(__name__)

MOST_SECONDS = 2.0
_EXAMINE_SECONDS = 1.5
_WAIT_SECONDS = 1.8
RANK_BYTES = 64 << 10
MOST_FAILED = 32
"""Ranks of one attempt whose end is kept; the first ones matter."""
_REMEMBERED = 1024

Rank: TypeAlias = Object
MeasurePods: TypeAlias = Callable[[Sequence[Pod]], Awaitable[Mapping[str, PodMeasurement]]]
"""By uid."""


class Examine(Protocol):
    async def examine(self, uid: str, container: str, seconds: float, most_bytes: int) -> Rank: ...


class JobEvidence:
    def __init__(
        self,
        client: Client,
        workloads: Workloads,
        examiner: Examine,
        clock: Clock,
        pods: Mapping[str, TrackedPod],
        results: Path | None,
        get_paths: Callable[[str], Paths],
    ) -> None:
        """`pods`: what the agent follows. `results`: the directory of all jobs' results; None if nothing is kept."""
        self._client = client
        self._workloads = workloads
        self._examiner = examiner
        self._clock = clock
        self._pods = pods
        self._results = results
        self._get_paths = get_paths
        self._measure: MeasurePods | None = None
        self._scope: Scope | None = None
        self._wake: Callable[[str], None] = lambda _: None
        self._collecting: dict[str, asyncio.Task[Document | None]] = {}
        self._writing = asyncio.Lock()
        self._held: set[str] = set()
        self._released: set[str] = set()
        """Pods that are stopped and need not be examined any more."""
        self._failed: dict[tuple[str, int], set[tuple[str, int, int]]] = {}
        """By gang and attempt, the ranks whose end was kept."""

    def attach(self, scope: Scope, wake: Callable[[str], None]) -> None:
        """Tasks run in that scope; `wake` has the agent handle a Pod."""
        self._scope, self._wake = scope, wake

    def use_meter(self, measure: MeasurePods) -> None:
        """Who knows what GPUs are used for."""
        self._measure = measure

    # Running jobs

    async def collect(self, uid: str, reason: str = evidence.REQUESTED) -> Document | None:
        """The evidence of all running ranks of that job, which is kept; None if none runs here. Takes at most
        MOST_SECONDS. Two at the same time get the same."""
        return await asyncio.shield(self.begin(uid, reason))

    def begin(self, uid: str, reason: str) -> asyncio.Task[Document | None]:
        """Collects it, for those who do not wait for it."""
        task = self._collecting.get(uid)
        if task is None:
            assert self._scope is not None, "the agent runs"
            task = self._scope.spawn(self._collect_safely(uid, reason), name=f"node.evidence.{uid}")
            self._collecting[uid] = task
            task.add_done_callback(lambda _: self._collecting.pop(uid, None))
        return task

    async def _collect_safely(self, uid: str, reason: str) -> Document | None:
        try:
            async with asyncio.timeout(MOST_SECONDS):
                return await self._collect(uid, reason)
        except TimeoutError:
            log.warning("evidence took too long", extra={"action": "node.evidence_late", "uid": uid})
        except Exception:  # whatever it was must keep neither the job from being stopped nor the node from working
            log.exception("no evidence", extra={"action": "node.no_evidence", "uid": uid})
        return None

    async def _collect(self, uid: str, reason: str) -> Document | None:
        began = self._clock.monotonic()
        found = await self._list_running(uid)
        if not found:
            return None
        failpoints.hit("node.before_evidence")
        pods = {at.pod.uid: at.pod for at in found}
        ranks, measured = await asyncio.gather(self._examine_all(found), self._measure_gpus(tuple(pods.values())))
        for at, rank in zip(found, ranks, strict=True):
            if (use := measured.get(at.pod.uid)) is not None:
                rank["gpus"] = _describe_gpus(use.gpus)
        head = self._build_document(found[0].place.round, reason, ranks)
        head["seconds"] = round(self._clock.monotonic() - began, 3)
        return await self._keep(uid, head)

    async def _list_running(self, uid: str) -> list[RankPlace]:
        """The containers of its newest attempt that run, in the order of their ranks."""
        found: list[RankPlace] = []
        for pod in tuple(self._pods.values()):
            place = find_place(pod.obj.raw)
            if place is not None and _is_running(pod) and (await self._workloads.resolve(pod.obj.raw)).trainjob == uid:
                found += _list_containers(pod)
        newest = max((at.place.round for at in found), default=0)
        current = [at for at in found if at.place.round == newest]
        return sorted(current, key=lambda at: (*at.place.seat, at.container))

    async def _examine_all(self, found: Sequence[RankPlace]) -> list[Rank]:
        most = min(RANK_BYTES, evidence.MOST_BYTES // len(found))
        return await asyncio.gather(*(self._examine_rank(at, most) for at in found))

    async def _examine_rank(self, at: RankPlace, most: int) -> Rank:
        examined: Rank | None = None
        error = ""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                examined = await self._examiner.examine(at.pod.uid, at.container, _EXAMINE_SECONDS, most)
        except TimeoutError:
            error = f"its processes could not be examined within {_WAIT_SECONDS:g} s"
        except ExaminationError as failure:
            error = str(failure)
        return await asyncio.to_thread(_build_examined, at, self._get_paths(at.pod.uid), examined, error)

    async def _measure_gpus(self, pods: Sequence[Pod]) -> Mapping[str, PodMeasurement]:
        """The driver may be slow, or not answer."""
        with_gpus = [pod for pod in pods if list_shares(pod.raw)]
        if self._measure is None or not with_gpus:
            return {}
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                return await self._measure(with_gpus)
        except (TimeoutError, OSError):
            return {}

    # Before a stop

    async def hold(self, pod: TrackedPod) -> bool:
        """Whether the Pod is being examined and must not be stopped yet. Wakes it when it may be."""
        deletion = pod.plan.deletion
        if deletion is None or deletion.grace <= 0 or pod.uid in self._released or not _is_running(pod):
            return False
        if pod.uid in self._held:
            return True
        place = find_place(pod.obj.raw)
        job = None if place is None else await self._find_job(pod)
        reason = "" if place is None or job is None else choose_reason(job, place.round)
        if place is None or job is None or not reason or self._scope is None:
            self._released.add(pod.uid)
            return False
        known = None if self._results is None else evidence.find(self._results, job.uid, place.round)
        if known is not None and known["reason"] == reason and parse_time(known["at"]) >= deletion.requested:
            # By the server that has crashed since.
            self._released.add(pod.uid)
            return False
        self._held.add(pod.uid)
        self._scope.spawn_guarded(self._collect_and_release(pod, job.uid, reason), name=f"node.hold.{pod.uid}")
        return True

    async def _collect_and_release(self, pod: TrackedPod, uid: str, reason: str) -> None:
        try:
            await self.collect(uid, reason)
        finally:
            self._held.discard(pod.uid)
            self._released.add(pod.uid)
            now = self._clock.boot()
            # The grace period begins when the program is asked to end.
            pod.change(lambda state: replace(state, deletion_seen=now))
            self._wake(pod.uid)

    async def _find_job(self, pod: TrackedPod) -> TrainingJob | None:
        try:
            workload = await self._workloads.resolve(pod.obj.raw)
            model = TRAINING_KINDS.get(workload.kind)
            if model is None:
                return None
            job = model(await self._client.get(model.gvr, workload.name, workload.namespace))
        except StatusError:
            return None
        return job if job.uid == workload.uid else None

    def forget(self, uid: str) -> None:
        """Of a Pod that is gone."""
        self._released.discard(uid)
        self._held.discard(uid)

    # Ranks that failed

    def note_end(self, pod: TrackedPod, container: str, attempt: int, exited: Exited) -> None:
        """Called when a container has ended; returns at once. What was stopped has not failed by itself."""
        place = find_place(pod.obj.raw)
        is_stopped = pod.plan.deletion is not None or (pod.state is not None and pod.state.is_noticed)
        if exited.code == 0 or is_stopped or place is None or self._results is None or self._scope is None:
            return
        seats = self._failed.setdefault((place.jobset, place.round), set())
        if len(seats) >= MOST_FAILED and place.seat not in seats:
            return  # who failed first is known
        seats.add(place.seat)
        if len(self._failed) > _REMEMBERED:
            del self._failed[next(iter(self._failed))]
        at = RankPlace(pod.obj, place, container, attempt)
        # The control group is removed with the Pod's sandbox, so this is read before anything else happens.
        record = read_memory(self._get_paths(pod.uid), container)
        self._scope.spawn_guarded(self._keep_end(at, record, exited), name=f"node.evidence_end.{pod.uid}")

    async def _keep_end(self, at: RankPlace, record: MemoryRecord | None, exited: Exited) -> None:
        uid = (await self._workloads.resolve(at.pod.raw)).trainjob
        if uid:
            rank = await asyncio.to_thread(_build_ended, at, self._get_paths(at.pod.uid), record, exited)
            await self._keep(uid, self._build_document(at.place.round, evidence.FAILED, [rank]))

    # Documents

    def _build_document(self, attempt: int, reason: str, ranks: list[Rank]) -> Document:
        at = format_time(self._clock.now())
        return {"version": evidence.VERSION, "attempt": attempt, "reason": reason, "at": at, "ranks": ranks}

    async def _keep(self, uid: str, document: Document) -> Document:
        results = self._results
        if results is None:
            return document
        try:
            async with self._writing:
                return await asyncio.to_thread(_merge_and_keep, results, uid, document)
        except OSError as error:
            # The disk is full: whoever asked sees it nevertheless.
            log.warning("evidence not kept", extra={"action": "node.evidence_lost", "uid": uid, "error": str(error)})
            return document


def choose_reason(job: TrainingJob, attempt: int) -> str:
    """Why the Pods of this attempt of a job are examined before they are stopped; "" if they are not."""
    state = job.state_ignoring_deletion
    if state.word == FAILED:
        return {DEADLINE_EXCEEDED: evidence.DEADLINE, evidence.STALLED: evidence.STALLED}.get(state.reason, "")
    # While it stands still, or because of that the next attempt was asked for.
    next_attempt = read_fields(job.status, "stalls").get("attempt")
    is_replaced = isinstance(next_attempt, int) and attempt < next_attempt
    return evidence.STALLED if job.status.get("stalled") or is_replaced else ""


def _build_examined(at: RankPlace, paths: Paths, examined: Rank | None, error: str) -> Rank:
    """Blocks, as the next one."""
    from trainmaster.node.evidence import ranks  # noqa: PLC0415 - not needed for a start

    rank = ranks.build_rank(at, paths, read_memory(paths, at.container))
    rank["error"] = error
    if examined is not None:
        ranks.add_examination(rank, examined)
    return rank


def _build_ended(at: RankPlace, paths: Paths, record: MemoryRecord | None, exited: Exited) -> Rank:
    from trainmaster.node.evidence import ranks  # noqa: PLC0415 - not needed for a start

    return {**ranks.build_rank(at, paths, record), "end": ranks.describe_end(exited)}


def _describe_gpus(gpus: tuple[GpuUsage, ...]) -> list[Rank]:
    return [{"index": gpu.index, "id": gpu.id, "percent": gpu.percent, "memory_mib": gpu.memory_mib} for gpu in gpus]


def _merge_and_keep(results: Path, uid: str, document: Document) -> Document:
    merged = evidence.merge(evidence.find(results, uid, int(document["attempt"])), document)
    evidence.keep(results, uid, merged)
    return merged


def _is_running(pod: TrackedPod) -> bool:
    return pod.state is not None and any(one.stage is ContainerStage.RUNNING for one in pod.state.containers)


def _list_containers(pod: TrackedPod) -> list[RankPlace]:
    place = find_place(pod.obj.raw)
    assert place is not None and pod.state is not None, "it runs, and belongs to a job"
    running = [one for one in pod.state.containers if one.stage is ContainerStage.RUNNING]
    return [RankPlace(pod.obj, place, one.name, one.attempt) for one in running]
