"""Makes Pods of a tenant run as the tenant's Unix user, with limits on their resources.

As an admission plugin it also covers Pods that controllers create. Missing fields are filled in; conflicting ones are
refused, with all reasons at once. In namespaces without a Unix user (`api.tenancy.UNIX_USER`) Pods keep their user.

A container that requests CPU or memory without a limit gets its request as the limit. This happens before LimitRanges
are applied, whose default is for containers with neither and may be less than the request. It happens only if the quota
limits the resource, so that a tenant without such a quota can use idle resources.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.labels import DEVICES, MIRROR
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_annotations, read_fields, read_text
from trainmaster.api.resources import NAMESPACES, PODS, RESOURCE_QUOTAS
from trainmaster.api.tenancy import NAME, find_unix_user, is_tenant
from trainmaster.apiserver.admission.chain import AdmissionOperation, Attributes, Plugin, is_new_pod
from trainmaster.apiserver.state import RegistryState

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_HOST = ("hostNetwork", "hostPID", "hostIPC")
_SYSTEM = "system-"
"""Priority classes before those of all users. With one of them, a tenant's Pods would always be scheduled first."""
LIMITED = ("cpu", "memory")
"""Resources whose request is also the limit where the quota limits them."""


def belongs_to_tenant(state: RegistryState, namespace: str) -> bool:
    """Whether the namespace belongs to a tenant."""
    found = state.find_shared(NAMESPACES, "", namespace)
    return found is not None and is_tenant(found)


def read_hard(state: RegistryState, namespace: str) -> Fields:
    """`spec.hard` of the tenant's quota; empty if there is none."""
    return read_fields(state.find_shared(RESOURCE_QUOTAS, namespace, NAME), "spec", "hard")


class TenantPods(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return is_new_pod(kind, operation)

    def mutate(self, attributes: Attributes) -> None:
        pod, namespace = attributes.new, self._state.find_shared(NAMESPACES, "", attributes.namespace)
        user = None if namespace is None else find_unix_user(namespace)
        if user is not None:
            problems = list(list_problems(pod, user))
            if problems:
                text = f"namespace {attributes.namespace} belongs to a tenant: {'; '.join(problems)}"
                raise status.forbidden(PODS, attributes.name, text)
            context = read_fields(pod, "spec", "securityContext")
            pod["spec"]["securityContext"] = {**context, "runAsUser": user, "runAsGroup": user, "fsGroup": user}
        hard = read_hard(self._state, attributes.namespace)
        limit_requests(pod, [name for name in LIMITED if f"limits.{name}" in hard])


def list_problems(pod: Fields, user: int) -> Iterator[str]:
    """Fields of a Pod that would let it escape its isolation."""
    spec: Fields = pod["spec"]
    for field in _HOST:
        if spec.get(field):
            yield f"spec.{field} is not allowed"
    if spec.get("nodeName"):
        yield "spec.nodeName is the scheduler's, which counts what everybody takes; leave it out"
    priority = read_text(spec, "priorityClassName")
    if priority.startswith(_SYSTEM):
        yield f"spec.priorityClassName {priority} is for parts of the control plane; choose another one"
    for volume in list_items(spec, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"volume {volume.get('name')} is a hostPath; use an emptyDir or a PersistentVolumeClaim"
    annotations = read_annotations(pod)
    if MIRROR in annotations:
        yield f"annotation {MIRROR} is for parts of the control plane"
    if DEVICES in annotations:
        yield f"annotation {DEVICES} is the scheduler's; ask for devices in resources.limits"
    shared = read_fields(spec, "securityContext")
    yield from _list_identities("spec.securityContext", shared, user)
    if any(group != user for group in list_items(shared, "supplementalGroups")):
        yield f"spec.securityContext.supplementalGroups may name {user} only"
    for field in _CONTAINERS:
        for container in list_items(spec, field):
            own = read_fields(container, "securityContext")
            place = f"container {container.get('name')}: securityContext"
            yield from _list_identities(place, own, user)
            if own.get("privileged") or own.get("allowPrivilegeEscalation"):
                yield f"{place} must not ask for privileges"
            if list_items(own, "capabilities", "add"):
                yield f"{place}.capabilities.add is not allowed"


def _list_identities(place: str, context: Fields, user: int) -> Iterator[str]:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        asked = context.get(field)
        if asked is not None and asked != user:
            yield f"{place}.{field} is {asked} and must be {user}, or left out"


def limit_requests(pod: Object, names: list[str]) -> None:
    spec = pod["spec"]
    for container in (*list_items(spec, "containers"), *list_items(spec, "initContainers")) if names else ():
        resources = read_fields(container, "resources")
        requests, limits = read_fields(resources, "requests"), read_fields(resources, "limits")
        missing = {name: requests[name] for name in names if name in requests and name not in limits}
        if missing:
            container["resources"] = {**resources, "limits": {**limits, **missing}}
