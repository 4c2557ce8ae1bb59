"""An index from an owner's uid to the records with an ownerReference to it.

Updated synchronously by a store subscription. Used by the garbage collector and by `local_view.LocalView`. Built at the
start by searching the bytes, without parsing objects that have no owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from trainmaster.api.meta import Fields
from trainmaster.apiserver import stored
from trainmaster.store.contract import Event, EventType, Store

Place: TypeAlias = tuple[str, str]
"""(bucket, record name)"""


class OwnerIndex:
    def __init__(self, store: Store) -> None:
        self._dependents: dict[str, dict[Place, bool]] = {}
        """Owner's uid to its dependents; True if it is their controller."""
        for bucket in store.buckets():
            for record in store.scan(bucket):
                self._add(stored.owners_of(record), (bucket, record.name))
        self._end: Callable[[], None] = store.subscribe(self._follow)

    def dependents(self, uid: str) -> Sequence[Place]:
        """The records with an ownerReference to this uid, oldest entry first."""
        return tuple(self._dependents.get(uid, ()))

    def find_dependent(self, uid: str) -> Place | None:
        """The first of `dependents`."""
        return next(iter(self._dependents.get(uid, ())), None)

    def controlled(self, uid: str, bucket: str, prefix: str) -> list[str]:
        """The names in a bucket, in order, that begin with a prefix and whose controller has this uid. Reads no
        records, because the Job controller calls this for all Pods of a Job in every pass."""
        places = self._dependents.get(uid)
        if places is None:
            return []
        return sorted(
            [
                name
                for (place, name), controls in places.items()
                if controls and place == bucket and name.startswith(prefix)
            ]
        )

    def has_dependents(self, uid: str) -> bool:
        return uid in self._dependents

    def close(self) -> None:
        self._end()

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            record, previous = event.record, event.previous
            is_there = event.type is EventType.PUT
            if is_there and previous is not None and stored.has_owners_of(record, previous):
                continue
            before = stored.owners_of(previous) if previous is not None else ()
            after = stored.owners_of(record) if is_there else ()
            if not before and not after:
                continue
            place = (record.bucket, record.name)
            kept = {owner.get("uid") for owner in after}
            self._drop([owner for owner in before if owner.get("uid") not in kept], place)
            self._add(after, place)

    def _add(self, owners: Sequence[Fields], place: Place) -> None:
        controllers = {owner.get("uid", "") for owner in owners if owner.get("controller")}
        for owner in owners:
            uid = owner.get("uid", "")
            self._dependents.setdefault(uid, {})[place] = uid in controllers

    def _drop(self, owners: Iterable[Fields], place: Place) -> None:
        for owner in owners:
            uid = owner.get("uid", "")
            places = self._dependents.get(uid)
            if places is not None:
                places.pop(place, None)
                if not places:
                    del self._dependents[uid]
