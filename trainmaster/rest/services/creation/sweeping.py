"""Finds scripts that a crash left without an owner: after ten minutes each gets its TrainJob as owner, or is deleted.

Runs at startup, when the first script that it found is due, when a create request reports that it was left incomplete,
and once an hour, because another process may have crashed.
"""

from __future__ import annotations

import asyncio
import logging

from trainmaster.api.labels import MANAGED_BY, SCRIPT_OF
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.status import Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, ListOptions
from trainmaster.client.pages import read_pages
from trainmaster.kit.clock import Clock
from trainmaster.kit.timeline import Now, Timeline
from trainmaster.rest.services.creation.guide_jobs import MANAGER, adopt
from trainmaster.rest.services.creation.naming import get_job_script

log = logging.getLogger(__name__)

LEFT_SECONDS = 600.0
NET_SECONDS = 3600.0
_RETRY_SECONDS = 60.0
_PAGE = 500
_SELECTOR = f"{MANAGED_BY}={MANAGER},{SCRIPT_OF}"


class Sweeper:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._timeline: Timeline[str] = Timeline(clock)
        self._reminded = asyncio.Event()

    def remind(self) -> None:
        """Called when a create request was left incomplete."""
        self._reminded.set()

    async def run(self) -> None:
        while True:
            try:
                wait = min(await self.sweep(), NET_SECONDS)
            except StatusError as error:
                log.warning("cannot sweep", extra={"action": "rest.sweep_failed", "error": error.message})
                wait = _RETRY_SECONDS
            try:
                async with asyncio.timeout(wait):
                    await self._reminded.wait()
            except TimeoutError:
                continue
            self._reminded.clear()

    async def sweep(self) -> float:
        """Checks every script without an owner; returns the seconds until the next one is due."""
        now = self._timeline.begin_pass("scripts")
        soonest = NET_SECONDS
        options = ListOptions(label_selector=_SELECTOR, limit=_PAGE)
        async for page in read_pages(self._client, CONFIG_MAPS, "", options):
            for script in page.items:
                left = await self._check_script(script, now)
                soonest = min(soonest, left if left > 0 else soonest)
        self._timeline.end_pass("scripts", now)
        return soonest

    async def _check_script(self, script: Object, now: Now) -> float:
        """Seconds until it is due; 0 if there is nothing left to do."""
        meta = script["metadata"]
        if meta.get("ownerReferences") or "deletionTimestamp" in meta:
            return 0.0
        left = now.left(meta["uid"], "script", meta["creationTimestamp"], LEFT_SECONDS)
        if left > 0:
            return left
        await self._settle(script)
        return 0.0

    async def _settle(self, script: Object) -> None:
        meta = script["metadata"]
        trainjob = meta["labels"][SCRIPT_OF]
        try:
            job = await self._client.get(TRAIN_JOBS, trainjob, meta["namespace"])
        except NotFound:
            job = None
        try:
            if job is not None and meta["name"] == get_job_script(trainjob):
                await adopt(self._client, script, job)
            else:
                options = DeleteOptions(uid=meta["uid"], resource_version=meta["resourceVersion"])
                await self._client.delete(CONFIG_MAPS, meta["name"], meta["namespace"], options)
        except (NotFound, Conflict):
            return
        action = "rest.swept" if job is None else "rest.adopted"
        log.info("a script that was left over", extra={"action": action, "script": meta["name"]})
