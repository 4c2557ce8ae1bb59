"""A job with all details, read again whenever something of it changes, at most four times a second."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import orjson

from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import WatchEvent
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.rest.callers import Caller, SeenClient
from trainmaster.rest.services.job_views import build_detail, read_state
from trainmaster.rest.services.jobs import collect
from trainmaster.rest.services.live.items import LiveItem
from trainmaster.rest.services.live.job_source import JobSource, check_trouble, hash_state
from trainmaster.rest.services.live.log_cursor import refuse_id
from trainmaster.rest.services.live.sources import Sources, build_share_key

_PAUSE_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_ID = re.compile(r"(?P<uid>[A-Za-z0-9-]{1,64})\.(?P<detail>[0-9a-f]{0,8})")


@dataclass(slots=True)
class DetailCursor:
    uid: str = ""
    detail: str = ""
    """Hash of the last delivered details."""

    def dump(self) -> str:
        return f"{self.uid}.{self.detail}"


def parse_cursor(text: str) -> DetailCursor:
    """Raises Problem 422 for an invalid id."""
    if not text:
        return DetailCursor()
    found = _ID.fullmatch(text)
    if found is None:
        raise refuse_id()
    return DetailCursor(found["uid"], found["detail"])


class LiveDetails(JobSource):
    def __init__(self, client: SeenClient, clock: Clock, job: TrainingJob) -> None:
        super().__init__(client, clock, job)
        self._dirty = asyncio.Event()
        self.detail: tuple[str, bytes] = ("", b"")
        """Its hash, and the details."""

    async def run(self) -> None:
        job, name = self._job, f"metadata.name={self._job.name}"
        async with Scope("rest.details") as scope:
            scope.spawn(self._watch(job.gvr, field_selector=name), name="rest.details.job")
            if job.has_jobset:
                scope.spawn(self._watch(JOB_SETS, field_selector=name), name="rest.details.jobset")
            selector = f"{job.pod_label}={job.name}"
            scope.spawn(self._watch(PODS, label_selector=selector), name="rest.details.pods")
            self._dirty.set()
            while await self._read():
                await self._clock.sleep(_PAUSE_SECONDS)
                await self._dirty.wait()

    async def _watch(self, gvr: GVR, *, field_selector: str = "", label_selector: str = "") -> None:
        async def begin(items: list[Object]) -> None:
            self._dirty.set()

        async def change(event: WatchEvent) -> None:
            self._dirty.set()

        await self._follow(gvr, begin, change, field_selector=field_selector, label_selector=label_selector)

    async def _read(self) -> bool:
        """False if the job is gone."""
        self._dirty.clear()
        try:
            found = type(self._job)(await self._client.get(self._job.gvr, self._job.name, self._job.namespace))
            if found.uid != self._job.uid:
                return False
            data = orjson.dumps(build_detail(await collect(self._client, found)))
            await self._client.settle()
        except NotFound:
            return False
        except (StatusError, OSError) as error:
            check_trouble(error)
            self._dirty.set()
            await self._clock.sleep(_RETRY_SECONDS)
            return True
        self.last = read_state(found).word if found.is_finished else "Deleted"
        self.detail = hash_state(data), data
        self.changes.notify()
        return True


async def follow_details(
    sources: Sources, caller: Caller, clock: Clock, job: TrainingJob, cursor: DetailCursor
) -> AsyncGenerator[LiveItem, None]:
    """The newest details whenever they have changed, until the job is gone."""
    cursor.uid = job.uid
    key = (build_share_key(caller), job.uid)
    async with sources.using(LiveDetails, key, lambda: LiveDetails(caller.client, clock, job)) as source:
        while True:
            news, has_ended = source.changes.next, source.has_ended
            digest, data = source.detail
            if digest and digest != cursor.detail:
                cursor.detail = digest
                yield LiveItem("detail", b'{"job":%b}' % data, cursor.dump())
            source.check()
            if has_ended:
                yield build_gone(cursor, source.last)
                return
            await news.wait()


def build_gone(cursor: DetailCursor, state: str) -> LiveItem:
    return LiveItem("gone", orjson.dumps({"uid": cursor.uid, "state": state}), cursor.dump())
