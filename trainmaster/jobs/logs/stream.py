"""The output of all processes of a training job as one stream, merged over ranks and across restarts, with marks.

Used by `trainmaster logs`, `trainmaster run` and the REST API:

    async for entry in watch_lines(client, clock, "default", "my-job", JobLogOptions(follow=True), kept):
        match entry:
            case Line(): print(entry.attempt, entry.rank, entry.text)
            case LogMark(): print("---", entry.text)

First come the existing logs, attempt by attempt, with the ranks merged by time. With `follow` the stream then waits for
the start, continues while the job runs, across restarts of containers, of the gang and of the server, and ends when the
job has ended and everything was read. Lines come from Pods while they exist, and then from `kept` (the history of an
embedded server). On a cluster nothing is kept, and logs of deleted Pods are marked as a gap.

Invariant: no line is returned twice, and none that is still available is left out; attempts are in order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.jobs.logs.batches import gather_batches
from trainmaster.jobs.logs.beginning import RunSource, read_attempts, read_beginning
from trainmaster.jobs.logs.contract import Entry, JobLogOptions, Kept, NothingKept, Positions, is_passing
from trainmaster.jobs.lookups import get_training_job
from trainmaster.kit.clock import Clock


async def watch_lines(
    client: Client,
    clock: Clock,
    namespace: str,
    reference: str,
    wanted: JobLogOptions = JobLogOptions(),  # noqa: B008 - frozen
    kept: Kept | None = None,
) -> AsyncGenerator[Entry, None]:
    """Raises NotFound or AmbiguousName as `get_training_job`."""
    batches = watch_batches(client, clock, namespace, reference, wanted, kept)
    async with aclosing(batches):
        async for batch in batches:
            for entry in batch:
                yield entry


async def watch_batches(
    client: Client,
    clock: Clock,
    namespace: str,
    reference: str,
    wanted: JobLogOptions,
    kept: Kept | None = None,
    resume: Positions | None = None,
) -> AsyncGenerator[Sequence[Entry], None]:
    """The same, with the entries that arrive together in one batch. `resume`: the positions of another stream; its
    lines are not returned again."""
    job = await get_training_job(client, namespace, reference)
    kept = kept or NothingKept()
    positions = resume or Positions()
    try:
        async with aclosing(gather_batches(read_beginning(client, clock, job, wanted, kept, positions))) as beginning:
            async for existing in beginning:
                yield existing
    except (StatusError, OSError) as error:
        # Following returns the rest, from the position that was reached.
        if not wanted.follow or not is_passing(error):
            raise
    if not wanted.follow:
        return
    # Imported here, because reading existing logs needs no tasks or watches.
    from trainmaster.jobs.logs.following import follow_lines  # noqa: PLC0415

    async with aclosing(follow_lines(client, clock, job, wanted, kept, positions)) as following:
        async for batch in following:
            yield batch


async def watch_kept_lines(
    uid: str, wanted: JobLogOptions, kept: Kept, resume: Positions | None = None
) -> AsyncGenerator[Entry, None]:
    """The same for a deleted job, from kept logs only and without a server."""
    sources = [
        RunSource(log.place, log.container, log.restart, kept=log)
        for log in kept.list_logs(uid, ())
        if wanted.fits(log.place, log.container)
    ]
    entries = read_attempts(None, "", sources, wanted, kept, resume or Positions())
    async with aclosing(entries):
        async for entry in entries:
            yield entry
