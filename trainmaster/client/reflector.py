"""Keeps one collection up to date, in one namespace or in all: one list, then a watch that is resumed after every end.

It lists again only after a gap (410, an unreadable event).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import NoReturn

from trainmaster.api.meta import GVR
from trainmaster.api.status import Expired, NotFound, StatusError
from trainmaster.client.collection import Collection
from trainmaster.client.contract import Client, ListOptions, WatchEvent, WatchOptions
from trainmaster.kit.backoff import Backoff, BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids

log = logging.getLogger(__name__)

_PAGE = 200
"""The objects of a page are in memory as the server sent them, for some kinds 50 KB each."""
_WATCH_SECONDS = 300.0
_SILENT_SECONDS = 90.0
"""After this long without an event a watch is begun anew where it was: its server may be dead behind a load balancer
that keeps the connection. Servers send bookmarks every minute."""
_SHORT_SECONDS = 1.0
"""A watch that ends without an event after less than this was not worth beginning."""


@dataclass(frozen=True, slots=True)
class WatchHabit:
    """Which objects of a kind are followed, and how."""

    labels: str = ""
    """A selector; "" is all."""
    fields: str = ""
    """The same."""
    gather_seconds: float = 0.1
    """The first event after a pause is read at once; those that follow are read together, which takes a fifth less CPU
    of the whole operator than 0.03."""
    without_spec: bool = False
    """Only metadata and status matter."""


USUAL = WatchHabit()


@dataclass(frozen=True, slots=True)
class WatchScope:
    """What is listed and watched."""

    gvr: GVR
    namespace: str = ""
    """"" is all."""
    optional: bool = False
    """Empty until the kind exists and may be read."""
    metadata_only: bool = False
    habit: WatchHabit = USUAL


class Reflector:
    def __init__(
        self, client: Client, scope: WatchScope, collection: Collection, clock: Clock, ids: Ids | None = None
    ) -> None:
        self._client = client
        self.scope = scope
        self._collection = collection
        self._clock = clock
        self._ids = ids
        self.synced = asyncio.Event()
        """Set once everything has been listed completely."""
        self.resource_version = ""
        """The version that the collection has reached."""
        self.failing_since: float | None = None
        """In boot time, when it last began to fail; None while it is listed and watched. A watch that ends, as all do
        after some minutes, does not count as long as the next one begins."""
        self.trouble = ""
        """Why it fails."""
        self._logged = ""
        self.refused = 0
        """The status code, if it fails because of a Status."""

    async def run(self) -> NoReturn:
        backoff = Backoff(BackoffPolicy(first=0.1, cap=30.0, jitter=0.3), self._ids)
        while True:
            try:
                if not self.resource_version:
                    await self._list()
                await self._watch(backoff)
            except Expired:
                self.resource_version = ""
                # Back off if the server expires every watch immediately.
                await self._clock.sleep(backoff.next())
            except NotFound:
                # The kind is not served (any more).
                self._lose()
                await self._clock.sleep(backoff.next())
            except (StatusError, OSError, KeyError, ValueError) as error:
                self._note_trouble(error)
                await self._clock.sleep(backoff.next())

    def _note_trouble(self, error: Exception) -> None:
        if not isinstance(error, StatusError | OSError):
            self.resource_version = ""
        resource = self.scope.gvr.qualified
        extra = {"action": "cache.retry", "resource": resource, "error": str(error)}
        # The same once more is no news.
        level = logging.DEBUG if str(error) == self._logged else logging.WARNING
        log.log(level, "watch broke, trying again", extra=extra)
        self._logged = str(error)
        if self.scope.optional and isinstance(error, StatusError) and error.code == 403:
            self._note_success()
            self._logged = str(error)
            self.synced.set()
            return
        if self.failing_since is None:
            self.failing_since = self._clock.boot()
        self.trouble = str(error) or "the server does not answer"
        self.refused = error.code if isinstance(error, StatusError) else 0

    def _note_success(self) -> None:
        self.failing_since, self.trouble, self.refused, self._logged = None, "", 0, ""

    def _lose(self) -> None:
        if self.scope.optional:
            self._collection.replace((), self.scope.namespace)
            self._note_success()
            self.synced.set()
        else:
            self._note_trouble(NotFound(404, "NotFound", "the server has no such kind"))
        self.resource_version = ""

    async def _list(self) -> None:
        token, limit, scope = "", _PAGE, self.scope
        listing = self._collection.begin_list(scope.namespace)
        while True:
            options = ListOptions(
                label_selector=scope.habit.labels,
                field_selector=scope.habit.fields,
                limit=limit,
                continue_token=token,
                metadata_only=scope.metadata_only,
            )
            try:
                page = await self._client.list(scope.gvr, scope.namespace, options)
            except Expired:
                if not token:
                    raise
                # The server's snapshot expired between pages: list without paging.
                listing = self._collection.begin_list(scope.namespace)
                token, limit = "", 0
                continue
            listing.add(page.items)
            token = page.continue_token
            if not token:
                break
        listing.end()
        self.resource_version = page.resource_version
        self._note_success()
        self.synced.set()

    async def _watch(self, backoff: Backoff) -> None:
        habit = self.scope.habit
        options = WatchOptions(
            label_selector=habit.labels,
            field_selector=habit.fields,
            resource_version=self.resource_version,
            bookmarks=True,
            timeout_seconds=_WATCH_SECONDS,
            metadata_only=self.scope.metadata_only,
            gather_seconds=habit.gather_seconds,
            without_spec=habit.without_spec,
        )
        began, heard, opened, loop = self._clock.monotonic(), False, False, asyncio.get_running_loop()
        next_check = 0.0
        try:
            async with (
                asyncio.timeout(_SILENT_SECONDS) as silence,
                self._client.watch(self.scope.gvr, self.scope.namespace, options) as events,
            ):
                opened = True
                self._note_success()
                async for event in events:
                    heard = True
                    backoff.reset()
                    if loop.time() >= next_check:  # not for every event: it takes as long as the event itself
                        next_check = loop.time() + 1.0
                        silence.reschedule(loop.time() + _SILENT_SECONDS)
                    self._take(event)
        except TimeoutError:
            if not opened:
                raise
            log.debug("no event for long, watching anew", extra={"resource": self.scope.gvr.qualified})
        if heard or self._clock.monotonic() - began >= _SHORT_SECONDS:
            backoff.reset()
        else:
            # Back off if the server ends every watch immediately.
            await self._clock.sleep(backoff.next())

    def _take(self, event: WatchEvent) -> None:
        obj = event.object
        if event.type == "DELETED":
            self._collection.remove(obj)
        elif event.type != "BOOKMARK":
            self._collection.put(obj)
        self.resource_version = obj["metadata"]["resourceVersion"]
