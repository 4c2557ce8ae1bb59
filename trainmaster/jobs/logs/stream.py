"""What all processes of one training job print, as one stream: merged over ranks, across restarts, with marks between.

Used by `trainmaster logs`, `trainmaster run` and whoever shows a job live:

    async for entry in watch_lines(client, clock, "default", "my-job", JobLogOptions(follow=True), kept):
        match entry:
            case Line(): print(entry.attempt, entry.rank, entry.text)
            case LogMark(): print("---", entry.text)

First comes what there is, attempt by attempt, the ranks merged by time. With `follow` the stream then waits for the
start, goes on while the job runs, through restarts of containers, of the gang and of the server, and ends when the job
is over and everything was read. Lines come from Pods while they live; after that from `kept` (the history of an
embedded server); on a cluster there is none, and what its Pods took with them is marked as a gap.

Invariant: no line twice, none left out that somebody still has; a later attempt never before an earlier one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.jobs.logs.beginning import RunSource, read_attempts, read_beginning
from trainmaster.jobs.logs.contract import Entry, JobLogOptions, Kept, NothingKept, Positions, is_passing
from trainmaster.jobs.lookups import get_training_job
from trainmaster.kit.clock import Clock


async def watch_lines(
    client: Client,
    clock: Clock,
    namespace: str,
    name: str,
    wanted: JobLogOptions = JobLogOptions(),  # noqa: B008 - frozen
    kept: Kept | None = None,
    resume: Positions | None = None,
) -> AsyncGenerator[Entry, None]:
    """NotFound when there is no such job. `resume`: what another stream has handed out does not come again."""
    job = await get_training_job(client, namespace, name)
    kept = kept or NothingKept()
    positions = resume or Positions()
    beginning = read_beginning(client, clock, job, wanted, kept, positions)
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
    from trainmaster.jobs.logs.following import follow_lines  # noqa: PLC0415

    following = follow_lines(client, clock, job, wanted, kept, positions)
    async with aclosing(following):
        async for entry in following:
            yield entry


async def watch_kept_lines(
    uid: str, wanted: JobLogOptions, kept: Kept, resume: Positions | None = None
) -> AsyncGenerator[Entry, None]:
    """The same of a job that is gone: all from what was kept, without a server."""
    sources = [
        RunSource(log.place, log.container, log.restart, kept=log)
        for log in kept.list_logs(uid, ())
        if wanted.fits(log.place, log.container)
    ]
    entries = read_attempts(None, "", sources, wanted, kept, resume or Positions())
    async with aclosing(entries):
        async for entry in entries:
            yield entry
