"""Owner-reference garbage collection.

An object whose owners are all deleted is deleted. An owner with foreground deletion stays until its blocking dependents
are gone; one with orphan deletion stays until the owner references of its dependents are removed. Owners are identified
by uid. Dependents of owners whose kind is not served here are ignored.

Triggered by events of the store and, after a restart, by one pass over all objects with owners. Each decision is one
idempotent transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items
from trainmaster.api.status import NotFound
from trainmaster.apiserver import stored
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.owners import OwnerIndex, Place
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import delete, update
from trainmaster.apiserver.verbs.metadata import FOREGROUND, ORPHAN
from trainmaster.apiserver.work import KeyedWorker
from trainmaster.client.contract import ActingIdentity, DeleteOptions
from trainmaster.store.contract import Event, EventType, StoredRecord

_SLICE = 100
"""Records looked at before yielding to other tasks; less than a millisecond."""
_WORKED_OFF = frozenset((FOREGROUND, ORPHAN))
COLLECTOR = ActingIdentity("system:serviceaccount:kube-system:generic-garbage-collector", groups=("system:masters",))


@dataclass(slots=True)
class _Item:
    """A record under consideration."""

    kind: Kind
    record: StoredRecord
    obj: Object

    @property
    def metadata(self) -> Object:
        found: Object = self.obj["metadata"]
        return found

    @property
    def uid(self) -> str:
        return str(self.metadata["uid"])

    @property
    def deleting_dependents(self) -> bool:
        return _awaits_dependents(self.metadata)


class GarbageCollector:
    def __init__(self, state: RegistryState, index: OwnerIndex) -> None:
        self._state = state
        self._index = index
        self.worker: KeyedWorker[Place] = KeyedWorker("garbage-collector", self._collect, state.clock, state.store)
        self._kinds = {stored.bucket(kind): kind for kind in state.catalogue.kinds if kind.storage is None}
        self._end: Callable[[], None] = state.store.subscribe(self._follow)
        self._looked = asyncio.Event()

    @property
    def busy(self) -> bool:
        return not self._looked.is_set() or self.worker.busy

    async def idle(self) -> None:
        await self._looked.wait()
        await self.worker.idle()

    async def run(self) -> None:
        await self._scan_for_garbage()
        self._looked.set()
        await self.worker.run()

    def close(self) -> None:
        self._end()

    async def _scan_for_garbage(self) -> None:
        """Finds work that a stop may have interrupted: deleted owners and unfinished deletions. In slices."""
        store = self._state.store
        for bucket in store.buckets():
            for records in stored.scan_in_slices(store, bucket, _SLICE):
                for record in records:
                    if _is_unfinished(record) or not self._has_owners(record):
                        self.worker.add((bucket, record.name))
                await asyncio.sleep(0)

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            record, previous = event.record, event.previous
            if event.type is EventType.DELETE:
                owners = stored.peek_owners(record.value)
                if self._index.has_dependents(stored.peek_uid(record.value)):
                    for place in self._index.dependents(stored.peek_uid(record.value)):
                        self.worker.add(place)
                self._add_owners(owners, record)
                continue
            if previous is None or not stored.has_owners_of(record, previous):
                if previous is not None:
                    self._add_owners(stored.owners_of(previous), record)
                if not self._has_owners(record):
                    self.worker.add((record.bucket, record.name))
            if _is_unfinished(record):
                self.worker.add((record.bucket, record.name))

    def _has_owners(self, record: StoredRecord) -> bool:
        """Whether all owners exist and none is being deleted. True if there are none."""
        for owner in stored.owners_of(record):
            found = self._locate(owner, record)
            if found is None:
                return False
            if stored.uid_of(found) != owner.get("uid") or stored.is_deleting(found):
                return False
        return True

    def _add_owners(self, owners: Sequence[Fields], record: StoredRecord) -> None:
        """Queues the owners of a deleted dependent, which may be waiting for it."""
        for owner in owners:
            found = self._locate(owner, record)
            if found is not None and _is_unfinished(found) and not self._is_blocked(found, owner.get("uid", "")):
                self.worker.add((found.bucket, found.name))

    def _is_blocked(self, owner: StoredRecord, uid: str) -> bool:
        """Whether the first dependent of an owner blocks its deletion. The end of that one is noticed too, so the owner
        need not go through all of them now. An object in another namespace does not block."""
        first = self._index.find_dependent(uid)
        namespace, _ = stored.split_name(owner.name)
        is_near = first is not None and (not namespace or stored.split_name(first[1])[0] == namespace)
        return is_near and first is not None and self._blocks(first, uid)

    def _collect(self, place: Place) -> None:
        with self._state.store.transaction():
            item = self._find(place)
            if item is None:
                return
            finalizers = list_items(item.metadata, "finalizers")
            if "deletionTimestamp" in item.metadata:
                if ORPHAN in finalizers:
                    self._orphan_dependents(item)
                elif FOREGROUND in finalizers:
                    self._await_dependents(item)
            elif item.metadata.get("ownerReferences"):
                self._judge(item)

    def _find(self, place: Place) -> _Item | None:
        kind = self._kinds.get(place[0])
        record = self._state.store.get(*place)
        if kind is None or record is None:
            return None
        return _Item(kind, record, self._state.parsed.get(record))

    def _judge(self, item: _Item) -> None:
        """Deletes the item if it has no owners left, else removes the references to deleted owners."""
        solid, waiting, dangling = self._classify(item)
        if solid is None:
            return
        references = item.metadata["ownerReferences"]
        if solid:
            if waiting or dangling:
                kept = [owner for owner in references if owner["uid"] in solid]
                self._rewrite(item, ownerReferences=kept)
            return
        if waiting and (dependents := self._read_dependents(item)):
            if any(dependent.deleting_dependents for dependent in dependents):
                # Owners form a cycle: an object found again must not block.
                free = [{**owner, "blockOwnerDeletion": False} for owner in references]
                self._rewrite(item, ownerReferences=free)
                item = self._find((item.record.bucket, item.record.name)) or item
            self._delete(item, "Foreground")
            return
        finalizers = list_items(item.metadata, "finalizers")
        policy = "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
        self._delete(item, policy)

    def _classify(self, item: _Item) -> tuple[set[str] | None, set[str], set[str]]:
        """Uids of owners that exist, that wait for dependents, and that are deleted; None if a kind is unknown."""
        solid: set[str] = set()
        waiting: set[str] = set()
        dangling: set[str] = set()
        for owner in item.metadata["ownerReferences"]:
            if self._kind_of(owner, item.kind) is None:
                return None, waiting, dangling
            record = self._locate(owner, item.record)
            found = None if record is None else self._state.parsed.get(record)["metadata"]
            if found is None or found["uid"] != owner["uid"]:
                dangling.add(owner["uid"])
            elif _awaits_dependents(found):
                waiting.add(owner["uid"])
            else:
                solid.add(owner["uid"])
        return solid, waiting, dangling

    def _kind_of(self, owner: Fields, dependent: Kind) -> Kind | None:
        kind = self._state.catalogue.find_type(str(owner.get("apiVersion", "")), str(owner.get("kind", "")))
        if kind is None or (kind.namespaced and not dependent.namespaced):
            return None
        return kind

    def _locate(self, owner: Fields, dependent: StoredRecord) -> StoredRecord | None:
        """The record with the kind and name of the reference; its uid may differ."""
        kind = self._state.catalogue.find_type(str(owner.get("apiVersion", "")), str(owner.get("kind", "")))
        if kind is None:
            return None
        namespace, _ = stored.split_name(dependent.name)
        return self._state.find(kind, namespace, str(owner.get("name", "")))

    def _await_dependents(self, item: _Item) -> None:
        """Foreground deletion: deletes blocking dependents, and removes the owner's finalizer if none is left."""
        blocking = [place for place in self._list_dependents(item) if self._blocks(place, item.uid)]
        if not blocking:
            self._rewrite(item, finalizers=[name for name in item.metadata["finalizers"] if name != FOREGROUND])
            return
        for place in blocking:
            self.worker.add(place)

    def _list_dependents(self, item: _Item) -> list[Place]:
        """The dependents of the item. A namespaced object cannot own objects outside its namespace."""
        places = self._index.dependents(item.uid)
        if not item.kind.namespaced:
            return list(places)
        prefix = f"{item.metadata['namespace']}/"
        return [place for place in places if place[1].startswith(prefix)]

    def _read_dependents(self, item: _Item) -> list[_Item]:
        return [found for place in self._list_dependents(item) if (found := self._find(place)) is not None]

    def _blocks(self, place: Place, uid: str) -> bool:
        record = self._state.store.get(*place)
        if record is None:
            return False
        owners = stored.owners_of(record)
        return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _orphan_dependents(self, item: _Item) -> None:
        for place in self._list_dependents(item):
            dependent = self._find(place)
            if dependent is not None:
                owners = list_items(dependent.metadata, "ownerReferences")
                self._rewrite(dependent, ownerReferences=[owner for owner in owners if owner["uid"] != item.uid])
        self._rewrite(item, finalizers=[name for name in item.metadata["finalizers"] if name != ORPHAN])

    def _rewrite(self, item: _Item, **metadata: Sequence[object]) -> None:
        """Stores the item with changed metadata; empty lists are removed."""
        changed = {**item.metadata, **metadata}
        for name, value in metadata.items():
            if not value:
                del changed[name]
        new = {**item.obj, "metadata": changed}
        update.store_change(self._state, update.ObjectUpdate(item.kind, item.record, item.obj, new))

    def _delete(self, item: _Item, policy: str) -> None:
        metadata = item.metadata
        options = DeleteOptions(policy, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        call = Call(COLLECTOR, is_own=True)
        try:
            delete.delete(self._state, call, item.kind, metadata.get("namespace", ""), metadata["name"], options)
        except NotFound:
            return


def _awaits_dependents(metadata: Fields) -> bool:
    """Whether the object is deleted in the foreground and waits for its blocking dependents."""
    return "deletionTimestamp" in metadata and FOREGROUND in list_items(metadata, "finalizers")


def _is_unfinished(record: StoredRecord) -> bool:
    """Whether the object is deleted and has a finalizer of the garbage collector."""
    memo: stored.RecordMemo | None = record.memo
    if memo is not None and memo.obj is not None:
        metadata = memo.obj["metadata"]
        return "deletionTimestamp" in metadata and not _WORKED_OFF.isdisjoint(list_items(metadata, "finalizers"))
    if record.is_packed:
        return False
    value = record.value
    if b'"foregroundDeletion"' not in value and b'"orphan"' not in value:
        return False
    return bool(stored.peek_deletion(value))
