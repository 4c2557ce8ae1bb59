"""The second part of `jobs.logs.stream`: what a job prints from now on, until it has ended.

Watches (of the job, its JobSet if it has one, and its Pods) maintain the state of the job. Each container of each Pod
has a reader, which puts batches of lines into one bounded queue. Readers of an attempt start only after those of
earlier attempts have finished; if only the Pod of one rank was replaced, only the readers of that rank wait. Iterate
and close it in the same task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.resources import JOB_SETS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, LogOptions, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.logs.batches import BatchBuilder, gather_batches
from trainmaster.jobs.logs.beginning import read_kept, read_leftovers
from trainmaster.jobs.logs.contract import (
    ATTEMPT,
    GAP,
    TROUBLE,
    WAITING,
    Entry,
    JobLogOptions,
    Kept,
    KeptLog,
    Line,
    LogMark,
    Positions,
    ReaderTurn,
    await_kept,
    await_rounds,
    is_passing,
)
from trainmaster.jobs.logs.lines import LogLost, Stamped, read_lines
from trainmaster.jobs.logs.places import identify_pod
from trainmaster.jobs.lookups import read_parts
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.pods import Pod, count_restarts, has_started, is_between_runs, is_running
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope

_QUEUE = 2
"""The maximum number of batches queued for a slow consumer."""
_RETRY = BackoffPolicy(first=0.1, cap=2.0)
_STALE_SECONDS = 1.0
"""How long to wait for an update of the Pod, before retrying a log that ended although the container is running."""


async def follow_lines(
    client: Client, clock: Clock, job: TrainingJob, wanted: JobLogOptions, kept: Kept, positions: Positions
) -> AsyncGenerator[Sequence[Entry], None]:
    """The entries in batches, those that arrive together in one."""
    follower = _Follower(client, clock, job, wanted, kept, positions)
    async with Scope("joblogs") as scope:
        follower.start(scope)
        while (batch := await follower.queue.get()) is not None:
            yield batch


class _Follower:
    def __init__(
        self, client: Client, clock: Clock, job: TrainingJob, wanted: JobLogOptions, kept: Kept, positions: Positions
    ) -> None:
        self.queue: asyncio.Queue[Sequence[Entry] | None] = asyncio.Queue(_QUEUE)
        self.client, self.clock = client, clock
        self.wanted, self.kept, self.positions = wanted, kept, positions
        self._job = job
        self.namespace = job.namespace
        self._gone = False
        self._jobsets: list[str] = [] if job.has_jobset else [job.uid]
        """Uids in the order in which they were seen, as in `PodPlace.jobset` of its Pods."""
        self._pods: dict[str, Object] = {}
        """By `PodPlace.id`."""
        self._floor = positions.floor
        if wanted.last_attempt and positions.attempt is not None:
            self._floor = positions.attempt
        self._reading: dict[tuple[str, str], ReaderTurn] = {}
        """By (Pod, container), of active readers."""
        self._numbers = 0
        self._read: set[tuple[str, str]] = set()
        self._attempts: set[int] = set()
        """The attempts that have had a reader."""
        self._marked: tuple[int, int] | None = None
        self._news = asyncio.Event()
        self._troubled = self._told_trouble = False
        self._told_waiting = ""
        self._marking = asyncio.Lock()

    def start(self, scope: Scope) -> None:
        job, name = self._job, f"metadata.name={self._job.name}"
        scope.spawn(self._follow(job.gvr, self._see_job, field_selector=name), name="joblogs.job")
        if job.has_jobset:
            scope.spawn(self._follow(JOB_SETS, self._see_jobset, field_selector=name), name="joblogs.jobset")
        selector = f"{job.pod_label}={job.name}"
        scope.spawn(self._follow(PODS, self._see_pod, label_selector=selector), name="joblogs.pods")
        scope.spawn(self._drive(scope), name="joblogs.drive")

    # Watches

    async def _follow(
        self,
        gvr: GVR,
        see: Callable[[Object, bool], None],
        *,
        field_selector: str = "",
        label_selector: str = "",
    ) -> None:
        known: dict[str, Object] = {}

        async def begin(items: list[Object]) -> None:
            self._troubled = False
            names = {item["metadata"]["uid"] for item in items}
            for uid in [uid for uid in known if uid not in names]:
                see(known.pop(uid), True)
            for item in items:
                known[item["metadata"]["uid"]] = item
                see(item, False)
            self._notify()

        async def change(event: WatchEvent) -> None:
            uid = event.object["metadata"]["uid"]
            gone = event.type == "DELETED"
            if gone:
                known.pop(uid, None)
            else:
                known[uid] = event.object
            see(event.object, gone)
            self._notify()

        await follow(
            self.client,
            self.clock,
            gvr,
            begin,
            change,
            namespace=self.namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            trouble=self._hear_trouble,
        )

    def _see_job(self, obj: Object, gone: bool) -> None:
        if obj["metadata"]["uid"] == self._job.uid:
            self._job, self._gone = type(self._job)(obj), gone

    def _see_jobset(self, obj: Object, gone: bool) -> None:
        jobset = JobSet(obj)
        if jobset.is_owned_by(self._job.uid) and jobset.uid not in self._jobsets:
            self._jobsets.append(jobset.uid)

    def _see_pod(self, obj: Object, gone: bool) -> None:
        if gone:
            self._pods.pop(identify_pod(obj), None)
        else:
            self._pods[identify_pod(obj)] = obj

    def _hear_trouble(self, error: Exception) -> None:
        if isinstance(error, StatusError) and error.code in (401, 403):
            raise error
        self._troubled = True
        self._notify()

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, seconds: float | None = None) -> None:
        """Waits for a change. There must be no await between reading the state and this call."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    # Readers

    async def _drive(self, scope: Scope) -> None:
        checked = False
        while True:
            await self._tell()
            self._start_readers(scope)
            if self.over and not self._reading:
                if checked:
                    break
                # The last Pods may not have been seen by the watch yet.
                checked = await self._look_again()
                continue
            await self.wait()
        await self._fill(None)
        await self.queue.put(None)

    async def _look_again(self) -> bool:
        try:
            parts = await read_parts(self.client, self._job)
        except (StatusError, OSError):
            await self.wait(_STALE_SECONDS)
            return False
        self._jobsets += sorted(parts.uids.difference(self._jobsets))
        for pod in parts.pods:
            self._pods.setdefault(identify_pod(pod), pod)
        return True

    def _start_readers(self, scope: Scope) -> None:
        for pod in sorted(self._pods.values(), key=lambda pod: pod["metadata"]["name"]):
            place = find_place(pod)
            if place is None or place.jobset not in self._jobsets or place.round < self._floor:
                continue
            for container, _ in Pod(pod).list_states():
                key = (place.id, container)
                if key in self._reading or key in self._read or not self.wanted.fits(place, container):
                    continue
                self._numbers += 1
                turn = ReaderTurn(
                    (self._jobsets.index(place.jobset), place.round), place.seat, container, self._numbers
                )
                self._attempts.add(place.round)
                self._reading[key] = turn
                scope.spawn(self._run_reader(place, container, turn), name=f"joblogs.{place.pod}.{container}")

    async def _run_reader(self, place: PodPlace, container: str, turn: ReaderTurn) -> None:
        while any(other.comes_before(turn) for other in self._reading.values()):
            await self.wait()
        try:
            await _Reader(self, place, container, turn.attempt).read()
        finally:
            key = (place.id, container)
            self._read.add(key)
            self._reading.pop(key, None)
            self._notify()

    async def _tell(self) -> None:
        """Sends marks about the state of the job and the server, each once."""
        attempt = self.positions.attempt or 0
        if self._troubled and not self._told_trouble:
            mark = LogMark(TROUBLE, attempt, "the server does not answer; asking again until it does")
            await self.queue.put([mark])
        self._told_trouble = self._troubled
        waiting = self._job.waiting
        text = f"{waiting.get('reason', '')}: {waiting.get('message', '')}" if waiting else ""
        if text and text != self._told_waiting:
            await self.queue.put([LogMark(WAITING, attempt, text)])
        self._told_waiting = text

    async def mark(self, turn: tuple[int, int]) -> None:
        """Called before a line is returned: returns what is missing of earlier attempts, and marks the start of a new
        attempt."""
        if self._marked == turn:
            return
        async with self._marking:
            if self._marked is not None and self._marked >= turn:
                return
            attempt, before = turn[1], self.positions.attempt
            await self._fill(attempt)
            again = self._marked is not None and self._marked[0] < turn[0]
            self._marked, self.positions.attempt = turn, attempt
            if (before is None and attempt == 0) or (before == attempt and not again):
                return
            await self.queue.put([LogMark(ATTEMPT, attempt, f"attempt {attempt}{self._explain(attempt)}")])

    def _explain(self, attempt: int) -> str:
        failure = self._job.failure
        if failure is None or failure.get("attempt") != attempt - 1 or failure.get("rank") is None:
            return ""
        who = f"{failure.get('replicatedJob') or 'node'} {failure['rank']}"
        return f", after {who} ended with exit code {failure.get('exitCode')}"

    async def _fill(self, before: int | None) -> None:
        """Returns the kept logs of Pods that no watch has seen, of attempts before this one."""
        end = (self.positions.attempt or 0) + 1 if before is None else before
        wanted = self.wanted.attempt
        missing = {number for number in range(self._floor, end) if wanted in (None, number)} - self._attempts
        await await_rounds(self.clock, self.kept, self._job.uid, self._jobsets, missing)
        logs = [log for log in self._list_unread() if before is None or log.place.round < before]
        await self._put_leftovers(logs)

    async def fill_rank(self, place: PodPlace, container: str) -> None:
        """Returns the kept logs of earlier Pods of a rank that no watch has seen, before those of this Pod."""
        await self._put_leftovers(
            [log for log in self._list_unread() if (log.place.seat, log.container) == (place.seat, container)]
        )

    def _list_unread(self) -> list[KeptLog]:
        return [
            log
            for log in self.kept.list_logs(self._job.uid, self._jobsets)
            if self._floor <= log.place.round
            and self.wanted.fits(log.place, log.container)
            and (log.place.id, log.container) not in self._reading
            and (log.place.id, log.container) not in self._read
            and not self.positions.is_finished(log.place, log.container, log.restart)
        ]

    async def _put_leftovers(self, logs: Sequence[KeptLog]) -> None:
        entries = read_leftovers(logs, replace(self.wanted, tail=None), self.kept, self.positions)
        async with aclosing(gather_batches(entries)) as batches:
            async for batch in batches:
                await self.queue.put(batch)

    # Called by readers

    def find_pod(self, place: PodPlace) -> Object | None:
        """None if it is gone, even if another one has its name."""
        return self._pods.get(place.id)

    async def renew(self, place: PodPlace) -> bool:
        """Reads one Pod from the server, in case the watch lags behind. Returns False if the server does not answer;
        retry later."""
        try:
            found = await self.client.get(PODS, place.pod, self.namespace)
            if identify_pod(found) != place.id:
                self._pods.pop(place.id, None)
            self._pods[identify_pod(found)] = found
        except NotFound:
            self._pods.pop(place.id, None)
        except (StatusError, OSError) as error:
            return not is_passing(error)
        return True

    async def await_kept(self, place: PodPlace) -> None:
        def has_it(places: list[PodPlace]) -> bool:
            return any(one.id == place.id for one in places)

        await await_kept(self.clock, self.kept, self._job.uid, self._jobsets, has_it)

    def list_kept(self, place: PodPlace, container: str) -> list[KeptLog]:
        logs = self.kept.list_logs(self._job.uid, self._jobsets)
        return [log for log in logs if log.place.id == place.id and log.container == container]

    @property
    def over(self) -> bool:
        return self._gone or self._job.is_finished


