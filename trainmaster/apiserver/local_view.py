"""The View that reconcilers read when embedded: the store's own state, always current, parsed when first looked at.

Parsed objects are kept in a bounded cache, keyed by revision, and shared between readers. Listing by owner uses the
index of `owners`; listing by label builds an index for a label key the first time somebody asks for it, and keeps it
current from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver import stored
from trainmaster.apiserver.registry import Registry
from trainmaster.store.contract import Event, EventType, Record

_PARSED = 8192
"""Parsed objects kept. About 30 MB when full, and far more than one pass over the active jobs reads."""


class LocalView:
    def __init__(self, registry: Registry) -> None:
        self._store = registry.store
        self._owners = registry.owners
        self._parsed: dict[tuple[str, str], tuple[int, Object]] = {}
        self._labels: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
        """(bucket, label key) to label value to record names."""
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
            return [self._parse(record) for record in self._store.scan(bucket, prefix)]
        names = min((self._named(bucket, key, value) for key, value in labels.items()), key=len)
        records = [
            record
            for name in sorted(names)
            if name.startswith(prefix) and (record := self._store.get(bucket, name)) is not None
        ]
        wanted = labels.items()
        return [self._parse(record) for record in records if wanted <= stored.labels_of(record).items()]

    def owned(self, gvr: GVR, owner_uid: str) -> Sequence[Object]:
        bucket = stored.bucket_of(gvr)
        names = sorted(name for place, name in self._owners.dependents(owner_uid) if place == bucket)
        found = []
        for name in names:
            record = self._store.get(bucket, name)
            if record is not None and _controls(owner_uid, record):
                found.append(self._parse(record))
        return found

    def _parse(self, record: Record) -> Object:
        key = (record.bucket, record.name)
        known = self._parsed.get(key)
        if known is not None and known[0] == record.revision:
            return known[1]
        obj = stored.parse(record.value)
        if len(self._parsed) >= _PARSED:
            self._parsed.pop(next(iter(self._parsed)))
        self._parsed[key] = (record.revision, obj)
        return obj

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
            if event.type is EventType.DELETE:
                self._parsed.pop((record.bucket, record.name), None)
            for (bucket, key), index in self._labels.items():
                if bucket == record.bucket:
                    _move(index, key, event)


def _move(index: dict[str, dict[str, None]], key: str, event: Event) -> None:
    before = stored.labels_of(event.previous).get(key) if event.previous is not None else None
    after = stored.labels_of(event.record).get(key) if event.type is EventType.PUT else None
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


def _controls(uid: str, record: Record) -> bool:
    return any(owner.get("uid") == uid and owner.get("controller") for owner in stored.peek_owners(record.value))
