"""A view of lists that were fetched once, for running functions on a `View` outside a controller.

`fetch` lists the kinds that are needed. A kind that does not exist or may not be listed is empty and in `missing`, and
the caller decides what that means. Used by `trainmaster explain`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import list_items, read_labels
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client

_NOT_TO_BE_HAD = (403, 404)
_AT_ONCE = 3
"""Requests at the same time. Each needs a connection, whose TLS handshake takes more CPU time than several lists; one
after the other would take long with a distant server."""


class ListedView:
    """Implements `client.view.View`."""

    def __init__(self, objects: Mapping[GVR, Iterable[Object]], missing: Iterable[GVR] = ()) -> None:
        self._objects = {
            gvr: {(obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj for obj in listed}
            for gvr, listed in objects.items()
        }
        self.missing = frozenset(missing)

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        return self._objects.get(gvr, {}).get((namespace, name))

    def list(self, gvr: GVR, namespace: str = "", labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        wanted = (labels or {}).items()
        return [
            obj
            for (space, _), obj in sorted(self._objects.get(gvr, {}).items())
            if namespace in ("", space) and wanted <= read_labels(obj).items()
        ]

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return [
            obj
            for obj in self.list(gvr, namespace)
            if any(ref.get("uid") == owner_uid and ref.get("controller") for ref in _list_owners(obj))
        ]


async def fetch(client: Client, wanted: Mapping[GVR, str], needed: Collection[GVR] = ()) -> ListedView:
    """`wanted`: kinds, each with the namespace to list, "" for all. Once one of the `needed` kinds is missing, the
    following ones are not listed."""
    objects: dict[GVR, Sequence[Object]] = {}
    missing: list[GVR] = []

    async def take(gvr: GVR, namespace: str) -> None:
        try:
            objects[gvr] = (await client.list(gvr, namespace)).items
        except StatusError as error:
            if error.code not in _NOT_TO_BE_HAD:
                raise
            missing.append(gvr)

    remaining = iter(wanted.items())

    async def work() -> None:
        for gvr, namespace in remaining:
            await take(gvr, namespace)
            if any(one in needed for one in missing):
                return

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return ListedView(objects, missing)


def _list_owners(obj: Object) -> Sequence[Mapping[str, object]]:
    return list_items(obj, "metadata", "ownerReferences")
