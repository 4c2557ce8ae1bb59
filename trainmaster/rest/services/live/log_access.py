"""Opens the log of a job, or of its record, as a stream that is shared with others."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from trainmaster.api.status import NotFound
from trainmaster.client.contract import Client
from trainmaster.history.record import JobRecord
from trainmaster.jobs.logs.batches import gather_batches
from trainmaster.jobs.logs.contract import JobLogOptions, Kept
from trainmaster.jobs.logs.stream import watch_batches, watch_kept_lines, watch_lines
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.rest.callers import Caller
from trainmaster.rest.services.job_views import read_state
from trainmaster.rest.services.live.log_cursor import Batch, Item, LogCursor, StreamEnd
from trainmaster.rest.services.live.log_pieces import LogPiece
from trainmaster.rest.services.live.shared_log import LogKey, OpenLog, follow_log
from trainmaster.rest.services.live.sources import Sources, build_share_key

MOST_WORKERS = 512
"""The maximum number of workers that can be merged: the id has an entry for each, and clients send it in a header."""


def follow_job_log(
    sources: Sources,
    caller: Caller,
    clock: Clock,
    job: TrainingJob,
    wanted: JobLogOptions,
    kept: Kept,
    cursor: LogCursor,
) -> AsyncGenerator[Sequence[LogPiece], None]:
    cursor.uid = job.uid
    open_log = partial(_open_job, caller.client, clock, job, wanted, kept)
    return follow_log(sources, LogKey(build_share_key(caller), job.uid, wanted), open_log, cursor)


def follow_record_log(
    sources: Sources, caller: Caller, record: JobRecord, wanted: JobLogOptions, kept: Kept, cursor: LogCursor
) -> AsyncGenerator[Sequence[LogPiece], None]:
    cursor.uid = record.uid
    open_log: OpenLog = partial(_open_record, record, wanted, kept)
    key = LogKey(build_share_key(caller), record.uid, (wanted, "record"))
    return follow_log(sources, key, open_log, cursor)


async def _open_job(
    client: Client, clock: Clock, job: TrainingJob, wanted: JobLogOptions, kept: Kept, cursor: LogCursor
) -> AsyncGenerator[Batch, None]:
    batches = watch_batches(client, clock, job.namespace, job.reference, wanted, kept, cursor.to_positions())
    async with aclosing(batches):
        async for batch in batches:
            yield batch
    yield [StreamEnd(await _find_end(client, job))]


async def _find_end(client: Client, job: TrainingJob) -> str:
    try:
        last = type(job)(await client.get(job.gvr, job.name, job.namespace))
    except NotFound:
        return "Deleted"
    return read_state(last).word if last.uid == job.uid else "Deleted"


async def _open_record(
    record: JobRecord, wanted: JobLogOptions, kept: Kept, cursor: LogCursor
) -> AsyncGenerator[Batch, None]:
    batches = gather_batches(watch_kept_lines(record.uid, wanted, kept, cursor.to_positions()))
    async with aclosing(batches):
        async for batch in batches:
            yield batch
    yield [StreamEnd(record.state)]


async def locate_tail(
    client: Client, clock: Clock, found: TrainingJob | JobRecord, wanted: JobLogOptions, kept: Kept, most: int
) -> LogCursor:
    """The position so many lines before the end of what was printed so far."""
    # One line more of each rank: the position is known from the lines before the first one.
    asked = replace(wanted, follow=False, tail=most + 1)
    if isinstance(found, JobRecord):
        entries = watch_kept_lines(found.uid, asked, kept)
    else:
        entries = watch_lines(client, clock, found.namespace, found.reference, asked, kept)
    cursor, last = LogCursor(found.uid), deque[Item]()
    async with aclosing(entries):
        async for entry in entries:
            last.append(entry)
            if len(last) > most:
                cursor.note(last.popleft())
    return cursor
