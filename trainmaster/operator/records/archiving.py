"""The history of an operator on this machine. Imported only with `--history`: SQLite and what reads it take 2 MB."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from trainmaster.client.cache import WatchCache
from trainmaster.client.cached import CachedObjects
from trainmaster.client.contract import Client
from trainmaster.history.archive import Archive, ArchiveError
from trainmaster.history.keeper import Keeper
from trainmaster.history.remote import ClientGather
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.operator.lifecycle import DeletionRecorder


def check_archive(directory: Path) -> None:
    """Raises ArchiveError if nothing can be written there. It is opened later, by the leader."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ArchiveError(
            f"cannot keep records in {directory}: {error.strerror}; name a directory with --history that this process "
            "may write, in a Pod one on a volume"
        ) from None


@asynccontextmanager
async def running_cluster_history(
    directory: Path,
    client: Client,
    clock: Clock,
    recorder: DeletionRecorder,
    cache: WatchCache,
    models: Sequence[type[TrainingJob]],
) -> AsyncIterator[Keeper]:
    """Raises ArchiveError if it cannot be opened: an operator with `--history` does not start without one."""
    archive = Archive.open(directory)
    try:
        gather, source = ClientGather(client, directory), CachedObjects(cache)
        keeper = Keeper(archive, client, gather, clock, find_deleter=recorder.find, source=source, models=models)
        async with keeper.running():
            yield keeper
    finally:
        archive.close()
