"""What the verbs share: the store, the kinds, time, ids and the admission chain. One per Registry.

Invariant: every change of the store goes through `put` or `remove` here, which stamp the revision into the bytes and
leave the parsed labels on the record, before any subscriber sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from trainmaster.api.kinds import Catalogue, Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission import Admission
from trainmaster.apiserver.contract import Call, Written
from trainmaster.client.contract import WriteOptions
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.ids import Ids
from trainmaster.store.contract import ABSENT, Record, Store

Reviewer: TypeAlias = Callable[[Call, Object], Object]
"""Answers a review kind: takes the posted object, returns it with its status."""
SubresourceCreator: TypeAlias = Callable[[Call, Kind, str, str, Object, WriteOptions], Written]
"""Serves POST on a subresource: (call, kind, namespace, name, body, options)."""


@dataclass(slots=True)
class State:
    store: Store
    catalogue: Catalogue
    clock: Clock
    ids: Ids
    admission: Admission = field(default_factory=Admission)
    reviewers: Mapping[GVR, Reviewer] = field(default_factory=dict)
    creators: dict[tuple[GVR, str], SubresourceCreator] = field(default_factory=dict)
    _second: int = -1
    _now: str = ""

    def now(self) -> str:
        """The wall time as metav1.Time; formatted once per second."""
        second = int(self.clock.unix())
        if second != self._second:
            self._second = second
            self._now = format_time(datetime.fromtimestamp(second, UTC))
        return self._now

    def find(self, kind: Kind, namespace: str, name: str) -> Record | None:
        return self.store.get(kind.collection, f"{namespace}/{name}" if kind.namespaced else name)

    def read(self, kind: Kind, record: Record) -> Object:
        """The object as this kind shows it."""
        obj = stored.parse(record.value)
        return kind.from_storage(obj) if kind.from_storage else obj

    def show(self, kind: Kind, record: Record) -> bytes:
        """The bytes as this kind shows them; the stored ones wherever the kind is stored as itself."""
        return record.value if kind.from_storage is None else stored.dump(self.read(kind, record))

    def put(self, kind: Kind, obj: Object, previous: Record | None) -> Record:
        """Stores the object at the next revision, in place of `previous`."""
        store = self.store
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(store.revision + 1)
        name = stored.record_name(kind, metadata.get("namespace", ""), metadata["name"])
        value = stored.dump(kind.to_storage(obj) if kind.to_storage else obj)
        expect = ABSENT if previous is None else previous.revision
        labels = metadata.get("labels") or stored.NO_LABELS
        return store.put(kind.collection, name, value, expect=expect, memo=labels)

    def remove(self, kind: Kind, obj: Object, previous: Record) -> Record:
        """Removes the object; watchers get its last state under the revision of the deletion."""
        store = self.store
        metadata = obj["metadata"]
        last = {**obj, "metadata": {**metadata, "resourceVersion": str(store.revision + 1)}}
        value = stored.dump(kind.to_storage(last) if kind.to_storage else last)
        labels = metadata.get("labels") or stored.NO_LABELS
        return store.delete(previous.bucket, previous.name, value, expect=previous.revision, memo=labels)
