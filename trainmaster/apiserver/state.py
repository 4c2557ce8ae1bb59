"""State shared by the verbs: the store, the kinds, the clock, ids and the admission chain. One per registry.

Invariant: every change of the store goes through `put` or `remove`, which write the revision into the bytes and attach
the parsed labels to the record before any subscriber sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import Admission
from trainmaster.apiserver.admission.sizes import ObjectLimits
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.parsed import ParsedObjects
from trainmaster.client.contract import WriteOptions
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.ids import Ids
from trainmaster.store.contract import ABSENT, NoSpace, Store, StoredRecord

Reviewer: TypeAlias = Callable[[Call, Object], Object]
"""Handles a review kind: takes the posted object, returns it with its status."""
SubresourceCreator: TypeAlias = Callable[[Call, Kind, str, str, Object, WriteOptions], Written]
"""Handles POST on a subresource: (call, kind, namespace, name, body, options)."""


_SMALL = 64 * 1024
"""Smaller objects need not be measured, because the limits cannot be set below this."""


@dataclass(slots=True)
class RegistryState:
    store: Store
    catalogue: Catalogue
    clock: Clock
    ids: Ids
    admission: Admission = field(default_factory=Admission)
    reviewers: Mapping[GVR, Reviewer] = field(default_factory=dict)
    creators: dict[tuple[GVR, str], SubresourceCreator] = field(default_factory=dict)
    parsed: ParsedObjects = field(default_factory=ParsedObjects)
    limits: ObjectLimits = field(default_factory=ObjectLimits)
    proves: bool = False
    """For tests: checks what our own controllers guarantee of their writes (`verbs.proofs`)."""
    _second: int = -1
    _now: str = ""

    def now(self) -> str:
        """The wall time as metav1.Time; formatted once per second."""
        second = int(self.clock.unix())
        if second != self._second:
            self._second = second
            self._now = format_time(datetime.fromtimestamp(second, UTC))
        return self._now

    def find(self, kind: Kind, namespace: str, name: str) -> StoredRecord | None:
        return self.store.get(kind.collection, f"{namespace}/{name}" if kind.namespaced else name)

    def find_shared(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        """The stored object, shared and read-only; for kinds that are stored as themselves."""
        record = self.store.get(gvr.collection, f"{namespace}/{name}" if namespace else name)
        return None if record is None else self.parsed.get(record)

    def peek(self, kind: Kind, record: StoredRecord) -> Object:
        """Like `read`, but the object is shared: copy the branch that you change."""
        obj = self.parsed.get(record)
        return kind.from_storage(obj) if kind.from_storage else obj

    def read(self, kind: Kind, record: StoredRecord) -> Object:
        """A copy of the object, in the representation of this kind."""
        obj = stored.parse(record.value)
        return kind.from_storage(obj) if kind.from_storage else obj

    def show(self, kind: Kind, record: StoredRecord) -> bytes:
        """The bytes in the representation of this kind; the stored bytes if the kind is stored as itself."""
        return record.value if kind.from_storage is None else stored.dump(self.read(kind, record))

    def put(self, kind: Kind, obj: Object, previous: StoredRecord | None, *, arranged: bool = False) -> StoredRecord:
        """Stores the object at the next revision, replacing `previous`. The object must not be changed afterwards.

        `arranged`: its fields are already in the stored order.
        """
        store, parsed = self.store, self.parsed
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(store.revision + 1)
        if kind.to_storage is not None:
            obj = kind.to_storage(obj)
            metadata = obj["metadata"]
        if not arranged:
            obj = stored.arrange(obj)
        value = orjson.dumps(obj)
        if len(value) > _SMALL:
            self._check_size(obj, value, previous)
        memo = stored.RecordMemo(metadata.get("labels") or stored.NO_LABELS, obj)
        if previous is None:
            name = f"{metadata['namespace']}/{metadata['name']}" if kind.namespaced else metadata["name"]
            try:
                record = store.put(kind.collection, name, value, expect=ABSENT, memo=memo)
            except NoSpace as error:
                raise status.insufficient_storage(str(error)) from None
        else:
            before: stored.RecordMemo | None = previous.memo
            if before is not None and before.obj is not None:
                memo.same_owners = before.obj["metadata"].get("ownerReferences") == metadata.get("ownerReferences")
            try:
                record = store.put(previous.bucket, previous.name, value, expect=previous.revision, memo=memo)
            except NoSpace as error:
                raise status.insufficient_storage(str(error)) from None
            parsed.drop(previous)
        parsed.note(record)
        return record

    def _check_size(self, obj: Object, value: bytes, previous: StoredRecord | None) -> None:
        if previous is not None and "deletionTimestamp" in obj["metadata"]:
            # Size limits must not prevent the deletion of an object.
            return
        self.limits.check_stored(obj, value, None if previous is None else previous.value)

    def show_unwritten(self, obj: Object, previous: StoredRecord | None) -> bytes:
        """The response to a dry run."""
        value = stored.dump(obj)
        self._check_size(obj, value, previous)
        return value

    def remove(self, kind: Kind, obj: Object, previous: StoredRecord) -> StoredRecord:
        """Removes the object; watchers get its last state with the revision of the deletion."""
        store = self.store
        metadata = obj["metadata"]
        last = {**obj, "metadata": {**metadata, "resourceVersion": str(store.revision + 1)}}
        if kind.to_storage is not None:
            last = kind.to_storage(last)
        memo = stored.RecordMemo(metadata.get("labels") or stored.NO_LABELS)
        value = stored.dump(last)
        try:
            record = store.delete(previous.bucket, previous.name, value, expect=previous.revision, memo=memo)
        except NoSpace as error:
            raise status.insufficient_storage(str(error)) from None
        self.parsed.drop(previous)
        return record
