"""What the ranks of a job use, measured every two seconds while somebody looks at it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import orjson

from trainmaster.api.status import NotFound, StatusError
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.rest.callers import Caller, SeenClient
from trainmaster.rest.contract import MeasurePods
from trainmaster.rest.services.live.items import LiveItem
from trainmaster.rest.services.live.job_source import JobSource, check_trouble
from trainmaster.rest.services.live.sources import Sources, build_share_key
from trainmaster.rest.services.series import read_now

_PAUSE_SECONDS = 2.0
_PAUSE_FACTOR = 20.0
"""How many times longer than the measuring the pause is."""


class JobUsage(JobSource):
    def __init__(self, client: SeenClient, clock: Clock, job: TrainingJob, measure: MeasurePods) -> None:
        super().__init__(client, clock, job)
        self._measure = measure
        self.data = b""

    async def run(self) -> None:
        """Until the job has ended, or is gone."""
        is_running = True
        while is_running:
            began = self._clock.monotonic()
            try:
                is_running = await self._look()
            except (StatusError, OSError) as error:
                check_trouble(error)
            spent = self._clock.monotonic() - began
            if is_running:
                await self._clock.sleep(max(_PAUSE_SECONDS, spent * _PAUSE_FACTOR))

    async def _look(self) -> bool:
        job = self._job
        try:
            found = type(job)(await self._client.get(job.gvr, job.name, job.namespace))
        except NotFound:
            return False
        if found.uid != job.uid or found.is_finished:
            return False
        at = int(self._clock.unix())
        now = await read_now(self._client, found, self._measure)
        await self._client.settle()
        self.data = orjson.dumps({"at": at, "attempt": max((one["attempt"] for one in now), default=0), "now": now})
        self.changes.notify()
        return True


async def follow_usage(
    sources: Sources, caller: Caller, clock: Clock, job: TrainingJob, measure: MeasurePods
) -> AsyncGenerator[LiveItem, None]:
    """The newest, until the job has ended."""
    key = (build_share_key(caller), job.uid)
    async with sources.using(JobUsage, key, lambda: JobUsage(caller.client, clock, job, measure)) as source:
        data = b""
        while True:
            news, has_ended = source.changes.next, source.has_ended
            if source.data is not data:
                data = source.data
                yield LiveItem("usage", data, job.uid)
            source.check()
            if has_ended:
                yield LiveItem("end", orjson.dumps({"uid": job.uid}), job.uid)
                return
            await news.wait()
