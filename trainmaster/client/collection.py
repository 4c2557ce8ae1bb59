"""The objects of one kind in memory, with indexes: the storage of a watch cache.

Objects are shared and read-only. Those that have not changed for long are packed, and unpacked when they are read,
which takes about 20 us. Of a kind that is followed as metadata, most objects have nothing else; an object that
was read or written whole replaces its metadata until the watch shows a newer version of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_text
from trainmaster.client.packing import Packer

PARTIAL = "PartialObjectMetadata"
MOST_WHOLE = 100

Key = tuple[str, str]
"""Namespace and name."""

Notice = Callable[[Object], None]
Slim = Callable[[Object], Object]
"""Returns the part of an object to keep, which must include its metadata: the same object, or a smaller one."""


def is_partial(obj: Object) -> bool:
    return obj.get("kind") == PARTIAL


def get_key(obj: Object) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def controller_uid(obj: Object) -> str:
    """The uid of the object's controller, or ""."""
    for reference in list_items(obj, "metadata", "ownerReferences"):
        if reference.get("controller"):
            return str(reference.get("uid", ""))
    return ""


def is_older(version: str, other: str) -> bool:
    """Whether a resourceVersion is older. Those of one server are compared as numbers; others are never older."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


class Collection:
    """`most_whole`: so many objects, those that changed last, are kept as they are; the others packed."""

    def __init__(self, slim: Slim | None = None, *, most_whole: int = MOST_WHOLE) -> None:
        self._slim = slim
        self.notices: list[Notice] = []
        self._namespaces: dict[str, dict[str, Object | bytes]] = {}
        self._owned: dict[str, dict[Key, None]] = {}
        self.packer = Packer()
        self._most_whole = most_whole
        self._whole: OrderedDict[Key, None] = OrderedDict()
        """Of the objects that are not packed, the one that changed last at the end."""

    def __len__(self) -> int:
        return sum(len(names) for names in self._namespaces.values())

    def find(self, namespace: str, name: str) -> Object | None:
        found = self._namespaces.get(namespace, {}).get(name)
        return self.packer.unpack(found) if isinstance(found, bytes) else found

    def all(self, namespace: str = "") -> Iterator[Object]:
        """Ordered by namespace and name; "" is all namespaces. Objects that were removed meanwhile are left out."""
        for where in (namespace,) if namespace else sorted(self._namespaces):
            for name in sorted(self._namespaces.get(where, ())):
                found = self.find(where, name)
                if found is not None:
                    yield found

    def owned(self, namespace: str, uid: str) -> Sequence[Object]:
        keys = sorted(key for key in self._owned.get(uid, ()) if key[0] == namespace)
        return [found for key in keys if (found := self.find(*key)) is not None]

    def reduce(self, obj: Object) -> Object:
        """The part of an object that is kept."""
        return obj if self._slim is None else self._slim(obj)

    def put(self, obj: Object, *, silently: bool = False, packed: bytes = b"") -> None:
        """`silently`: nobody is notified, because the watch will report the object. `packed`: the same object, if it
        has not just changed and may be packed."""
        obj = self.reduce(obj)
        key = get_key(obj)
        known = self.find(*key)
        if known is not None and is_partial(obj) and _is_same_or_newer(known, obj):
            obj = known
        else:
            self._unlink(known)
            self._namespaces.setdefault(key[0], {})[key[1]] = packed or obj
            owner = controller_uid(obj)
            if owner:
                self._owned.setdefault(owner, {})[key] = None
            self._keep_whole(key)
        if not silently:
            self._notify(obj)

    def _keep_whole(self, key: Key) -> None:
        self._whole[key] = None
        self._whole.move_to_end(key)
        while len(self._whole) > self._most_whole:
            (namespace, name), _ = self._whole.popitem(last=False)
            names = self._namespaces[namespace]
            found = names[name]
            names[name] = found if isinstance(found, bytes) else self.packer.pack(found)

    def remove(self, obj: Object, *, silently: bool = False) -> None:
        """`obj` is the last state; removes the cached object with its name."""
        key = namespace, name = get_key(obj)
        self._unlink(self.find(*key))
        names = self._namespaces.get(namespace, {})
        names.pop(name, None)
        self._whole.pop(key, None)
        if not names:
            self._namespaces.pop(namespace, None)
        if not silently:
            self._notify(obj)

    def replace(self, objects: Sequence[Object], namespace: str = "") -> None:
        """Applies a new list, of one namespace or of all: puts new and changed objects, removes those that are gone."""
        listing = self.begin_list(namespace)
        listing.add(objects)
        listing.end()

    def begin_list(self, namespace: str = "") -> Listing:
        """For a new list that comes in pages."""
        return Listing(self, namespace)

    def _unlink(self, old: Object | None) -> None:
        if old is None:
            return
        owner = controller_uid(old)
        found = self._owned.get(owner)
        if found is not None:
            found.pop(get_key(old), None)
            if not found:
                del self._owned[owner]

    def _notify(self, obj: Object) -> None:
        for notice in self.notices:
            notice(obj)


class Listing:
    """A new list of one namespace or of all. Nothing is changed before its end, because a list may break off."""

    def __init__(self, collection: Collection, namespace: str) -> None:
        self._collection = collection
        self._namespace = namespace
        self._listed: dict[Key, bytes] = {}

    def add(self, objects: Iterable[Object]) -> None:
        """One page."""
        for obj in objects:
            self._listed[get_key(obj)] = self._collection.packer.pack(self._collection.reduce(obj))

    def end(self) -> None:
        collection = self._collection
        for old in collection.all(self._namespace):
            if get_key(old) not in self._listed:
                collection.remove(old)
        for key, packed in self._listed.items():
            obj = collection.packer.unpack(packed)
            before = collection.find(*key)
            if before is not None and before["metadata"].get("uid") != obj["metadata"].get("uid"):
                # Another object of the same name: whoever follows objects has to know that the first is gone.
                collection.remove(before)
                before = None
            if before is None or before["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
                collection.put(obj, packed=packed)


def _is_same_or_newer(known: Object, partial: Object) -> bool:
    """Whether a whole object in memory is not older than the metadata that the watch reports of it."""
    mine, new = known["metadata"], partial["metadata"]
    return (
        not is_partial(known)
        and mine.get("uid") == new.get("uid")
        and not is_older(read_text(mine, "resourceVersion"), read_text(new, "resourceVersion"))
    )
