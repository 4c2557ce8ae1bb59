"""The View of reconcilers in embedded mode: the current state of the store, parsed on demand.

Parsed objects are shared between readers (`parsed`). Listing by owner uses the index of `owners`. Listing by label
builds an index for the label key on first use and keeps it current, and so do summaries (`client.view.Summary`).

It is also the feed of the controllers (`follow`): followers are notified of a change right after its transaction, with
the parsed object of the view, without a watch. Existing objects at rest (`at_rest`) are not reported before they are
due: no controller has anything to do for them until then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver import stored
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.client.contract import ObjectList
from trainmaster.client.view import RestingSummary, S, ViewSummary
from trainmaster.store.contract import Event, EventType

_SLICE = 256
"""Existing objects are reported in slices of this size, to yield to other tasks in between."""
_LONGEST_WAIT = 60.0

Alarms: TypeAlias = deque[tuple[float, str]]
"""(boot time, record name), in order."""


class LocalView:
    def __init__(self, registry: ObjectRegistry) -> None:
        self._store = registry.store
        self._clock = registry.state.clock
        self._parse = registry.state.parsed.get
        self._parse_all = registry.state.parsed.get_all
        self._owners = registry.owners
        self._labels: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
        """(bucket, label key) to label value to record names."""
        self._summaries: dict[object, ViewSummary] = {}
        """Builder to its summary."""
        self._summarized: dict[str, list[tuple[GVR, ViewSummary]]] = {}
        """The same by bucket."""
        self._followers: dict[str, list[_Follower]] = {}
        self._end: Callable[[], None] = self._store.subscribe(self._follow)

    def close(self) -> None:
        self._end()

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        record = self._store.get(stored.bucket_of(gvr), f"{namespace}/{name}" if namespace else name)
        return None if record is None else self._parse(record)

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        bucket = stored.bucket_of(gvr)
        prefix = f"{namespace}/" if namespace else ""
        if not labels:
            return self._parse_all(self._store.scan(bucket, prefix))
        names = min((self._named(bucket, key, value) for key, value in labels.items()), key=len)
        records = self._store.get_all(bucket, sorted([name for name in names if name.startswith(prefix)]))
        if len(labels) > 1:
            wanted = labels.items()
            records = [record for record in records if wanted <= stored.labels_of(record).items()]
        return self._parse_all(records)

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        bucket = stored.bucket_of(gvr)
        names = self._owners.controlled(owner_uid, bucket, f"{namespace}/")
        return self._parse_all(self._store.get_all(bucket, names))

    def summary(self, build: Callable[[], S]) -> S:
        found = self._summaries.get(build)
        if found is None:
            found = self._summaries[build] = build()
            for gvr in found.gvrs:
                bucket = stored.bucket_of(gvr)
                for record in self._store.scan(bucket):
                    if not record.is_packed:
                        found.put(gvr, self._parse(record))
                    elif found.counts_at_rest:
                        found.put(gvr, stored.load_outline(record))
                self._summarized.setdefault(bucket, []).append((gvr, found))
        return found  # type: ignore[return-value]  # what this builder has built

    async def list_active(self, gvr: GVR, namespace: str = "") -> ObjectList:
        """The objects that are not at rest, for `client.follow`."""
        records = self._store.scan(stored.bucket_of(gvr), f"{namespace}/" if namespace else "")
        active = [self._parse(record) for record in records if not record.is_packed]
        return ObjectList(active, str(self._store.revision))

    def list_at_rest(self, gvr: GVR) -> Iterator[tuple[str, str, str]]:
        records = self._store.scan(stored.bucket_of(gvr))
        return ((stored.uid_of(record), *stored.split_name(record.name)) for record in records if record.is_packed)

    def list_outlines(self, gvr: GVR) -> Iterator[Object]:
        """Of the objects at rest. Those that change while this is consumed may be left out."""
        for records in stored.scan_in_slices(self._store, stored.bucket_of(gvr), _SLICE):
            yield from (stored.load_outline(record) for record in records if record.is_packed)

    async def follow(self, gvr: GVR, notice: Callable[[Object], None]) -> None:
        """See `engine.feed.Feed`. An error of `notice` is raised here, not in the writer."""
        bucket = stored.bucket_of(gvr)
        follower = _Follower(notice)
        self._followers.setdefault(bucket, []).append(follower)
        found: Alarms = deque()
        boot, unix = self._clock.boot(), self._clock.unix()
        try:
            for deleted in self._list_deleted(bucket):
                notice(deleted)
            for records in stored.scan_in_slices(self._store, bucket, _SLICE):
                for record in records:
                    if not record.is_packed:
                        notice(self._parse(record))
                    elif (due := stored.find_due(record)) is not None:
                        moment, most = due
                        # The clock was set back behind the end of the job: its time begins again, with a first look.
                        left = moment - unix if moment - unix <= most else 0.0
                        found.append((boot + left, record.name))
                await asyncio.sleep(0)
            alarms = deque(sorted(found))
            while alarms and not follower.failed.done():
                await self._wait_until(alarms[0][0], follower.failed)
                self._report_due(bucket, alarms, notice)
                await asyncio.sleep(0)
            await follower.failed
        finally:
            self._followers[bucket].remove(follower)

    def _list_deleted(self, bucket: str) -> Sequence[Object]:
        """Since the controllers were last idle: deletions that they may not have seen and that may concern objects at
        rest, such as that of a policy."""
        settled = self._store.settled_revision
        return [
            stored.parse(event.record.value)
            for event in (self._store.history(bucket) if settled else ())
            if event.type is EventType.DELETE and event.record.revision > settled
        ]

    async def _wait_until(self, moment: float, failed: asyncio.Future[None]) -> None:
        """In boot time; not longer than a minute, because the loop's timers stop while the machine sleeps."""
        delay = moment - self._clock.boot()
        if delay > 0:
            await asyncio.wait((failed,), timeout=min(delay, _LONGEST_WAIT))

    def _report_due(self, bucket: str, alarms: Alarms, notice: Callable[[Object], None]) -> None:
        """Those that changed since were reported then."""
        now, most = self._clock.boot(), _SLICE
        while alarms and alarms[0][0] <= now and most:
            record = self._store.get(bucket, alarms.popleft()[1])
            most -= 1
            if record is not None and record.is_packed:
                notice(self._parse(record))

    def _named(self, bucket: str, key: str, value: str) -> dict[str, None]:
        index = self._labels.get((bucket, key))
        if index is None:
            index = self._labels[(bucket, key)] = {}
            for record in self._store.scan(bucket):
                found = stored.labels_of(record).get(key)
                if found is not None:
                    index.setdefault(found, {})[record.name] = None
        return index.get(value, {})

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            record = event.record
            for (bucket, key), index in self._labels.items():
                if bucket == record.bucket:
                    _move(index, key, event)
            if (summaries := self._summarized.get(record.bucket)) is not None:
                self._tell(summaries, event)
        # After the view shows the whole transaction.
        for event in events:
            followers = self._followers.get(event.record.bucket)
            if followers:
                is_there = event.type is EventType.PUT
                obj = self._parse(event.record) if is_there else stored.parse(event.record.value)
                for follower in followers:
                    follower.tell(obj)

    def _tell(self, summaries: Sequence[tuple[GVR, ViewSummary]], event: Event) -> None:
        previous = event.previous
        for gvr, summary in summaries:
            if previous is not None and previous.is_packed and isinstance(summary, RestingSummary):
                summary.end_rest(gvr, stored.load_outline(previous))
            if event.type is EventType.PUT:
                summary.put(gvr, self._parse(event.record))
            else:
                summary.drop(gvr, *stored.split_name(event.record.name))


class _Follower:
    __slots__ = ("_notice", "failed")

    def __init__(self, notice: Callable[[Object], None]) -> None:
        self._notice = notice
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(self, obj: Object) -> None:
        try:
            self._notice(obj)
        except Exception as error:  # noqa: BLE001 - raised in `follow`
            if not self.failed.done():
                self.failed.set_exception(error)


def _move(index: dict[str, dict[str, None]], key: str, event: Event) -> None:
    old = stored.labels_of(event.previous) if event.previous is not None else stored.NO_LABELS
    new = stored.labels_of(event.record) if event.type is EventType.PUT else stored.NO_LABELS
    if new is old:
        return
    before, after = old.get(key), new.get(key)
    if before == after:
        return
    name = event.record.name
    if before is not None:
        names = index.get(before)
        if names is not None:
            names.pop(name, None)
            if not names:
                del index[before]
    if after is not None:
        index.setdefault(after, {})[name] = None
