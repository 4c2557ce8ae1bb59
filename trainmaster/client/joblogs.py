"""What all processes of one TrainJob print, as one stream: merged over ranks, across restarts, with marks between.

Used by `trainmaster logs`, `trainmaster run` and whoever shows a job live:

    async for entry in watch_lines(client, clock, "default", "my-job", Wanted(follow=True), kept):
        match entry:
            case Line(): print(entry.attempt, entry.rank, entry.text)
            case Mark(): print("---", entry.text)

First comes what there is, attempt by attempt, the ranks merged by time. With `follow` the stream then waits for the
start, goes on while the job runs, through restarts of containers, of the gang and of the server, and ends when the job
is over and everything was read. Lines come from Pods while they live; after that from `kept` (the history of an
embedded server); on a cluster there is none, and what its Pods took with them is marked as a gap.

Invariant: no line twice, none left out that somebody still has; a later attempt never before an earlier one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Protocol, TypeAlias

from trainmaster.api.labels import JOBSET_NAME
from trainmaster.api.meta import Object
from trainmaster.api.places import PodPlace, find_place
from trainmaster.api.resources import JOB_SETS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, ListOptions, LogOptions
from trainmaster.client.podlogs import Position, Stamped, read_lines, skip_known, sort_key
from trainmaster.kit.clock import Clock

ATTEMPT, GAP, WAITING, TROUBLE = "attempt", "gap", "waiting", "trouble"
_TURN = 100
"""Lines."""
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5)
"""Seconds. A node keeps a Pod's logs just after its object has gone; the archive learns of JobSets a second late."""


@dataclass(frozen=True, slots=True)
class Line:
    attempt: int
    """Of the gang, from 0."""
    job: str
    """The replicated job: `node`, `launcher`, `dataset-initializer`."""
    rank: int
    """The node within that job, from 0."""
    container: str
    time: str
    """RFC 3339 with nanoseconds; "" when nobody knows."""
    raw: bytes
    """As it was printed, without the line break."""
    restart: int = 0
    """Of the container within its Pod."""
    pod: str = ""

    @property
    def text(self) -> str:
        return self.raw.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class LogMark:
    """Something that no process printed."""

    kind: str
    """`attempt`: another attempt begins; `gap`: something is missing; `waiting`: why nothing runs yet; `trouble`: the
    server does not answer, and is asked again."""
    attempt: int
    text: str


Entry: TypeAlias = Line | LogMark


@dataclass(frozen=True, slots=True)
class JobLogOptions:
    follow: bool = False
    attempt: int | None = None
    """Only this one; None is all."""
    last_attempt: bool = False
    """Nothing that is older than the newest attempt at the beginning."""
    rank: int | None = None
    job: str = ""
    container: str = ""
    since_time: str = ""
    tail: int | None = None
    """So many lines of each container at the beginning; None is all."""

    def fits(self, place: PodPlace, container: str = "") -> bool:
        return (
            self.attempt in (None, place.attempt)
            and self.rank in (None, place.index)
            and self.job in ("", place.job)
            and (not container or self.container in ("", container))
        )


class KeptLog(Protocol):
    """The output of one run of one container of a Pod that may be gone."""

    @property
    def place(self) -> PodPlace: ...

    @property
    def container(self) -> str: ...

    @property
    def restart(self) -> int: ...


