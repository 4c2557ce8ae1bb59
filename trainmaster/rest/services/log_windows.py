"""Every part of a job's logs: windows, a search and everything as one file. For jobs that exist, and for records.

On a home the files of Pods and of the archive are read where they are. Elsewhere the end of each Pod's log is fetched
from the API server for each request. All rights are those of the caller, who also has to be allowed to read the logs of
Pods.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from trainmaster.api.formats.patterns import compile_for_lines
from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, LogOptions
from trainmaster.history.kept_logs import measure_kept, open_kept
from trainmaster.history.record import JobRecord
from trainmaster.jobs.logs.beginning import RunSource, list_pod_sources
from trainmaster.jobs.logs.contract import JobLogOptions, Kept
from trainmaster.jobs.logs.lines import LineSplitter, Position, Stamped, sort_key
from trainmaster.jobs.logs.windows.merged import LineAddress, LogPart, MergedLog, PlacedLine, RunLog, Wish
from trainmaster.jobs.logs.windows.searching import Hit, Hits, search
from trainmaster.jobs.logs.windows.stored import LogBytes, MemoryBytes
from trainmaster.jobs.lookups import read_parts
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.rest.callers import Caller
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.services.live.log_cursor import LogCursor
from trainmaster.shim.log_sink import STDOUT, split_line

T = TypeVar("T")
MOST_LOGS = 2048
"""Of one attempt: so many files are open at once."""
_FETCHED_BYTES = 8 << 20
"""Of all logs together that are fetched from an API server."""
_FETCHED_LINES = 100_000
_SEARCHES = 2
_SEARCH_SECONDS = 5.0
_LINES_AT_ONCE = 2000

OpenPodLog = Callable[[str, str, int], LogBytes]
"""(uid of a Pod, container, restart) -> its log. Raises FileNotFoundError. Blocks."""


@dataclass(frozen=True, slots=True)
class Sought:
    text: str
    is_pattern: bool


class LogWindows:
    """`open_pod_log`: None if this process does not have the files of Pods."""

    def __init__(self, clock: Clock, open_pod_log: OpenPodLog | None = None) -> None:
        self._clock = clock
        self._open_pod_log = open_pod_log
        self._searches = asyncio.Semaphore(_SEARCHES)

    async def open_job(self, caller: Caller, job: TrainingJob, wanted: JobLogOptions, kept: Kept) -> MergedLog:
        parts = await read_parts(caller.client, job)
        sources = [(pod["metadata"]["uid"], source) for pod in parts.pods for source in list_pod_sources(pod, wanted)]
        runs, missing = list[RunLog](), [source for _, source in sources]
        if self._open_pod_log is not None and sources:
            await _check_right(caller.client, job.namespace, sources[0][1])
            runs, missing = await asyncio.to_thread(_list_pod_runs, self._open_pod_log, sources)
        share = _FETCHED_BYTES // max(1, len(missing))
        runs += [await _fetch(caller.client, job.namespace, source, share) for source in missing]
        alive = {source.place.id for _, source in sources}
        earlier = await asyncio.to_thread(_list_kept_runs, kept, job.uid, parts.uids, wanted)
        return _merge([*runs, *(run for run in earlier if run.place.id not in alive)])

    async def open_record(self, record: JobRecord, wanted: JobLogOptions, kept: Kept) -> MergedLog:
        return _merge(await asyncio.to_thread(_list_kept_runs, kept, record.uid, (), wanted))

    @property
    def has_files(self) -> bool:
        """Whether logs of Pods need not be fetched."""
        return self._open_pod_log is not None

    async def locate_tail(self, log: MergedLog, uid: str, most: int) -> LogCursor:
        """For a stream: the place so many lines before the end."""
        attempt, passed = await _work(log.locate_tail, most)
        cursor = LogCursor(uid, attempt if passed else None)
        for run, time, count in sorted(passed, key=lambda one: one[0].restart):
            # Of several runs of a container the last one counts.
            cursor.known[run.place.id, run.container] = Position(run.restart, time, count)
        return cursor

    async def read(self, log: MergedLog, wish: Wish) -> LogPart:
        return await _work(log.read, wish)

    async def search(self, log: MergedLog, sought: Sought) -> Hits:
        """Raises Problem 422 for an invalid pattern."""
        pattern, fault = compile_for_lines(sought.text, is_pattern=sought.is_pattern)
        if pattern is None:
            hint = "patterns are those of RE2, which has neither back references nor look-around"
            raise invalid([FieldProblem(f"is no pattern: {fault}", parameter="q")], hint=hint)
        async with self._searches:
            end = self._clock.monotonic() + _SEARCH_SECONDS
            return await _work(search, log, pattern, lambda: self._clock.monotonic() > end)

    async def print_all(self, log: MergedLog) -> AsyncIterator[bytes]:
        lines = log.read_all()
        while text := await _work(_print_some, lines):
            yield text


def build_line(line: PlacedLine) -> Object:
    stored = line.stored
    return build_address(line.address, line.run.container) | {"text": stored.text.decode(errors="replace")}


def build_hit(hit: Hit) -> Object:
    return build_address(hit.address, hit.container) | {"text": hit.excerpt.decode(errors="replace")}


def build_address(address: LineAddress, container: str) -> Object:
    head = {"attempt": address.attempt, "job": address.job, "worker": address.rank, "container": container}
    return {**head, "time": address.time, "same": address.number}


async def _work(call: Callable[..., T], *values: object) -> T:
    """In a thread, because everything about logs blocks."""
    try:
        return await asyncio.to_thread(call, *values)
    except FileNotFoundError:
        raise Problem(409, "log-removed", "a part of the log was removed meanwhile", retry_after=1) from None


def _merge(runs: Sequence[RunLog]) -> MergedLog:
    counts = Counter(run.place.round for run in runs)
    if counts and max(counts.values()) > MOST_LOGS:
        text = f"{max(counts.values())} logs of one attempt are too many to read together"
        raise invalid([FieldProblem(text, parameter="worker")], hint="name one of the workers")
    return MergedLog(runs)


async def _check_right(client: Client, namespace: str, source: RunSource) -> None:
    """Raises StatusError 403 if the caller may not read logs of Pods there."""
    options = LogOptions(source.container, previous=source.previous, tail_lines=0)
    try:
        async for _ in client.logs(source.place.pod, namespace, options):
            break
    except StatusError as error:
        # All other errors are about this Pod, which may have gone.
        if error.code in (401, 403):
            raise


def _list_pod_runs(
    open_log: OpenPodLog, sources: Sequence[tuple[str, RunSource]]
) -> tuple[list[RunLog], list[RunSource]]:
    """Those that have files, and the others."""
    runs, missing = list[RunLog](), list[RunSource]()
    for uid, source in sources:
        open_one = partial(open_log, uid, source.container, source.restart)
        try:
            log = open_one()
        except FileNotFoundError:
            missing.append(source)
            continue
        runs.append(RunLog(source.place, source.container, source.restart, log.size, open_one))
        log.close()
    return runs, missing


def _list_kept_runs(kept: Kept, uid: str, jobsets: Collection[str], wanted: JobLogOptions) -> list[RunLog]:
    return [
        RunLog(log.place, log.container, log.restart, measure_kept(log), partial(open_kept, log))
        for log in kept.list_logs(uid, jobsets)
        if wanted.fits(log.place, log.container)
    ]


async def _fetch(client: Client, namespace: str, source: RunSource, most_bytes: int) -> RunLog:
    """The end of a log, as entries. A log that the server does not have is empty."""
    options = LogOptions(source.container, previous=source.previous, tail_lines=_FETCHED_LINES, timestamps=True)
    entries, size, splitter = deque[bytes](), 0, LineSplitter()
    try:
        async for piece in client.logs(source.place.pod, namespace, options):
            for entry in _encode(splitter.feed(piece)):
                entries.append(entry)
                size += len(entry)
            while size > most_bytes and len(entries) > 1:
                size -= len(entries.popleft())
    except StatusError as error:
        if error.code not in (400, 404):
            raise
    entries.extend(_encode(splitter.finish()))
    log = MemoryBytes(b"".join(entries))
    return RunLog(source.place, source.container, source.restart, log.size, lambda: log)


def _encode(lines: Sequence[Stamped]) -> Iterator[bytes]:
    for time, text in lines:
        # Without a time it is the rest of a line, or what a kubelet says in place of a log.
        if time:
            stamp = f"{sort_key(time)} ".encode() + STDOUT
            yield split_line(text, stamp, stamp + b" F ")


def _print_some(lines: Iterator[PlacedLine]) -> bytes:
    return b"".join(map(_print, islice(lines, _LINES_AT_ONCE)))


def _print(line: PlacedLine) -> bytes:
    place = line.run.place
    attempt = f"{place.round} " if place.round else ""
    return f"{line.stored.time} {attempt}{place.job}/{place.index} ".encode() + line.stored.text + b"\n"
