"""The View of reconcilers in embedded mode: the current state of the store, parsed on demand.

Parsed objects are shared between readers (`parsed`). Listing by owner uses the index of `owners`. Listing by label
builds an index for the label key on first use and keeps it current, and so do summaries (`client.view.Summary`).

It is also the feed of the controllers (`follow`): followers are notified of a change right after its transaction, with
the parsed object of the view, without a watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver import stored
from trainmaster.apiserver.registry import ObjectRegistry
from trainmaster.client.view import S, ViewSummary
from trainmaster.store.contract import Event, EventType

_SLICE = 256
"""Existing objects are reported in slices of this size, to yield to other tasks in between."""


class LocalView:
    def __init__(self, registry: ObjectRegistry) -> None:
        self._store = registry.store
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
                    found.put(gvr, self._parse(record))
                self._summarized.setdefault(bucket, []).append((gvr, found))
        return found  # type: ignore[return-value]  # what this builder has built

    async def follow(self, gvr: GVR, notice: Callable[[Object], None]) -> None:
        """See `engine.feed.Feed`. An error of `notice` is raised here, not in the writer."""
        bucket = stored.bucket_of(gvr)
        follower = _Follower(notice)
        self._followers.setdefault(bucket, []).append(follower)
        try:
            after = ""
            while records := self._store.scan(bucket, after=after, limit=_SLICE):
                for record in records:
                    notice(self._parse(record))
                after = records[-1].name
                await asyncio.sleep(0)
            await follower.failed
        finally:
            self._followers[bucket].remove(follower)

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
        for gvr, summary in summaries:
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