class _Reader:
    """Reads one container of one Pod, with all its runs."""

    def __init__(self, follower: _Follower, place: PodPlace, container: str, attempt: tuple[int, int]) -> None:
        self._follower = follower
        self._wanted = replace(follower.wanted, tail=None)
        self._place, self._container, self._attempt = place, container, attempt
        self._fresh = follower.positions.find(place, container) is None
        self._position = follower.positions.get(place, container)
        if self._position.restart < 0:
            self._position.enter(0)
        self._complete = False
        """The current run was read to its end."""
        self._in_order = False
        """The last stream of the current run ended without an error, so the run has most likely ended."""
        self._has_predecessors = bool(place.uid)
        """Whether earlier Pods of the rank may have logs that were not returned yet."""
        self._backoff = Backoff(_RETRY)

    async def read(self) -> None:
        while True:
            pod = self._follower.find_pod(self._place)
            if pod is None:
                return await self._read_kept()
            state = self._get_state(pod)
            count = count_restarts(state)
            if count > self._position.restart and has_started(state):
                if not await self._catch_up(count, between=is_between_runs(state)):
                    return await self._read_kept()
            elif self._complete or not has_started(state):
                if Pod(pod).is_over or (self._follower.over and (self._complete or await self._has_never_started())):
                    return None
                if not self._follower.over:
                    await self._follower.wait(None)
            elif not await self._read_run():
                return await self._read_kept()

    def _get_state(self, pod: Object) -> Fields:
        return dict(Pod(pod).list_states())[self._container]

    async def _has_never_started(self) -> bool:
        """Confirms that the container of a finished job never started. Each kind has its own watch, and the one of Pods
        may lag behind."""
        if not await self._follower.renew(self._place):
            await self._follower.clock.sleep(self._backoff.next())
            return False
        pod = self._follower.find_pod(self._place)
        return pod is not None and not has_started(self._get_state(pod))

    async def _catch_up(self, count: int, *, between: bool) -> bool:
        """Handles a restart of the container: reads the rest of the previous run, then moves to the newest. Returns
        False if the Pod is gone.

        Between two runs the server returns only the log of the newest one.
        """
        oldest = count if between else count - 1
        missing = self._position.restart + (self._complete or self._in_order)
        if missing < oldest:
            await self._say_gap(f"runs {missing} to {oldest - 1} of {self._container} are gone")
        if self._position.restart < oldest:
            self._enter(oldest)
        if oldest < count and not self._complete:
            if not await self._read_run(previous=True):
                return False
            if not self._complete:
                # The connection broke; try again with the state known by then.
                return True
        self._enter(count)
        return True

    def _enter(self, restart: int) -> None:
        if self._position.restart != restart:
            self._position.enter(restart)
        self._complete = self._in_order = False

    async def _read_run(self, *, previous: bool = False) -> bool:
        """Reads until the log ends or the connection breaks. Returns False if the Pod is gone.

        A log may end because the container terminated, or because a stopping server closed the connection cleanly. So
        the run counts as complete only if it was known to have ended before the request.
        """
        if self._has_predecessors:
            self._has_predecessors = False
            await self._follower.fill_rank(self._place, self._container)
        is_last = previous or self._has_ended()
        options = LogOptions(
            self._container,
            follow=not previous,
            previous=previous,
            since_time=self._wanted.since_time,
            uid=self._place.uid,
        )
        follower, position = self._follower, self._position
        try:
            async with aclosing(
                read_lines(follower.client, follower.namespace, self._place.pod, options, position)
            ) as it:
                async for lines in it:
                    await self._put([self._build(position.advance(line)) for line in lines])
                    self._backoff.reset()
        except NotFound:
            return False
        except StatusError as error:
            if error.code in (401, 403):
                raise
            is_lost = isinstance(error, LogLost) and self._has_ended()
            if is_lost or (error.code == 400 and (previous or self._follower.over)):
                await self._say_gap(error.message)
                self._complete = True
                return True
            await self._follower.wait(self._backoff.next())
            await self._follower.renew(self._place)
            return True
        except OSError:
            await self._follower.clock.sleep(self._backoff.next())
            await self._follower.renew(self._place)
            return True
        self._complete, self._in_order, self._fresh = is_last, True, False
        if not is_last and not self._has_ended():
            await self._follower.wait(_STALE_SECONDS)
            if not self._has_ended():
                # The next request must be for the same run.
                await self._follower.renew(self._place)
        return True

    def _has_ended(self) -> bool:
        pod = self._follower.find_pod(self._place)
        if pod is None:
            return False
        state = self._get_state(pod)
        return not is_running(state) or count_restarts(state) > self._position.restart

    async def _read_kept(self) -> None:
        """Reads the rest of the log of a deleted Pod, if it was kept."""
        found = False
        if not self._complete:
            await self._follower.await_kept(self._place)
        for log in self._follower.list_kept(self._place, self._container):
            if log.restart < self._position.restart:
                continue
            found = True
            if log.restart > self._position.restart:
                self._position.enter(log.restart)
            batch = BatchBuilder()
            for line in read_kept(self._follower.kept, log, self._wanted, self._position):
                if full := batch.add(self._build(line)):
                    await self._put(full)
            await self._put(batch.take())
        if not found and not self._complete and not self._position.time and self._fresh:
            await self._say_gap("the Pod went before its log could be read")

    def _build(self, line: Stamped) -> Line:
        time, raw = line
        place, restart = self._place, self._position.restart
        return Line(place.round, place.job, place.index, self._container, time, raw, restart, place.id)

    async def _put(self, lines: Sequence[Entry]) -> None:
        if lines:
            await self._follower.mark(self._attempt)
            await self._follower.queue.put(lines)

    async def _say_gap(self, why: str) -> None:
        await self._follower.mark(self._attempt)
        text = f"something is missing of {self._place.job} {self._place.index}: {why}"
        await self._follower.queue.put([LogMark(GAP, self._place.round, text)])
