"""The first part of `jobs.logs.stream`: the existing logs of a job, attempt by attempt, merged by time."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import NamedTuple

from trainmaster.api.meta import Object
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, LogOptions
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.logs.contract import (
    ATTEMPT,
    GAP,
    Entry,
    JobLogOptions,
    Kept,
    KeptLog,
    Line,
    LogMark,
    NothingKept,
    Positions,
    await_rounds,
)
from trainmaster.jobs.logs.lines import Position, Stamped, read_last, read_lines, sort_key
from trainmaster.jobs.logs.places import list_gone
from trainmaster.jobs.lookups import read_parts
from trainmaster.jobs.models.pods import Pod, count_restarts, has_started, is_between_runs, read_last_terminated
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock

_TURN = 100
"""The number of lines after which other tasks get a turn."""


class RunSource(NamedTuple):
    """One run of a container, read from its Pod or from a kept log."""

    place: PodPlace
    container: str
    restart: int
    previous: bool = False
    kept: KeptLog | None = None


async def read_beginning(
    client: Client, clock: Clock, job: TrainingJob, wanted: JobLogOptions, kept: Kept, positions: Positions
) -> AsyncGenerator[Entry, None]:
    parts = await read_parts(client, job)
    pods = parts.pods
    if not wanted.last_attempt:
        newest = max((place.round for pod in pods if (place := find_place(pod)) is not None), default=0)
        earlier = [attempt for attempt in range(newest) if wanted.attempt in (None, attempt)]
        await await_rounds(clock, kept, job.uid, parts.uids, earlier)
    sources = [source for pod in pods for source in list_pod_sources(pod, wanted)]
    alive = {place.id for pod in pods if (place := find_place(pod)) is not None}
    logs = kept.list_logs(job.uid, parts.uids)
    for log in logs:
        if log.place.id not in alive and wanted.fits(log.place, log.container):
            sources.append(RunSource(log.place, log.container, log.restart, kept=log))
    gone: Mapping[int, Sequence[str]] = {}
    if isinstance(kept, NothingKept) and parts.jobset is not None:
        places = [place for pod in pods if (place := find_place(pod)) is not None]
        only = parts.jobset.attempt if wanted.last_attempt else None
        missing = list_gone(parts.jobset, places, wanted, has_ended=job.is_finished)
        gone = {number: texts for number, texts in missing.items() if only in (None, number)}
    entries = read_attempts(client, job.namespace, sources, wanted, kept, positions, gone)
    async with aclosing(entries):
        async for entry in entries:
            yield entry


async def read_attempts(
    client: Client | None,
    namespace: str,
    sources: Sequence[RunSource],
    wanted: JobLogOptions,
    kept: Kept,
    positions: Positions,
    gone: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> AsyncGenerator[Entry, None]:
    """`gone`: by attempt, a sentence about each log that no longer exists."""
    numbers = {*(source.place.round for source in sources), *gone}
    attempts = sorted(number for number in numbers if number >= positions.floor)
    for attempt in attempts[-1:] if wanted.last_attempt else attempts:
        before, positions.attempt = positions.attempt, attempt
        if (len(attempts) > 1 or before is not None) and before != attempt:
            yield LogMark(ATTEMPT, attempt, f"attempt {attempt}")
        for text in gone.get(attempt, ()):
            yield LogMark(GAP, attempt, text)
        chosen = [source for source in sources if source.place.round == attempt]
        merged = _merge_sources(client, namespace, chosen, wanted, kept, positions)
        async with aclosing(merged):
            async for entry in merged:
                yield entry


def list_pod_sources(pod: Object, wanted: JobLogOptions) -> Iterator[RunSource]:
    """The runs of its containers whose logs a server has: the newest one, and the one before."""
    place = find_place(pod)
    if place is None:
        return
    for container, state in Pod(pod).list_states():
        if not wanted.fits(place, container) or not has_started(state):
            continue
        count = count_restarts(state)
        if count and not is_between_runs(state) and read_last_terminated(state):
            yield RunSource(place, container, count - 1, previous=True)
        yield RunSource(place, container, count)


async def _read_source(
    client: Client | None, namespace: str, source: RunSource, wanted: JobLogOptions, kept: Kept, positions: Positions
) -> AsyncGenerator[Entry, None]:
    place = source.place
    position = positions.get(place, source.container)
    if position.restart > source.restart:
        # Already returned by another stream.
        return
    if position.restart != source.restart:
        position.enter(source.restart)

    def build(line: Stamped) -> Line:
        time, raw = line
        return Line(place.round, place.job, place.index, source.container, time, raw, source.restart, place.id)

    if source.kept is not None:
        for line in read_kept(kept, source.kept, wanted, position):
            yield build(line)
        positions.finish(place, source.container, source.restart)
        return
    assert client is not None, "only what was kept can be read without a server"
    options = LogOptions(
        source.container,
        previous=source.previous,
        since_time=wanted.since_time,
        tail_lines=wanted.tail,
        uid=place.uid,
    )
    batches = read_lines(client, namespace, place.pod, options, position)
    try:
        async with aclosing(batches):
            async for batch in batches:
                for line in batch:
                    yield build(position.advance(line))
    except NotFound:
        # The Pod was deleted in the meantime; its log may have been kept.
        for log in kept.list_logs("", {place.jobset}):
            if (log.place.id, log.container, log.restart) == (place.id, source.container, source.restart):
                for line in read_kept(kept, log, wanted, position):
                    yield build(line)
    except StatusError as error:
        if error.code != 400:
            raise
        yield LogMark(GAP, place.round, f"no log of {place.job} {place.index}: {error.message}")


def read_kept(kept: Kept, log: KeptLog, wanted: JobLogOptions, position: Position) -> Iterator[Stamped]:
    """The requested lines of a kept log after the position."""
    lines = kept.read(log)
    if wanted.since_time:
        since = sort_key(wanted.since_time)
        lines = (line for line in lines if sort_key(line[0]) >= since)
    return read_last(lines, wanted.tail, position)


async def read_leftovers(
    logs: Sequence[KeptLog], wanted: JobLogOptions, kept: Kept, positions: Positions
) -> AsyncGenerator[Entry, None]:
    """Kept logs of Pods that were never seen by a watch, merged."""
    sources = [RunSource(log.place, log.container, log.restart, kept=log) for log in logs]
    merged = _merge_sources(None, "", sources, wanted, kept, positions)
    async with aclosing(merged):
        async for entry in merged:
            yield entry


async def _merge_sources(
    client: Client | None,
    namespace: str,
    sources: Sequence[RunSource],
    wanted: JobLogOptions,
    kept: Kept,
    positions: Positions,
) -> AsyncGenerator[Entry, None]:
    """The requested lines sorted by time. A rank has several sources if a container was restarted, if its Pod was
    replaced, or if the job was suspended and resumed; `tail` counts its lines in all of them."""
    ranks = {source.place.id: source.place.seat for source in sources}
    merged = _merge_lines(client, namespace, sources, wanted, kept, positions)
    async with aclosing(merged):
        if wanted.tail is None or len(set(ranks.values())) == len(sources):
            async for entry in merged:
                yield entry
            return
        entries: list[Entry] = []
        trouble: StatusError | OSError | None = None
        try:
            async for entry in merged:
                entries.append(entry)
        except (StatusError, OSError) as error:
            # Lines that were read already count as returned.
            trouble = error
    for entry in _keep_last(entries, wanted.tail, ranks):
        yield entry
    if trouble is not None:
        raise trouble


def _keep_last(entries: list[Entry], tail: int, ranks: Mapping[str, tuple[str, int, int]]) -> list[Entry]:
    """The last lines of each rank, in order. `ranks`: by Pod."""
    counts: Counter[tuple[str, int, int]] = Counter()
    chosen: list[Entry] = []
    for entry in reversed(entries):
        if isinstance(entry, Line):
            counts[ranks[entry.pod]] += 1
            if counts[ranks[entry.pod]] > tail:
                continue
        chosen.append(entry)
    return chosen[::-1]


async def _merge_lines(
    client: Client | None,
    namespace: str,
    sources: Sequence[RunSource],
    wanted: JobLogOptions,
    kept: Kept,
    positions: Positions,
) -> AsyncGenerator[Entry, None]:
    """All lines sorted by time; lines of one container stay in order, whatever their times."""
    readers = [(source, _read_source(client, namespace, source, wanted, kept, positions)) for source in sources]
    heap: list[tuple[str, int, Entry]] = []
    # The runs of a container are read one after the other.
    chains: dict[tuple[str, str], deque[AsyncGenerator[Entry, None]]] = {}
    for source, reader in sorted(readers, key=lambda entry: entry[0].restart):
        chains.setdefault((source.place.id, source.container), deque()).append(reader)
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
                # Reading kept logs never waits, so give other tasks a turn.
                await asyncio.sleep(0)
            following = await _pull(order[number])
            if following is not None:
                heappush(heap, (_get_key(following, key), number, following))
    except (StatusError, OSError):
        # Lines that were read already count as returned, so return them now.
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
