"""Takes running jobs over from one store into another, for `restore --keep-running`.

A job is kept as it is now: with everything that it owns, and what its Pods refer to if the other store lacks it. What
the other store has of the same job, in an earlier state, is replaced. All or nothing: a Pod that cannot be kept is an
error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    TRAINING_RUNTIMES,
)
from trainmaster.apiserver import stored
from trainmaster.store.contract import Store, StoreError

_REFERENCES = {
    "configMap": ("name", CONFIG_MAPS),
    "configMapRef": ("name", CONFIG_MAPS),
    "configMapKeyRef": ("name", CONFIG_MAPS),
    "secret": ("secretName", SECRETS),
    "secretRef": ("name", SECRETS),
    "secretKeyRef": ("name", SECRETS),
    "persistentVolumeClaim": ("claimName", PERSISTENT_VOLUME_CLAIMS),
}
"""Field of a Pod's spec -> (the field in it that names an object, its collection)."""

Address = tuple[str, str]
"""(bucket, name of the record)"""


@dataclass(frozen=True, slots=True)
class _Index:
    """All objects of a store."""

    objects: dict[Address, Object]
    by_uid: dict[str, Address]
    owned: dict[str, list[str]]
    """Uid of an owner -> uids of what it owns."""

    def find_root(self, uid: str) -> str:
        """The topmost object that controls it, in its namespace; the object itself if there is none."""
        seen = {uid}
        while (above := self._find_controller(uid)) not in (None, *seen):
            assert above is not None
            uid = above
            seen.add(uid)
        return uid

    def _find_controller(self, uid: str) -> str | None:
        owners = self.objects[self.by_uid[uid]]["metadata"].get("ownerReferences") or ()
        above = next((owner["uid"] for owner in owners if owner.get("controller")), None)
        return above if above is not None and self.is_beside(above, uid) else None

    def is_beside(self, uid: str, other: str) -> bool:
        """Whether both exist in the same namespace. Owners elsewhere do not count, because users write references."""
        addresses = [self.by_uid[one] for one in (uid, other) if one in self.by_uid]
        return len(addresses) == 2 and len({stored.split_name(name)[0] for _, name in addresses}) == 1

    def list_family(self, root: str) -> set[Address]:
        """The object and everything below it in its namespace."""
        found, left = set(), [root]
        while left:
            uid = left.pop()
            if self.is_beside(uid, root) and self.by_uid[uid] not in found:
                found.add(self.by_uid[uid])
                left += self.owned.get(uid, ())
        return found


def carry_over(old: Store, new: Store, pods: Collection[str]) -> None:
    """Takes over the jobs of these Pods, by uid. Raises StoreError, and changes nothing, if a Pod cannot be kept."""
    before, after = _read(old), _read(new)
    gone = [uid for uid in pods if uid not in before.by_uid]
    if gone:
        raise StoreError(f"running Pods cannot be kept: the store no longer has {', '.join(sorted(gone))}")
    roots = {before.find_root(uid) for uid in pods}
    kept = set().union(*(before.list_family(root) for root in roots))
    replaced = set().union(*(after.list_family(root) for root in roots))
    kept |= {address for address in _list_references(before, kept) if address not in after.objects}
    for address in sorted(kept - replaced):
        _check(after, address)
    with new.transaction():
        for bucket, name in sorted(replaced):
            new.delete(bucket, name, stored.dump(_stamp(after.objects[bucket, name], new)))
        for bucket, name in sorted(kept):
            new.put(bucket, name, stored.dump(_stamp(before.objects[bucket, name], new)))


def _read(store: Store) -> _Index:
    index = _Index({}, {}, {})
    for bucket in store.buckets():
        for record in store.scan(bucket):
            obj = stored.parse(record.value)
            index.objects[bucket, record.name] = obj
            index.by_uid[obj["metadata"]["uid"]] = (bucket, record.name)
            for owner in obj["metadata"].get("ownerReferences") or ():
                index.owned.setdefault(owner["uid"], []).append(obj["metadata"]["uid"])
    return index


def _check(after: _Index, address: Address) -> None:
    namespace, _ = stored.split_name(address[1])
    if namespace and (NAMESPACES.collection, namespace) not in after.objects:
        raise StoreError(f"running Pods cannot be kept: the backup has no namespace {namespace}")
    if address in after.objects:
        raise StoreError(f"running Pods cannot be kept: the backup has another {' '.join(address)}")


def _stamp(obj: Object, store: Store) -> Object:
    """With the revision of the next write, which a stored object contains."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(store.revision + 1)}}


def _list_references(index: _Index, family: Iterable[Address]) -> Iterator[Address]:
    """What the objects of a job refer to without owning it, as far as it exists."""
    for bucket, name in family:
        obj, (namespace, _) = index.objects[bucket, name], stored.split_name(name)
        named = list(_walk(obj["spec"])) if bucket == PODS.collection else []
        runtime = read_fields(obj, "spec", "runtimeRef").get("name", "")
        named += [(TRAINING_RUNTIMES.collection, runtime), (CLUSTER_TRAINING_RUNTIMES.collection, runtime)]
        named.append((SERVICE_ACCOUNTS.collection, read_fields(obj, "spec").get("serviceAccountName", "")))
        for kind, other in named:
            for address in ((kind, f"{namespace}/{other}"), (kind, other)):
                if address in index.objects:
                    yield address
                    volume = read_fields(index.objects[address], "spec").get("volumeName", "")
                    if (PERSISTENT_VOLUMES.collection, volume) in index.objects:
                        yield PERSISTENT_VOLUMES.collection, volume


def _walk(value: Any) -> Iterator[Address]:
    if isinstance(value, list):
        for item in value:
            yield from _walk(item)
    elif isinstance(value, dict):
        for field, item in value.items():
            if field in _REFERENCES and isinstance(item, dict):
                key, gvr = _REFERENCES[field]
                # Sources of a projected volume name a Secret as `name`.
                yield gvr.collection, str(item.get(key) or item.get("name") or "")
            yield from _walk(item)
