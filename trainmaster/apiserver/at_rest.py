"""Packs objects at rest: finished ones that nobody is expected to read or change soon.

An object is a candidate when it has not changed for a while. Rules, which know the kinds, decide which candidates are
at rest, and what their outlines contain (`stored.load_outline`). Only while the controllers are idle, so that all work
that an object at rest has caused is done: a start relies on that and passes over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver import stored
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.kit.clock import Clock
from trainmaster.store.contract import Event, EventType, NoSpace, StoredRecord

QUIET_SECONDS = 600.0
"""How long an object must not have changed."""
_EVERY_SECONDS = 60.0
_POLL_SECONDS = 0.1
_BATCH = 256
_SLICE = 16
"""Objects that are examined before yielding to other tasks."""


class OutlineRules(Protocol):
    @property
    def gvrs(self) -> Sequence[GVR]:
        """Kinds whose objects may be at rest."""
        ...

    def outline(self, gvr: GVR, obj: Object) -> tuple[Object, tuple[float, float] | None] | None:
        """Fields of its outline besides metadata, and when controllers have something to do for it, see
        `stored.find_due`. None if the object is not at rest."""
        ...


class ObjectPacking:
    def __init__(
        self, registry: ObjectRegistry, clock: Clock, rules: OutlineRules, is_idle: Callable[[], bool]
    ) -> None:
        """`is_idle`: whether the controllers have nothing to do now."""
        self._store = registry.store
        self._clock = clock
        self._rules = rules
        self._is_idle = is_idle
        self._gvrs = {stored.bucket_of(gvr): gvr for gvr in rules.gvrs}
        self._changed: dict[tuple[str, str], float] = {}
        """(bucket, name) of candidates to the time of the last change, oldest first."""
        for bucket in self._gvrs:
            for record in self._store.scan(bucket):
                if not record.is_packed:
                    self._changed[bucket, record.name] = clock.boot()
        self._end: Callable[[], None] = self._store.subscribe(self._follow)

    async def run(self) -> None:
        """Runs forever."""
        try:
            while True:
                await self._clock.sleep(_EVERY_SECONDS)
                while not self._is_idle():
                    await self._clock.sleep(_POLL_SECONDS)
                await self.pack()
        finally:
            self._end()

    async def pack(self, quiet_seconds: float = QUIET_SECONDS) -> None:
        """Packs everything that is at rest, as long as the controllers are idle."""
        while self._is_idle():
            revision = self._store.revision
            batch = list(islice(self._list_quiet(quiet_seconds), _BATCH))
            if not batch:
                if revision > self._store.settled_revision:
                    with suppress(NoSpace):
                        await self._store.settle(revision, ())
                return
            at_rest = []
            for number, (place, record) in enumerate(batch, 1):
                del self._changed[place]
                note = self._describe(record)
                if note is not None:
                    at_rest.append((record, note))
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
            try:
                await self._store.settle(revision, at_rest)
            except NoSpace:
                for place, _ in batch:
                    self._changed.setdefault(place, self._clock.boot())
                return  # the store has reported it

    def _list_quiet(self, quiet_seconds: float) -> Iterator[tuple[tuple[str, str], StoredRecord]]:
        before = self._clock.boot() - quiet_seconds
        for place, moment in self._changed.items():
            if moment > before:
                return
            record = self._store.get(*place)
            if record is not None:
                yield place, record

    def _describe(self, record: StoredRecord) -> bytes | None:
        obj = stored.parse(record.value)
        found = self._rules.outline(self._gvrs[record.bucket], obj)
        return None if found is None else stored.dump_outline(obj, *found)

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            record = event.record
            if record.bucket in self._gvrs:
                place = (record.bucket, record.name)
                self._changed.pop(place, None)
                if event.type is EventType.PUT:
                    self._changed[place] = self._clock.boot()