class Kept(Protocol):
    """Logs that outlived their Pods: `trainmaster.history.kept`."""

    def list_logs(self, trainjob: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        """Of the TrainJob with that uid; `jobsets` are uids that the caller knows besides."""
        ...

    def read(self, log: KeptLog) -> Iterator[Stamped]: ...


class NothingKept:
    """On a cluster."""

    def list_logs(self, trainjob: str, jobsets: Collection[str]) -> Sequence[KeptLog]:
        return ()

    def read(self, log: KeptLog) -> Iterator[Stamped]:
        return iter(())


async def await_kept(
    clock: Clock, kept: Kept, trainjob: str, jobsets: Collection[str], attempts: Collection[int]
) -> None:
    """Returns when something was kept of each of these attempts, or soon after: some have left nothing."""
    if isinstance(kept, NothingKept):
        return
    for pause in _PAUSES if attempts else ():
        if {log.place.attempt for log in kept.list_logs(trainjob, jobsets)}.issuperset(attempts):
            return
        await clock.sleep(pause)


class Positions:
    """How far every log was read, by Pod and container. Shared by the beginning and the following."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Position] = {}
        self._done: set[tuple[str, str, int]] = set()
        self.attempt: int | None = None
        """The newest that a line or mark was handed out of."""
        self.floor = 0
        """Attempts before it were handed out whole."""

    @classmethod
    def resume(cls, attempt: int, known: Mapping[tuple[str, str], Position]) -> Positions:
        """Where another stream ended: in that attempt, with so much of each (Pod, container) handed out."""
        positions = cls()
        positions.attempt = positions.floor = attempt
        # Copies: readers move them on before anything is handed out.
        positions._known = {key: replace(position) for key, position in known.items()}
        return positions

    def find(self, place: PodPlace, container: str) -> Position | None:
        return self._known.get((place.pod, container))

    def get(self, place: PodPlace, container: str) -> Position:
        return self._known.setdefault((place.pod, container), Position(restart=-1))

    def finish(self, place: PodPlace, container: str, restart: int) -> None:
        self._done.add((place.pod, container, restart))

    def is_finished(self, place: PodPlace, container: str, restart: int) -> bool:
        """Whether that run was read to its end, or a later one was begun."""
        position = self._known.get((place.pod, container))
        return (place.pod, container, restart) in self._done or (position is not None and position.restart > restart)


@dataclass(frozen=True, slots=True)
class _Source:
    """One run of one container, from its Pod or from what was kept."""

    place: PodPlace
    container: str
    restart: int
    previous: bool = False
    kept: KeptLog | None = None


async def watch_lines(
    client: Client,
    clock: Clock,
    namespace: str,
    name: str,
    wanted: JobLogOptions = JobLogOptions(),  # noqa: B008 - frozen
    kept: Kept | None = None,
    resume: Positions | None = None,
) -> AsyncGenerator[Entry, None]:
    """NotFound when there is no such TrainJob. `resume`: what another stream has handed out does not come again."""
    trainjob = await client.get(TRAIN_JOBS, name, namespace)
    kept = kept or NothingKept()
    positions = resume or Positions()
    beginning = _read_beginning(client, clock, trainjob, wanted, kept, positions)
    try:
        async with aclosing(beginning):
            async for entry in beginning:
                yield entry
    except (StatusError, OSError) as error:
        # What is left comes with the following, from where the reading stopped.
        if not wanted.follow or not is_passing(error):
            raise
    if not wanted.follow:
        return
    # Loaded here: reading what there is needs no tasks and no watches.
    from trainmaster.client.joblogs_follow import follow_lines  # noqa: PLC0415

    following = follow_lines(client, clock, trainjob, wanted, kept, positions)
    async with aclosing(following):
        async for entry in following:
            yield entry


async def list_pods(client: Client, trainjob: Object) -> tuple[list[Object], set[str]]:
    """The Pods of this very TrainJob, and the uids of its JobSets that exist."""
    meta = trainjob["metadata"]
    try:
        jobset = await client.get(JOB_SETS, meta["name"], meta["namespace"])
    except NotFound:
        return [], set()
    if not is_owned(jobset, meta["uid"]):
        return [], set()
    uid = jobset["metadata"]["uid"]
    page = await client.list(PODS, meta["namespace"], ListOptions(label_selector=f"{JOBSET_NAME}={meta['name']}"))
    pods = [pod for pod in page.items if (place := find_place(pod)) is not None and place.jobset == uid]
    return pods, {uid}


def is_passing(error: Exception) -> bool:
    """Whether asking again may help."""
    return not isinstance(error, StatusError) or error.code >= 500 or error.code == 429


def is_owned(obj: Object, uid: str) -> bool:
    return any(reference.get("uid") == uid for reference in obj["metadata"].get("ownerReferences") or ())


def list_containers(pod: Object) -> Iterator[tuple[str, Object]]:
    """(name, status) of all containers, init containers first; the status is {} before the Pod has one."""
    spec, status = pod["spec"], pod.get("status") or {}
    for names, states in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        known = {entry["name"]: entry for entry in status.get(states) or ()}
        for container in spec.get(names) or ():
            yield container["name"], known.get(container["name"], {})


def has_started(state: Object) -> bool:
    """Whether the server has a log of the current run, or of the one before it."""
    current = state.get("state") or {}
    return "running" in current or "terminated" in current or bool((state.get("lastState") or {}).get("terminated"))


def is_between_runs(state: Object) -> bool:
    """It waits after a crash: its number is that of the run that has ended."""
    return "waiting" in (state.get("state") or {}) and bool((state.get("lastState") or {}).get("terminated"))


async def _read_beginning(
    client: Client, clock: Clock, trainjob: Object, wanted: JobLogOptions, kept: Kept, positions: Positions
) -> AsyncGenerator[Entry, None]:
    pods, jobsets = await list_pods(client, trainjob)
    if not wanted.last_attempt:
        newest = max((place.attempt for pod in pods if (place := find_place(pod)) is not None), default=0)
        earlier = [attempt for attempt in range(newest) if wanted.attempt in (None, attempt)]
        await await_kept(clock, kept, trainjob["metadata"]["uid"], jobsets, earlier)
    sources = [source for pod in pods for source in _list_pod_sources(pod, wanted)]
    alive = {place.pod for pod in pods if (place := find_place(pod)) is not None}
    logs = kept.list_logs(trainjob["metadata"]["uid"], jobsets)
    for log in logs:
        if log.place.pod not in alive and wanted.fits(log.place, log.container):
            sources.append(_Source(log.place, log.container, log.restart, kept=log))
    entries = _read_attempts(client, trainjob["metadata"]["namespace"], sources, wanted, kept, positions)
    async with aclosing(entries):
        async for entry in entries:
            yield entry


async def watch_kept_lines(
    uid: str, wanted: JobLogOptions, kept: Kept, resume: Positions | None = None
) -> AsyncGenerator[Entry, None]:
    """The same of a TrainJob that is gone: all from what was kept, without a server."""
    sources = [
        _Source(log.place, log.container, log.restart, kept=log)
        for log in kept.list_logs(uid, ())
        if wanted.fits(log.place, log.container)
    ]
    entries = _read_attempts(None, "", sources, wanted, kept, resume or Positions())
    async with aclosing(entries):
        async for entry in entries:
            yield entry


async def _read_attempts(
    client: Client | None,
    namespace: str,
    sources: Sequence[_Source],
    wanted: JobLogOptions,
    kept: Kept,
    positions: Positions,
) -> AsyncGenerator[Entry, None]:
    attempts = sorted({source.place.attempt for source in sources if source.place.attempt >= positions.floor})
    for attempt in attempts[-1:] if wanted.last_attempt else attempts:
        before, positions.attempt = positions.attempt, attempt
        if (len(attempts) > 1 or before is not None) and before != attempt:
            yield LogMark(ATTEMPT, attempt, f"attempt {attempt}")
        chosen = [source for source in sources if source.place.attempt == attempt]
        merged = _merge_sources(client, namespace, chosen, wanted, kept, positions)
        async with aclosing(merged):
            async for entry in merged:
                yield entry


def _list_pod_sources(pod: Object, wanted: JobLogOptions) -> Iterator[_Source]:
    place = find_place(pod)
    if place is None:
        return
    for container, state in list_containers(pod):
        if not wanted.fits(place, container) or not has_started(state):
            continue
        count = int(state.get("restartCount") or 0)
        if count and not is_between_runs(state) and (state.get("lastState") or {}).get("terminated"):
            yield _Source(place, container, count - 1, previous=True)
        yield _Source(place, container, count)


async def _read_source(
    client: Client | None, namespace: str, source: _Source, wanted: JobLogOptions, kept: Kept, positions: Positions
) -> AsyncGenerator[Entry, None]:
    place = source.place
    position = positions.get(place, source.container)
    if position.restart > source.restart:
        # Another stream has handed it out.
        return
    if position.restart != source.restart:
        position.enter(source.restart)

    def build(line: Stamped) -> Line:
        time, raw = line
        return Line(place.attempt, place.job, place.index, source.container, time, raw, source.restart, place.pod)

    if source.kept is not None:
        for line in read_kept(kept, source.kept, wanted, position):
            yield build(line)
        positions.finish(place, source.container, source.restart)
        return
    assert client is not None, "only what was kept can be read without a server"
    options = LogOptions(
        source.container, previous=source.previous, since_time=wanted.since_time, tail_lines=wanted.tail
    )
    lines = read_lines(client, namespace, place.pod, options, position)
    try:
        async with aclosing(lines):
            async for line in lines:
                yield build(line)
    except NotFound:
        # It went meanwhile; what it left may have been kept.
        for log in kept.list_logs("", {place.jobset}):
            if (log.place.pod, log.container, log.restart) == (place.pod, source.container, source.restart):
                for line in read_kept(kept, log, wanted, position):
                    yield build(line)
    except StatusError as error:
        if error.code != 400:
            raise
        yield LogMark(GAP, place.attempt, f"no log of {place.job} {place.index}: {error.message}")


def read_kept(kept: Kept, log: KeptLog, wanted: JobLogOptions, position: Position) -> Iterator[Stamped]:
    """What is wanted of a kept log, after the position."""
    lines = skip_known(kept.read(log), position)
    if wanted.since_time:
        since = sort_key(wanted.since_time)
        lines = (line for line in lines if sort_key(line[0]) >= since)
    return iter(deque(lines, wanted.tail)) if wanted.tail is not None else lines


async def read_leftovers(
    logs: Sequence[KeptLog], wanted: JobLogOptions, kept: Kept, positions: Positions
) -> AsyncGenerator[Entry, None]:
    """Kept logs of Pods that nobody saw alive, merged."""
    sources = [_Source(log.place, log.container, log.restart, kept=log) for log in logs]
    merged = _merge_sources(None, "", sources, wanted, kept, positions)
    async with aclosing(merged):
        async for entry in merged:
            yield entry


async def _merge_sources(
    client: Client | None,
    namespace: str,
    sources: Sequence[_Source],
    wanted: JobLogOptions,
    kept: Kept,
    positions: Positions,
) -> AsyncGenerator[Entry, None]:
    """All lines by time; lines of one container stay in their order, whatever their times say."""
    readers = [(source, _read_source(client, namespace, source, wanted, kept, positions)) for source in sources]
    heap: list[tuple[str, int, Entry]] = []
    # The runs of one container come one after the other.
    chains: dict[tuple[str, str], deque[AsyncGenerator[Entry, None]]] = {}
    for source, reader in sorted(readers, key=lambda entry: entry[0].restart):
        chains.setdefault((source.place.pod, source.container), deque()).append(reader)
    order = list(chains.values())
    count = 0
    try:
        for number, chain in enumerate(order):
            entry = await _pull(chain)
            if entry is not None:
                heap.append((_get_key(entry, ""), number, entry))
        heapify(heap)
        while heap:
            key, number, entry = heappop(heap)
            yield entry
            count += 1
            if count % _TURN == 0:
                # Kept logs are files and never wait; others must get their turn.
                await asyncio.sleep(0)
            following = await _pull(order[number])
            if following is not None:
                heappush(heap, (_get_key(following, key), number, following))
    except (StatusError, OSError):
        # What was read of the others counts as handed out.
        for _, _, entry in sorted(heap, key=lambda item: item[:2]):
            yield entry
        raise
    finally:
        for _, reader in readers:
            await reader.aclose()


def _get_key(entry: Entry, before: str) -> str:
    return max(before, sort_key(entry.time)) if isinstance(entry, Line) else before


async def _pull(chain: deque[AsyncGenerator[Entry, None]]) -> Entry | None:
    while chain:
        entry = await anext(chain[0], None)
        if entry is not None:
            return entry
        chain.popleft()
    return None
