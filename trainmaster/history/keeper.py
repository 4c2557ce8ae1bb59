"""Maintains the archive: watches training jobs, writes their records, and knows which ones are stored (the ledger).

A job is archived when it has ended (the effect `archive` of `controllers/lifecycle`), and again when its object is
deleted for any reason: TTL, kubectl, the namespace. Deletions while no server was running are found at the next start,
because the archive stores the last state of each job.

One thread writes records, in batches under load; the event loop never blocks. If a record cannot be written, the ledger
has the reason, and the job is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import orjson

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.resources import JOB_SETS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.client.follow import ActiveObjects, Begin, Change, ListWatch, Trouble, follow
from trainmaster.client.view import RestingView
from trainmaster.history import logs, purging, restores, results
from trainmaster.history.archive import Archive, ArchiveError, list_jobset_uids
from trainmaster.history.curves.series import Point, read_point
from trainmaster.history.gathering import Gather
from trainmaster.history.record import (
    CONTROL_PLANE,
    JobRecord,
    RecordedDeletion,
    RecordSources,
    add_memory,
    build_record,
    merge,
)
from trainmaster.jobs.kinds import TRAINING_KINDS, read_training_job
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit import failpoints
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.scopes import Scope

if TYPE_CHECKING:
    from trainmaster.history.checkpoints.upkeep import Upkeep
    from trainmaster.history.curves.usage import UsagePoint

log = logging.getLogger(__name__)

UNSEEN = "deleted while no controller was running: by whom is not known, and the last status may be missing"
"""The user of our own controllers in embedded mode."""
DELETE_RESULTS = "trainmaster.dev/delete-results"
"""Annotation on jobs, set by their author: "true" deletes checkpoints and outputs together with the job."""
_NOTE_SECONDS = 1.0
"""How long storing the state of existing jobs is delayed."""
_TRIM_SECONDS = 3600.0
_BATCH = 64
_SLICE = 256
_MOST_POINTS = 100_000
"""The maximum held in memory while the disk cannot be written; the oldest are dropped."""
_LATELY_SECONDS = 86_400.0
_FACTS_PAUSE_SECONDS = 0.5
"""Between two batches of records of earlier versions, which are read once to describe them."""
_RETRY = BackoffPolicy(first=1.0, cap=5.0)
"""Until a record is written, its only copy is in memory."""

_COUNTERS = frozenset({"resourceVersion", "managedFields"})

T = TypeVar("T")

KeepLogs = Callable[[Object], None]
"""Keeps the logs of one Pod, in a thread."""
MeasureMemory = Callable[[Object], int]
"""The memory of the largest process that a Pod had, in bytes; 0 if unknown. Called in a thread."""
FindDeleter = Callable[[str], tuple[str, str] | None]
"""Who deleted the object with that uid, and why, if known."""


FindCode = Callable[[Fields], Object | None]
"""The ConfigMap with the code of a job, if it has one."""


def find_no_code(job: Fields) -> Object | None:
    return None


def find_no_deleter(uid: str) -> tuple[str, str] | None:
    return None


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How long and how much of deleted jobs is kept."""

    seconds: float = 365 * 86400.0
    bytes: int = 20 * 1024**3


