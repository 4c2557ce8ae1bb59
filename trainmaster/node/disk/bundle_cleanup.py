"""Deletes unused bundles: those that no API object and no record in history refers to.

Runs with the node from time to time. A bundle that was packed within the last day is kept, because its job may be about
to be submitted. If history cannot be read, nothing is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import orjson

from trainmaster.api.code import list_mentions
from trainmaster.api.meta import GVR
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.status import StatusError
from trainmaster.bundles.store import BundleStore
from trainmaster.client.contract import Client, ListOptions
from trainmaster.client.pages import read_pages
from trainmaster.history.archive import ArchiveError
from trainmaster.history.code_mentions import list_mentioned
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope

log = logging.getLogger(__name__)

KEEP = timedelta(days=1)
_FIRST_SECONDS = 300.0
_EVERY_SECONDS = 6 * 3600.0
_PAGE = 500
# ConfigMaps contain snapshots of runtimes, which jobs use after the runtime is gone.
_PLACES: tuple[GVR, ...] = (
    *(model.gvr for model in TRAINING_KINDS.values()),
    TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS, CONFIG_MAPS,
)  # fmt: skip


class BundleCleanup:
    def __init__(self, client: Client, clock: Clock, bundles: Path, history: Path) -> None:
        self._client = client
        self._clock = clock
        self._store = BundleStore(bundles)
        self._history = history

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Scope("bundles") as scope:
            scope.spawn_forever(self._work(), name="bundles.cleanup")
            yield

    async def _work(self) -> None:
        await self._clock.sleep(_FIRST_SECONDS)
        while True:
            try:
                gone = await self.delete_unused()
                if gone:
                    log.info("code forgotten", extra={"action": "bundles.forgotten", "count": len(gone)})
            except (OSError, StatusError) as error:
                log.warning("code not forgotten", extra={"action": "bundles.failed", "error": str(error)})
            await self._clock.sleep(_EVERY_SECONDS)

    async def delete_unused(self) -> list[str]:
        """Returns the deleted digests."""
        before = (self._clock.now() - KEEP).timestamp()
        left = set(await asyncio.to_thread(self._store.list_unused, (), before=before))
        try:
            if left:
                left -= await self._list_in_use()
            left -= await asyncio.to_thread(list_mentioned, self._history, left)
        except ArchiveError as error:
            log.warning("history cannot be asked", extra={"action": "bundles.failed", "error": str(error)})
            return []
        return await asyncio.to_thread(self._store.forget, sorted(left), before=before)

    async def _list_in_use(self) -> set[str]:
        found: set[str] = set()
        for gvr in _PLACES:
            async for page in read_pages(self._client, gvr, "", ListOptions(limit=_PAGE)):
                found |= list_mentions(orjson.dumps(page.items))
                # Others have their turn between two pages.
                await asyncio.sleep(0)
        return found
