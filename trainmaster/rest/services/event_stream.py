"""Streams what happens to a job: changes of its state, and events about it, its JobSet, its Jobs and its Pods.

The id contains the newest delivered revision and state. A client that reconnects gets the events since; if the server
no longer has the changes in between (a restart, a long absence), it gets the current events that are newer than the id.
An event that was counted up meanwhile is delivered once, with the last count.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import orjson

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_labels, read_text
from trainmaster.api.resources import EVENTS, JOBS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.client.follow import Begin, Change, follow
from trainmaster.jobs.kinds import TRAINING_KINDS
from trainmaster.jobs.lookups import list_training_jobs
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.rest.problems import FieldProblem, invalid
from trainmaster.rest.services.job_views import build_progress, read_state
from trainmaster.rest.services.streams import encode

_QUEUE = 200
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
        hint = "send the id of the last event as it came, or none to begin anew"
        raise invalid([FieldProblem("is no id of this stream", parameter="Last-Event-ID")], hint=hint)
    return EventCursor(found["uid"], int(found["revision"]), found["state"], bool(found["over"]))


@dataclass(frozen=True, slots=True)
class Item:
    kind: str
    """`state`, `event` or `end`."""
    data: Fields
    revision: int = 0
    state: str = ""


class EventEncoder:
    def __init__(self, cursor: EventCursor) -> None:
        self._cursor = cursor

    def __call__(self, items: Sequence[Item]) -> bytes:
        return b"".join(map(self._encode, items))

    def _encode(self, item: Item) -> bytes:
        cursor = self._cursor
        cursor.revision = max(cursor.revision, item.revision)
        cursor.state = item.state or cursor.state
        cursor.over = item.kind == "end"
        return encode(item.kind, item.data, cursor.dump())


async def watch_events(
    client: Client, clock: Clock, job: TrainingJob, cursor: EventCursor
) -> AsyncGenerator[Item, None]:
    follower = _Follower(client, clock, job, cursor)
    async with Scope("rest.events") as scope:
        follower.start(scope)
        while (item := await follower.queue.get()) is not None:
            yield item


@dataclass
class _Follower:
    client: Client
    clock: Clock
    job: TrainingJob
    cursor: EventCursor
    queue: asyncio.Queue[Item | None] = field(default_factory=lambda: asyncio.Queue(_QUEUE))

    def __post_init__(self) -> None:
        self._told = self.cursor.state
        self._seen = self.cursor.revision
        self._ours: dict[str, bool] = {}
        self._over = asyncio.Event()
        self._last = "Deleted"

    def start(self, scope: Scope) -> None:
        name = f"metadata.name={self.job.name}"
        scope.spawn(self._follow(self.job.gvr, self._begin_job, self._change_job, name), name="rest.events.job")
        scope.spawn(self._follow(EVENTS, self._begin_events, self._change_event, ""), name="rest.events.events")
        scope.spawn(self._end(), name="rest.events.end")

    async def _follow(self, gvr: GVR, begin: Begin, change: Change, field_selector: str) -> None:
        await follow(
            self.client,
            self.clock,
            gvr,
            begin,
            change,
            namespace=self.job.namespace,
            field_selector=field_selector,
            trouble=_check_trouble,
        )

    async def _end(self) -> None:
        await self._over.wait()
        await self.clock.sleep(_LINGER_SECONDS)
        await self.queue.put(Item("end", {"state": self._last}))
        await self.queue.put(None)

    # The job

    async def _begin_job(self, items: list[Object]) -> None:
        if not items:
            self._over.set()
        for item in items:
            await self._see_job(type(self.job)(item), gone=False)

    async def _change_job(self, event: WatchEvent) -> None:
        await self._see_job(type(self.job)(event.object), gone=event.type == "DELETED")

    async def _see_job(self, job: TrainingJob, *, gone: bool) -> None:
        if gone or job.uid != self.job.uid:
            self._last = "Deleted"
            self._over.set()
            return
        state = read_state(job)
        data = {
            "state": state.word,
            "reason": state.reason or None,
            "message": state.message or None,
            "deleting": job.is_deleting,
            "progress": build_progress(job),
        }
        key = f"{_hash(data):08x}"
        if key != self._told:
            self._told = key
            await self.queue.put(Item("state", data, state=key))
        if job.is_finished:
            self._last = state.word
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
        if revision <= self._seen or not await self._is_ours(event):
            return
        self._seen = revision
        await self.queue.put(Item("event", build_event(event), revision))

    async def _is_ours(self, event: ObjectEvent) -> bool:
        kind, name, uid = (read_text(event.involved, key) for key in ("kind", "name", "uid"))
        if kind in TRAINING_KINDS:
            return uid == self.job.uid
        if kind == "JobSet":
            return self.job.has_jobset and name == self.job.name and event.is_since(self.job.created_at)
        if kind not in ("Job", "Pod") or not name.startswith(f"{self.job.name}-"):
            return False
        if uid not in self._ours:
            self._ours[uid] = await self._belongs(PODS if kind == "Pod" else JOBS, name)
        return self._ours[uid]

    async def _belongs(self, gvr: GVR, name: str) -> bool:
        """Checks the label; for a deleted object the name, which must not be that of another job's child."""
        try:
            found = await self.client.get(gvr, name, self.job.namespace)
        except NotFound:
            jobs = await list_training_jobs(self.client, self.job.namespace)
            longer = [job.name for job in jobs if len(job.name) > len(self.job.name)]
            return not any(name.startswith(f"{other}-") for other in longer)
        if gvr == PODS and self.job.find_place(found) is None:
            return False  # a job of another kind may have the same name
        return read_labels(found).get(self.job.pod_label) == self.job.name


def _check_trouble(error: Exception) -> None:
    """Raises permanent errors, which end the stream; others are retried."""
    if isinstance(error, StatusError) and error.code in (401, 403):
        raise error


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


def _hash(data: Fields) -> int:
    return zlib.crc32(orjson.dumps(data))
