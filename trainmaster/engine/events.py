"""Records events of plans and of the node. `client.events` defines their format and counts repetitions.

In-process an event is an ordinary, immediate write (`EventRecorder`). On a cluster a write takes milliseconds, so
events are queued (`QueuedRecorder`). An event that cannot be stored is logged and dropped, because events are not
essential.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from trainmaster.api.meta import Object
from trainmaster.api.resources import EVENTS
from trainmaster.api.status import StatusError
from trainmaster.client import events
from trainmaster.client.contract import Client
from trainmaster.client.writes import Create
from trainmaster.engine.apply import Apply
from trainmaster.engine.plan import Note
from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)


class Recorder(Protocol):
    async def record(self, note: Note, reporter: str) -> None: ...

    async def record_all(self, notes: Sequence[Note], reporter: str) -> None:
        """Records the notes of one plan."""
        ...


class EventRecorder:
    def __init__(self, client: Client, clock: Clock, *, host: str = "", apply: Apply | None = None) -> None:
        """`apply`: a cheaper way to write than the client's, for new events."""
        self._apply = apply
        self._client = client
        self._clock = clock
        self._host = host

    async def record(self, note: Note, reporter: str) -> None:
        await self.record_all((note,), reporter)

    async def record_all(self, notes: Sequence[Note], reporter: str) -> None:
        now = self._clock.now()
        made = [self._build(note, reporter, now) for note in notes]
        if self._apply is not None:
            applied = await self._apply([Create(EVENTS, event, proven=True) for event in made], reporter)
            if applied.refusal is None:
                return
        # One of them is a repetition, or cannot be stored.
        for event in made:
            try:
                await events.write_event(self._client, event, count=1, last=now)
            except (StatusError, OSError) as error:
                log.warning("event not stored", extra={"reason": event["reason"], "error": str(error)})

    def _build(self, note: Note, reporter: str, now: datetime) -> Object:
        return events.build_event(
            note.about,
            note.reason,
            note.message,
            now,
            component=reporter,
            host=self._host,
            warning=note.warning,
            action=note.action,
        )


class QueuedRecorder:
    def __init__(self, queue: events.BufferedEventRecorder) -> None:
        self._queue = queue

    async def record(self, note: Note, reporter: str) -> None:
        self._queue.record(
            note.about,
            note.reason,
            note.message,
            component=reporter,
            warning=note.warning,
            action=note.action,
        )

    async def record_all(self, notes: Sequence[Note], reporter: str) -> None:
        for note in notes:
            await self.record(note, reporter)
