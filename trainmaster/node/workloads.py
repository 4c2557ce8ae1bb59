"""Finds the workload that a Pod belongs to, verified by its owners: directories are assigned by this, never by labels.

The owners are followed by `api.workloads`. Results are cached by the owner's uid, so a large gang costs as many reads
as it has Jobs. Only verified results are cached: a missing owner may come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.api.meta import Fields
from trainmaster.api.status import NotFound
from trainmaster.api.workloads import POD, Reference, Workload, build_workload, find_controller, is_named
from trainmaster.client.contract import Client

_REMEMBERED = 8192


@dataclass(slots=True)
class Workloads:
    client: Client
    _known: dict[Reference, Workload] = field(default_factory=dict)

    async def resolve(self, obj: Fields, kind: str = POD) -> Workload:
        """The Pod itself, if the controller that it names does not exist."""
        owner = find_controller(obj, kind)
        return build_workload(obj, kind, None if owner is None else await self._find_above(owner))

    async def _find_above(self, owner: Reference) -> Workload | None:
        known = self._known.get(owner)
        if known is not None:
            return known
        try:
            found = await self.client.get(owner.gvr, owner.name, owner.namespace)
        except NotFound:
            return None
        if not is_named(found, owner):
            return None
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        above = self._known[owner] = await self.resolve(found, owner.kind)
        return above
