"""What happens to a job: changes of its state, and events about it, its JobSet, its Jobs and its Pods.

The id contains the newest delivered revision and state. A client that reconnects gets the events since; if the server
no longer has the changes in between (a restart, a long absence), it gets the current events that are newer than the id.
An event that was counted up meanwhile is delivered once, with the last count.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import orjson

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_labels, read_text
from trainmaster.api.resources import EVENTS, JOBS, PODS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import WatchEvent
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.lookups import list_training_jobs
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.rest.callers import Caller, SeenClient
from trainmaster.rest.services.job_views import build_progress, read_state
from trainmaster.rest.services.live.items import LiveItem
from trainmaster.rest.services.live.job_source import JobSource, hash_state
from trainmaster.rest.services.live.log_cursor import refuse_id
from trainmaster.rest.services.live.sources import Sources, build_share_key

_KEPT_EVENTS = 1000
_LINGER_SECONDS = 2.0
"""Seconds to wait after the end, because events are recorded after the status that they are about."""
_ID = re.compile(r"(?P<uid>[A-Za-z0-9-]{1,64})\.(?P<revision>\d{1,19})\.(?P<state>[0-9a-f]{0,8})(?P<over>!?)")


@dataclass(slots=True)
class EventCursor:
    uid: str = ""
    revision: int = 0
    state: str = ""
    """Hash of the last delivered state."""
    over: bool = False

    def dump(self) -> str:
        return f"{self.uid}.{self.revision}.{self.state}{'!' if self.over else ''}"


def parse_cursor(text: str) -> EventCursor:
    """Raises Problem 422 for an invalid id."""
    if not text:
        return EventCursor()
    found = _ID.fullmatch(text)
    if found is None:
        raise refuse_id()
    return EventCursor(found["uid"], int(found["revision"]), found["state"], bool(found["over"]))


class JobEvents(JobSource):
    """The newest state of a job, and the events about it by revision."""

    def __init__(self, client: SeenClient, clock: Clock, job: TrainingJob) -> None:
        super().__init__(client, clock, job)
        self._newest = 0
        self._ours: dict[str, bool] = {}
        self._over = asyncio.Event()
        self.state: tuple[str, bytes] = ("", b"")
        """Its hash, and the state."""
        self.events: deque[tuple[int, bytes]] = deque(maxlen=_KEPT_EVENTS)
        """By revision, the newest last."""

    async def run(self) -> None:
        name = f"metadata.name={self._job.name}"
        async with Scope("rest.events") as scope:
            scope.spawn(
                self._follow(self._job.gvr, self._begin_job, self._change_job, field_selector=name),
                name="rest.events.job",
            )
            scope.spawn(self._follow(EVENTS, self._begin_events, self._change_event), name="rest.events.events")
            await self._over.wait()
            await self._clock.sleep(_LINGER_SECONDS)

    # The job

    async def _begin_job(self, items: list[Object]) -> None:
        if not items:
            self._over.set()
        for item in items:
            await self._see_job(type(self._job)(item), gone=False)

    async def _change_job(self, event: WatchEvent) -> None:
        await self._see_job(type(self._job)(event.object), gone=event.type == "DELETED")

    async def _see_job(self, job: TrainingJob, *, gone: bool) -> None:
        await self._client.settle()
        if gone or job.uid != self._job.uid:
            self.last = "Deleted"
            self._over.set()
            return
        state = read_state(job)
        told = {
            "state": state.word,
            "reason": state.reason or None,
            "message": state.message or None,
            "deleting": job.is_deleting,
            "progress": build_progress(job),
        }
        data = orjson.dumps(told)
        self.state = hash_state(data), data
        self.changes.notify()
        if job.is_finished:
            self.last = state.word
            self._over.set()

    # The events

    async def _begin_events(self, items: list[Object]) -> None:
        for event in sorted(map(ObjectEvent, items), key=_get_revision):
            await self._see_event(event)

    async def _change_event(self, event: WatchEvent) -> None:
        if event.type != "DELETED":
            await self._see_event(ObjectEvent(event.object))

    async def _see_event(self, event: ObjectEvent) -> None:
        revision = _get_revision(event)
        if revision <= self._newest or not await self._is_ours(event):
            return
        await self._client.settle()
        self._newest = revision
        self.events.append((revision, orjson.dumps(build_event(event))))
        self.changes.notify()

    async def _is_ours(self, event: ObjectEvent) -> bool:
        kind, name, uid = (read_text(event.involved, key) for key in ("kind", "name", "uid"))
        if kind in TRAINING_KINDS:
            return uid == self._job.uid
        if kind == "JobSet":
            return self._job.has_jobset and name == self._job.name and event.is_since(self._job.created_at)
        if kind not in ("Job", "Pod") or not name.startswith(f"{self._job.name}-"):
            return False
        if uid not in self._ours:
            self._ours[uid] = await self._belongs(PODS if kind == "Pod" else JOBS, name)
        return self._ours[uid]

    async def _belongs(self, gvr: GVR, name: str) -> bool:
        """Checks the label; for a deleted object the name, which must not be that of another job's child."""
        try:
            found = await self._client.get(gvr, name, self._job.namespace)
        except NotFound:
            jobs = await list_training_jobs(self._client, self._job.namespace)
            longer = [job.name for job in jobs if len(job.name) > len(self._job.name)]
            return not any(name.startswith(f"{other}-") for other in longer)
        if gvr == PODS and self._job.find_place(found) is None:
            return False  # a job of another kind may have the same name
        return read_labels(found).get(self._job.pod_label) == self._job.name

    def list_since(self, revision: int) -> list[tuple[int, bytes]]:
        found = []
        for entry in reversed(self.events):
            if entry[0] <= revision:
                break
            found.append(entry)
        return found[::-1]


async def follow_events(
    sources: Sources, caller: Caller, clock: Clock, job: TrainingJob, cursor: EventCursor
) -> AsyncGenerator[LiveItem, None]:
    """Everything after the cursor, which moves along, until the end of the job."""
    cursor.uid = job.uid
    key = (build_share_key(caller), job.uid)
    async with sources.using(JobEvents, key, lambda: JobEvents(caller.client, clock, job)) as source:
        while True:
            news, has_ended = source.changes.next, source.has_ended
            state, data = source.state
            if state and state != cursor.state:
                cursor.state = state
                yield LiveItem("state", data, cursor.dump())
            for revision, told in source.list_since(cursor.revision):
                cursor.revision = revision
                yield LiveItem("event", told, cursor.dump())
            source.check()
            if has_ended:
                cursor.over = True
                yield LiveItem("end", orjson.dumps({"state": source.last}), cursor.dump())
                return
            await news.wait()


def _get_revision(event: ObjectEvent) -> int:
    text = event.resource_version
    return int(text) if text.isdigit() else 0


def build_event(event: ObjectEvent) -> Object:
    return {
        "time": event.time,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "about": event.about,
        "count": event.count,
    }
