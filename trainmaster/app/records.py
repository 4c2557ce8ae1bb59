"""The history in embedded mode: the archive in the home and its keeper.

The server also starts if the archive cannot be opened: jobs run, and finished jobs with a TTL are kept and report why.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from trainmaster.api.meta import Object
from trainmaster.apiserver.admission.deletions import DeletionWitness
from trainmaster.apiserver.local import LocalClient
from trainmaster.apiserver.local_view import LocalView
from trainmaster.app.gauges import declare_history
from trainmaster.app.home.folder import Home
from trainmaster.app.settings import History
from trainmaster.controllers.lifecycle.contract import HistoryLedger
from trainmaster.history import logs
from trainmaster.history.archive import Archive, ArchiveError
from trainmaster.history.checkpoints.upkeep import Upkeep
from trainmaster.history.gathering import ViewGather
from trainmaster.history.keeper import HistoryLimits, Keeper
from trainmaster.jobs.kinds import find_place
from trainmaster.kit.clock import Clock
from trainmaster.kit.metrics import Metrics
from trainmaster.kit.scopes import Scope
from trainmaster.shim.protocol import Exited, decode

log = logging.getLogger(__name__)


class RecordKeeper(HistoryLedger, Protocol):
    """A ledger that also performs the effect `archive`."""

    async def archive(self, trainjob: Object) -> bool: ...

    def count_troubles(self) -> int:
        """Finished jobs whose record could not be written."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """(records, bytes)."""
        ...


class Closed:
    """The record keeper for an archive that cannot be opened."""

    def __init__(self, trouble: str) -> None:
        self._trouble = trouble
        self._asked: set[str] = set()

    def is_archived(self, uid: str) -> bool:
        return False

    def find_trouble(self, uid: str) -> str | None:
        return self._trouble

    async def archive(self, trainjob: Object) -> bool:
        self._asked.add(trainjob["metadata"]["uid"])
        return False

    def count_troubles(self) -> int:
        """At least 1, so that an alert fires before the first job has finished."""
        return max(1, len(self._asked))

    @property
    def size(self) -> tuple[int, int]:
        return 0, 0


@asynccontextmanager
async def running_history(
    home: Home,
    settings: History,
    client: LocalClient,
    view: LocalView,
    clock: Clock,
    witness: DeletionWitness,
    metrics: Metrics,
) -> AsyncIterator[RecordKeeper]:
    directory, pods = home.history, home.pods
    try:
        archive = Archive.open(directory)
    except ArchiveError as error:
        log.error("history is closed", extra={"action": "history.closed", "error": str(error)})
        closed = Closed(f"{error}; repair or move it away, and start the server again")
        declare_history(metrics, closed)
        yield closed
        return
    try:
        gather = ViewGather(view, view)
        keep_logs = partial(keep_pod_logs, directory, pods)
        limits = HistoryLimits(settings.keep_days * 86400, settings.max_bytes)
        keeper = Keeper(
            archive,
            client,
            gather,
            clock,
            keep_logs=keep_logs,
            measure_memory=partial(read_memory, pods),
            find_deleter=witness.find,
            limits=limits,
        )
        keeper.resting = view
        keeper.upkeep = upkeep = Upkeep(directory, clock)
        keeper.find_code = gather.find_code
        declare_history(metrics, keeper)
        async with Scope("history.events") as scope, keeper.running():
            scope.spawn_forever(gather.follow(), name="history.events")
            scope.spawn_forever(upkeep.run(), name="history.checkpoints")
            yield keeper
    finally:
        archive.close()


def keep_pod_logs(archive: Path, pods: Path, pod: Object) -> None:
    place = find_place(pod)
    if place is not None:
        logs.keep(archive, str(place), pods / pod["metadata"]["uid"])


def read_memory(pods: Path, pod: Object) -> int:
    """The memory of the largest process of a Pod, as its shim has recorded it."""
    found = 0
    for path in (pods / pod["metadata"]["uid"] / "run").glob("*.exit.json"):
        try:
            found = max(found, decode(Exited, path.read_bytes()).memory)
        except (OSError, ValueError, TypeError):
            continue  # removed meanwhile, or damaged
    return found