@dataclass(slots=True)
class _Waiting:
    record: JobRecord
    done: asyncio.Future[ArchiveError | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Keeper:
    """Implements `controllers.lifecycle.contract.Ledger`, and performs the effect."""

    def __init__(
        self,
        archive: Archive,
        client: Client,
        gather: Gather,
        clock: Clock,
        *,
        keep_logs: KeepLogs | None = None,
        measure_memory: MeasureMemory | None = None,
        find_deleter: FindDeleter = find_no_deleter,
        limits: HistoryLimits = HistoryLimits(),
        source: ListWatch | None = None,
        models: Sequence[type[TrainingJob]] | None = None,
    ) -> None:
        """`source`: where jobs and JobSets are followed, instead of through the client. `models`: the kinds that the
        server has; all if it is None."""
        self._archive = archive
        self._client = client
        self._gather = gather
        self._clock = clock
        self._keep_logs = keep_logs
        self._measure_memory = measure_memory
        self._find_deleter = find_deleter
        self.find_code: FindCode = find_no_code
        """Set before it runs, where code is to be kept."""
        self._codes: dict[str, Object] = {}
        """ConfigMaps with the code of jobs that are not stored yet, by uid of the job."""
        self._coded: set[str] = set()
        """Uids of the jobs whose code has been looked for."""
        self._limits = limits
        self._source: ListWatch = source or client
        self.upkeep: Upkeep | None = None
        """What removes checkpoints; set before it runs, where there are some."""
        self.resting: RestingView | None = None
        """Where jobs at rest are listed apart; set before it runs."""
        self._kept: set[str] = set()
        self._inherited: set[str] = set()
        """Uids of jobs archived by an earlier process that have not been seen yet."""
        self._restored: RecordedDeletion | None = None
        """If the objects were restored from a backup: how the jobs that are not in it were deleted."""
        self._models = tuple(TRAINING_KINDS.values()) if models is None else models
        self._unlisted = set(self._models)
        """Kinds whose jobs have not been listed yet."""
        self._troubles: dict[str, str] = {}
        self._jobsets: dict[str, str] = {}
        """JobSet uid to job uid, not stored yet. A job without a JobSet is mapped to itself."""
        self._below: dict[str, set[str]] = {}
        """Uids of the JobSets of existing jobs."""
        self._opened: dict[str, bytes] = {}
        self._noted: dict[str, int] = {}
        """A hash of the last stored state of each job, to ignore changes that are only progress reports."""
        self._points: list[tuple[str, Point]] = []
        """Progress reports that are not stored yet."""
        self._said: dict[str, Point] = {}
        self._attempts: dict[str, int] = {}
        """The newest attempts of existing jobs, as their JobSets say."""
        self._waiting: list[_Waiting] = []
        self._work = asyncio.Event()
        self._dirty = asyncio.Event()
        self._slots = asyncio.Semaphore(_BATCH)
        self._at_rest: asyncio.Task[set[str]] | None = None
        """Those at rest at the start, until jobs of all kinds have been listed."""
        self._scope: Scope
        self._thread = ThreadPoolExecutor(1, "history")

    def is_archived(self, uid: str) -> bool:
        return uid in self._kept

    def find_trouble(self, uid: str) -> str | None:
        return self._troubles.get(uid)

    def count_troubles(self) -> int:
        return len(self._troubles)

    @property
    def size(self) -> tuple[int, int]:
        """(records, bytes) in the archive; (0, 0) before the first measurement."""
        return self._archive.totals or (0, 0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Keeper]:
        self._kept = await self._call(self._archive.list_kept)
        self._inherited = set(self._kept)
        self._restored = await self._call(partial(restores.find_restore, self._archive.directory))
        try:
            async with Scope("history") as scope:
                self._scope = scope
                self._at_rest = scope.spawn(self._list_resting(), name="history.at-rest")
                scope.spawn_forever(self._write(), name="history.write")
                scope.spawn_forever(self._note(), name="history.note")
                scope.spawn_forever(self._trim(), name="history.trim")
                scope.spawn(self._describe_records(), name="history.facts")
                for model in self._models:
                    scope.spawn_forever(self._follow_jobs(model), name=f"history.{model.gvr.plural}")
                scope.spawn_forever(self._follow_jobsets(), name="history.jobsets")
                yield self
        finally:
            with suppress(ArchiveError):
                await self._flush()
            self._thread.shutdown()

    async def archive(self, job: Object) -> bool:
        """Performs the effect: stores the record of a finished job. Returns whether the ledger has changed."""
        uid = job["metadata"]["uid"]
        await self._client.durable(int(job["metadata"]["resourceVersion"]))
        failpoints.hit("history.before_logs")
        trouble: OSError | None
        try:
            sources = await self._gather(job, self._below.get(uid, ()))
            trouble = await self._put(build_record(sources), sources)
        except StatusError as error:
            trouble = ArchiveError(f"cannot read what belongs to it: {error.message}")
        except OSError as error:
            trouble = error
        before = self._troubles.get(uid)
        if trouble is None:
            self._kept.add(uid)
            self._troubles.pop(uid, None)
            return True
        self._troubles[uid] = str(trouble)
        if before is None:
            log.warning("record not written", extra={"action": "history.failed", "error": str(trouble), "uid": uid})
        return before != str(trouble)

    async def _put(self, record: JobRecord, sources: RecordSources, *, note: bool = False) -> ArchiveError | None:
        """`note`: first store the uids of its JobSets, because they will not be seen again."""
        try:
            if self._keep_logs is not None:
                await self._call(partial(_keep_all, self._keep_logs, sources))
            if self._measure_memory is not None:
                record = add_memory(record, await self._call(partial(_measure_all, self._measure_memory, sources)))
            if note:
                await self._flush()
        except ArchiveError as error:
            return error
        except OSError as error:
            return ArchiveError(f"cannot keep the logs: {error.strerror}")
        waiting = _Waiting(record)
        self._waiting.append(waiting)
        self._work.set()
        return await waiting.done

    async def _write(self) -> None:
        """Writes all waiting records in one transaction."""
        while True:
            await self._work.wait()
            self._work.clear()
            while batch := self._waiting[:_BATCH]:
                del self._waiting[:_BATCH]
                trouble: ArchiveError | None = None
                try:
                    await self._call(partial(self._store, [item.record for item in batch]))
                except ArchiveError as error:
                    trouble = error
                for item in batch:
                    if not item.done.done():
                        item.done.set_result(trouble)

    def _store(self, records: list[JobRecord]) -> None:
        merged = []
        for record in records:
            old = self._archive.find(record.uid)
            jobsets = {*self._archive.list_jobsets(record.uid), *list_jobset_uids(record)}
            kept = logs.list_logs(self._archive.directory, sorted(jobsets))
            size = sum(log.bytes for log in kept)
            if record.deletion is not None:
                if _wants_no_results(record):
                    purging.remove_results(self._archive.directory, record.uid)
                size += purging.measure_results(self._archive.directory, record.uid)
            record = replace(record, kept_bytes=size + self._archive.measure_points(record.uid))
            merged.append(record if old is None else merge(old, record))
        failpoints.hit("history.before_record")
        self._archive.put(merged)
        failpoints.hit("history.after_record")

    # Following objects

    async def _follow_jobs(self, model: type[TrainingJob]) -> None:
        async def begin(items: list[Object]) -> None:
            # Those at rest were archived long ago. At the start they are listed once for all kinds.
            resting = await (self._list_resting() if self._at_rest is None else self._at_rest)
            present = {item["metadata"]["uid"] for item in items} | resting
            vanished = await self._call(partial(self._list_vanished, model, present))
            for job in vanished:
                await self._record_deletion(model(job), unseen=True)
            if self._restored is not None:
                await self._reopen(list(map(model, items)), resting)
            await self._recall_reports([job for job in map(model, items) if not job.is_finished])
            for item in items:
                self._see(model(item))
            await self._finish_listing(model)

        async def change(event: WatchEvent) -> None:
            if event.type == "DELETED":
                if self.upkeep is not None:
                    self.upkeep.forget(event.object["metadata"]["uid"])
                # Many jobs may be deleted at once (with a namespace, or by a shared TTL); their records share
                # transactions.
                await self._slots.acquire()
                self._scope.spawn(self._record_one_deletion(model(event.object)), name="history.bury")
            else:
                self._see(model(event.object))

        trouble = partial(_report_trouble, model.gvr)
        await self._follow(model.gvr, begin, change, trouble)

    async def _follow(self, gvr: GVR, begin: Begin, change: Change, trouble: Trouble) -> None:
        source = self._source if self.resting is None else ActiveObjects(self._source, self.resting)
        await follow(source, self._clock, gvr, begin, change, trouble=trouble)

    async def _list_resting(self) -> set[str]:
        """The uids of all jobs at rest now. In slices, because there may be very many."""
        found: set[str] = set()
        if self.resting is not None:
            for uid, _, _ in chain(*[self.resting.list_at_rest(model.gvr) for model in self._models]):
                found.add(uid)
                if len(found) % _SLICE == 0:
                    await asyncio.sleep(0)
        return found

    async def _reopen(self, jobs: list[TrainingJob], resting: set[str]) -> None:
        """After a restore: jobs that were deleted, or had ended, may exist again in an earlier state."""
        ended = [*resting, *(job.uid for job in jobs if job.is_finished)]
        await self._call(partial(self._archive.reopen, ended, [job.uid for job in jobs if not job.is_finished]))
        self._kept = await self._call(self._archive.list_kept)

    async def _finish_listing(self, model: type[TrainingJob]) -> None:
        self._unlisted.discard(model)
        if not self._unlisted:
            self._at_rest = None
        if self._restored is not None and not self._unlisted:
            await self._call(partial(restores.forget_restore, self._archive.directory))
            self._restored = None

    def _list_vanished(self, model: type[TrainingJob], present: set[str]) -> list[Object]:
        """Deleted jobs of this kind, in their last known state: the stored one, which may be outdated, otherwise the
        one in the record."""
        # Later deletions are seen by the watch, so only records of an earlier process have to be checked.
        known = [self._find_last(uid) for uid in sorted((self._archive.list_open_uids() | self._inherited) - present)]
        gone = [job for job in known if job is not None and isinstance(read_training_job(job), model)]
        self._inherited -= {*present, *(job["metadata"]["uid"] for job in gone)}
        return gone

    def _find_last(self, uid: str) -> Object | None:
        found = self._archive.find_open(uid)
        if found is None and (record := self._archive.find(uid)) is not None:
            found = record.document["trainjob"]
        return found

    async def _follow_jobsets(self) -> None:
        async def begin(items: list[Object]) -> None:
            for item in items:
                self._see_jobset(item)

        async def change(event: WatchEvent) -> None:
            if event.type != "DELETED":
                self._see_jobset(event.object)

        await self._follow(JOB_SETS, begin, change, partial(_report_trouble, JOB_SETS))

    def _see(self, job: TrainingJob) -> None:
        uid = job.uid
        self._see_code(job)
        if self.upkeep is not None:
            self.upkeep.see(job)
        if not job.has_jobset:
            self._see_gang(uid, uid)
        if job.is_finished:
            # It reports nothing any more, and there may be many such jobs, so do not keep their state in memory.
            if uid not in self._kept:
                self._see_report(job)
            self._said.pop(uid, None)
            self._noted.pop(uid, None)
            self._opened[uid] = orjson.dumps(job.raw)
            self._dirty.set()
            return
        self._see_report(job)
        news = hash(orjson.dumps(_drop_report(job)))
        if news != self._noted.get(uid):
            self._noted[uid] = news
            self._opened[uid] = orjson.dumps(job.raw)
            self._dirty.set()

    async def _recall_reports(self, jobs: Sequence[TrainingJob]) -> None:
        """What these jobs had reported last, so that it does not count as a report of the present attempt."""
        for uid in [job.uid for job in jobs if job.report and job.uid not in self._said]:
            point = await self._call(partial(self._archive.find_last_point, uid))
            if point is not None:
                self._said[uid] = point

    def _see_code(self, job: TrainingJob) -> None:
        """As soon as the job is seen, because its ConfigMap may be deleted before the job's deletion is seen."""
        if job.uid in self._coded or job.uid in self._kept:
            return
        self._coded.add(job.uid)
        found = self.find_code(job.raw)
        if found is not None:
            self._codes[job.uid] = found
            self._dirty.set()

    def _see_report(self, job: TrainingJob) -> None:
        uid = job.uid
        point, said = read_point(job.raw, self._attempts.get(uid, 0)), self._said.get(uid)
        # A report is that of the attempt in which it came, also while the next one begins.
        if point is not None and (said is None or point != replace(said, attempt=point.attempt)):
            self._said[uid] = point
            self._points.append((uid, point))
            self._dirty.set()

    def _see_jobset(self, obj: Object) -> None:
        jobset = JobSet(obj)
        owner = jobset.controller
        if not jobset.is_deleting and owner is not None and owner.get("kind") in TRAINING_KINDS:
            self._attempts[owner["uid"]] = jobset.attempt
            self._see_gang(owner["uid"], jobset.uid)

    def _see_gang(self, job: str, jobset: str) -> None:
        known = self._below.setdefault(job, set())
        if jobset not in known:
            known.add(jobset)
            self._jobsets[jobset] = job
            self._dirty.set()

    async def _record_one_deletion(self, job: TrainingJob) -> None:
        try:
            await self._record_deletion(job)
        finally:
            self._slots.release()

    async def _record_deletion(self, job: TrainingJob, *, unseen: bool = False) -> None:
        """Stores the final record of a deleted job, with who deleted it. `unseen`: while no controller was running."""
        uid = job.uid
        self._see_code(job)
        if self.upkeep is not None:
            self.upkeep.see(job)
        self._coded.discard(uid)
        self._opened.pop(uid, None)
        self._noted.pop(uid, None)
        self._said.pop(uid, None)
        self._attempts.pop(uid, None)
        if not unseen:
            await self._client.durable(int(job.resource_version))
        failpoints.hit("history.before_last_word")
        deletion = self._describe_deletion(job, unseen=unseen)
        gaps = (restores.UNSEEN if self._restored else UNSEEN,) if unseen else ()
        try:
            below: Collection[str] = self._below.pop(uid, ())
            if not below:
                below = await self._call(partial(self._archive.list_jobsets, uid))
            sources = await self._gather(job.raw, below)
        except (StatusError, OSError) as error:
            # The last state of the job is known; its children may be deleted while the server does not answer.
            sources = RecordSources(job.raw, gaps=(f"what belonged to it could not be read: {error}",))
        delay = Backoff(_RETRY)
        while trouble := await self._put(build_record(sources, deletion, gaps), sources, note=True):
            # The object is deleted, so this is the only copy; retry until it is stored.
            log.error("record of a deleted job not written", extra={"action": "history.failed", "error": str(trouble)})
            await self._clock.sleep(delay.next())
        failpoints.hit("history.after_last_word")
        self._kept.discard(uid)
        self._troubles.pop(uid, None)

    def _describe_deletion(self, job: TrainingJob, *, unseen: bool) -> RecordedDeletion:
        if unseen and self._restored is not None:
            return self._restored
        by, why = self._find_deleter(job.uid) or ("", "")
        retention = job.retention
        if by == CONTROL_PLANE and retention:
            why = f"{retention['ttlSecondsAfterFinished']} s after its end, by {retention['source']}"
        return RecordedDeletion(job.meta.get("deletionTimestamp") or format_time(self._clock.now()), by, why)

    async def _note(self) -> None:
        while True:
            await self._dirty.wait()
            await self._clock.sleep(_NOTE_SECONDS)
            try:
                await self._flush()
            except ArchiveError as error:
                log.warning("notes not written", extra={"action": "history.failed", "error": str(error)})

    async def _trim(self) -> None:
        while True:
            before = purging.find_moment(self._limits.seconds, self._clock.now())
            work = partial(purging.trim, self._archive, before=before, most_bytes=self._limits.bytes)
            try:
                gone = await self._call(work)
                if gone:
                    log.info("old records forgotten", extra={"action": "history.trimmed", "count": len(gone)})
            except ArchiveError as error:
                log.warning("old records not forgotten", extra={"action": "history.failed", "error": str(error)})
            await self._clock.sleep(_TRIM_SECONDS)

    async def _describe_records(self) -> None:
        """Once after an upgrade: what lists show of the records of earlier versions."""
        try:
            missing = await self._call(self._archive.list_without_facts)
            for start in range(0, len(missing), _BATCH):
                await self._clock.sleep(_FACTS_PAUSE_SECONDS)
                await self._call(partial(self._archive.add_missing_facts, missing[start : start + _BATCH]))
        except ArchiveError as error:
            log.warning("old records not described", extra={"action": "history.failed", "error": str(error)})

    # What jobs use (`usage_keeper`)

    async def add_usage(self, points: Sequence[tuple[str, UsagePoint]], thin: Sequence[str], now: int) -> None:
        """Raises ArchiveError."""
        await self._call(partial(self._archive.add_usage, points, thin=thin, now=now))

    async def condense_usage(self, uids: Sequence[str]) -> None:
        """Raises ArchiveError."""
        await self._call(partial(self._archive.condense_usage, uids))

    async def list_long_usage(self) -> list[str]:
        """Of jobs that have ended lately, which may have been while there was no server. Raises ArchiveError."""
        since = purging.find_moment(_LATELY_SECONDS, self._clock.now())
        return await self._call(partial(self._archive.list_long_usage, since))

    async def _flush(self) -> None:
        self._dirty.clear()
        opened, jobsets, points = self._opened, self._jobsets, self._points
        self._opened, self._jobsets, self._points = {}, {}, []
        codes, self._codes = self._codes, {}
        if codes:
            await self._call(partial(self._keep_codes, codes))
        if not opened and not jobsets and not points:
            return
        try:
            await self._call(partial(self._keep_notes, opened, jobsets, points))
        except ArchiveError:
            # Newer ones may have arrived in the meantime; they take precedence.
            self._opened, self._jobsets = {**opened, **self._opened}, {**jobsets, **self._jobsets}
            self._points = [*points, *self._points][-_MOST_POINTS:]
            self._dirty.set()
            raise

    def _keep_notes(self, opened: dict[str, bytes], jobsets: dict[str, str], points: list[tuple[str, Point]]) -> None:
        if opened or jobsets:
            self._archive.note(opened, jobsets)
        if points:
            self._archive.add_points(points)

    def _keep_codes(self, codes: dict[str, Object]) -> None:
        for uid, config_map in codes.items():
            try:
                results.keep_code(self._archive.directory, uid, config_map)
            except OSError as error:
                # The record is worth more than the code: it is written without.
                log.warning("code not kept", extra={"action": "history.code", "uid": uid, "error": str(error)})

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _report_trouble(gvr: GVR, error: StatusError | OSError) -> None:
    """A cluster may not have every kind of job."""
    level = logging.DEBUG if isinstance(error, NotFound) else logging.WARNING
    log.log(level, "watch broke, listing again", extra={"resource": gvr.qualified, "error": str(error)})


def _wants_no_results(record: JobRecord) -> bool:
    return read_training_job(record.document["trainjob"]).annotations.get(DELETE_RESULTS) == "true"


def _drop_report(job: TrainingJob) -> Object:
    """The job without its progress report, which changes every few seconds and is stored as a series."""
    meta = {key: value for key, value in job.meta.items() if key not in _COUNTERS}
    status = {key: value for key, value in job.status.items() if key not in ("trainerStatus", "progress", "pace")}
    return {**job.raw, "metadata": meta, "status": status}


def _keep_all(keep_logs: KeepLogs, sources: RecordSources) -> None:
    for pod in sources.pods:
        keep_logs(pod)


def _measure_all(measure_memory: MeasureMemory, sources: RecordSources) -> dict[str, int]:
    return {pod["metadata"]["uid"]: measure_memory(pod) for pod in sources.pods}
