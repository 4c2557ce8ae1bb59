"""In a tenant's namespace a container that asks for CPU or memory and names no limit gets its request as its limit.

An admission plugin, before the LimitRanges: their default is for containers that name neither, and may be less than
what this one asks for. It looks only where the quota limits the resource, so that a tenant without such a quota keeps
today's freedom to use what is idle.
"""

from __future__ import annotations

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.resources import RESOURCE_QUOTAS
from trainmaster.api.tenancy import NAME
from trainmaster.apiserver.admission.chain import Attributes, Plugin, is_pod
from trainmaster.apiserver.state import RegistryState

_RESOURCES = ("cpu", "memory")


class TenantLimits(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind) -> bool:
        return is_pod(kind)

    def mutate(self, attributes: Attributes) -> None:
        if not attributes.creates_pod or attributes.new is None:
            return
        record = self._state.store.get(RESOURCE_QUOTAS.collection, f"{attributes.namespace}/{NAME}")
        if record is not None:
            hard = read_fields(self._state.parsed.get(record), "spec", "hard")
            limit_requests(attributes.new, [name for name in _RESOURCES if f"limits.{name}" in hard])


def limit_requests(pod: Object, names: list[str]) -> None:
    spec = pod["spec"]
    for container in (*list_items(spec, "containers"), *list_items(spec, "initContainers")):
        resources = read_fields(container, "resources")
        requests, limits = read_fields(resources, "requests"), read_fields(resources, "limits")
        missing = {name: requests[name] for name in names if name in requests and name not in limits}
        if missing:
            container["resources"] = {**resources, "limits": {**limits, **missing}}
