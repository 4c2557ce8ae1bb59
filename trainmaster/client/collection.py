"""The objects of one kind in memory, with indexes: the storage of a watch cache.

Objects are shared and read-only. Of a kind that is followed as metadata, most objects have nothing else; an object that
was read or written whole replaces its metadata until the watch shows a newer version of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_text

PARTIAL = "PartialObjectMetadata"

Notice = Callable[[Object], None]
Slim = Callable[[Object], Object]
"""Returns the part of an object to keep, which must include its metadata: the same object, or a smaller one."""


def is_partial(obj: Object) -> bool:
    return obj.get("kind") == PARTIAL


def get_key(obj: Object) -> tuple[str, str]:
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
    def __init__(self, slim: Slim | None = None) -> None:
        self._slim = slim
        self.notices: list[Notice] = []
        self._namespaces: dict[str, dict[str, Object]] = {}
        self._owned: dict[str, dict[tuple[str, str], Object]] = {}

    def __len__(self) -> int:
        return sum(len(names) for names in self._namespaces.values())

    def find(self, namespace: str, name: str) -> Object | None:
        return self._namespaces.get(namespace, {}).get(name)

    def all(self, namespace: str = "") -> Iterator[Object]:
        """Ordered by namespace and name; "" is all namespaces."""
        for where in (namespace,) if namespace else sorted(self._namespaces):
            names = self._namespaces.get(where, {})
            for name in sorted(names):
                yield names[name]

    def owned(self, namespace: str, uid: str) -> Sequence[Object]:
        found = self._owned.get(uid)
        return [found[key] for key in sorted(found) if key[0] == namespace] if found else ()

    def put(self, obj: Object, *, silently: bool = False) -> None:
        """`silently`: nobody is notified, because the watch will report the object."""
        if self._slim is not None:
            obj = self._slim(obj)
        key = get_key(obj)
        known = self.find(*key)
        if known is not None and is_partial(obj) and _is_same_or_newer(known, obj):
            obj = known
        else:
            self._unlink(known)
            self._namespaces.setdefault(key[0], {})[key[1]] = obj
            owner = controller_uid(obj)
            if owner:
                self._owned.setdefault(owner, {})[key] = obj
        if not silently:
            self._notify(obj)

    def remove(self, obj: Object, *, silently: bool = False) -> None:
        """`obj` is the last state; removes the cached object with its name."""
        namespace, name = get_key(obj)
        names = self._namespaces.get(namespace, {})
        self._unlink(names.pop(name, None))
        if not names:
            self._namespaces.pop(namespace, None)
        if not silently:
            self._notify(obj)

    def replace(self, objects: Sequence[Object], namespace: str = "") -> None:
        """Applies a new list, of one namespace or of all: puts new and changed objects, removes those that are gone."""
        present = {get_key(obj) for obj in objects}
        for old in list(self.all(namespace)):
            if get_key(old) not in present:
                self.remove(old)
        for obj in objects:
            before = self.find(*get_key(obj))
            if before is not None and before["metadata"].get("uid") != obj["metadata"].get("uid"):
                # Another object of the same name: whoever follows objects has to know that the first is gone.
                self.remove(before)
                before = None
            if before is None or before["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
                self.put(obj)

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


def _is_same_or_newer(known: Object, partial: Object) -> bool:
    """Whether a whole object in memory is not older than the metadata that the watch reports of it."""
    mine, new = known["metadata"], partial["metadata"]
    return (
        not is_partial(known)
        and mine.get("uid") == new.get("uid")
        and not is_older(read_text(mine, "resourceVersion"), read_text(new, "resourceVersion"))
    )
